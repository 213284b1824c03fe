//! Changes as lines for people: what a change object of the wire lacks.

use std::borrow::Cow;
use std::sync::Arc;

use avfs_changes::{ChangeSummary, beside_content, file_sizes, is_dir, kind_words};
use avfs_present::{change_kind, change_totals};
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_wire::{ChangeKindName, ChangeTotals};

use avfs_workplace::OpError;

/// One change, with the facts of a line about it.
#[derive(Clone, Debug)]
pub struct ChangeLine {
    pub kind: ChangeKindName,
    /// The word and the letter of the kind.
    pub word: &'static str,
    pub letter: char,
    pub path: TreePath,
    /// The old path of a renamed file.
    pub from: Option<TreePath>,
    /// The entry is, or was, a directory.
    pub is_dir: bool,
    /// Bytes before and after; `None` for a side that is not a file.
    pub sizes: (Option<u64>, Option<u64>),
    /// What changed in addition to the content: type, link target, mode, attributes, hard links.
    pub remarks: Vec<String>,
}

impl ChangeLine {
    #[must_use]
    pub fn of(change: &Change) -> Self {
        let (word, letter) = kind_words(&change.kind);
        let from = match &change.kind {
            ChangeKind::Renamed { from } => Some(from.clone()),
            ChangeKind::Added
            | ChangeKind::Deleted
            | ChangeKind::Modified
            | ChangeKind::Mode
            | ChangeKind::Type
            | ChangeKind::Time => None,
        };
        Self {
            kind: change_kind(&change.kind),
            word,
            letter,
            path: change.path.clone(),
            from,
            is_dir: is_dir(change),
            sizes: file_sizes(change),
            remarks: beside_content(change),
        }
    }
}

/// The changes of an answer. Each line is made when it is read, because the list may be long.
#[derive(Clone, Debug, Default)]
pub struct ChangeLines {
    changes: Arc<Changes>,
    pub counts: ChangeTotals,
}

impl ChangeLines {
    pub fn iter(&self) -> impl Iterator<Item = Result<ChangeLine, OpError>> {
        self.changes.iter().map(|change| Ok(ChangeLine::of(&*change?)))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl From<&ChangeSummary> for ChangeLines {
    fn from(summary: &ChangeSummary) -> Self {
        Self { changes: Arc::clone(&summary.changes), counts: change_totals(&summary.counts) }
    }
}

/// Appends changes to a list, except those of a modification time only.
pub fn without_times<'c>(
    changes: impl Iterator<Item = avfs_vault::Result<Cow<'c, Change>>>,
    mut list: Changes,
) -> avfs_vault::Result<Changes> {
    for change in changes {
        let change = change?;
        if change.kind != ChangeKind::Time {
            list.push(change.into_owned());
        }
    }
    Ok(list)
}
