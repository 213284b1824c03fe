//! A version: its record, its parents and its changes.

use avfs_changes::{ChangeSummary, Shown};
use avfs_types::reference::Reference;
use avfs_vault::backend::{Reader, VersionRecord};
use avfs_vault::require_version;
use avfs_vault::tree::{Pages, StoppablePages};
use avfs_vault::version::{resolve, roots_to_compare};
use avfs_wire::Show;
use avfs_workplace::{OpError, Workplace};

use crate::changes::ChangeLines;
use crate::labels::labels;

pub struct ShowAnswer {
    pub show: Show,
    /// The changes since the first parent; `None` if a prune removed the files of one of the two.
    pub lines: Option<ChangeLines>,
}

/// A version and its changes since its first parent.
pub fn show(workplace: &Workplace, reference: &Reference) -> Result<ShowAnswer, OpError> {
    let reader = workplace.vault.read()?;
    let (version, _) = resolve(&*reader, reference)?;
    let names = labels(&*reader)?.remove(&version.id).unwrap_or_default();
    let (checkpoints, forks) = names.into_iter().partition(|name| name.contains('@'));
    let summary = changes_of(workplace, &*reader, &version)?;
    let lines = summary.as_ref().map(ChangeLines::from);
    let show = Show {
        version: avfs_present::version(&version),
        forks,
        checkpoints,
        changes: summary.as_ref().map(avfs_present::change_list),
        change_counts: lines.as_ref().map(|lines| lines.counts),
    };
    Ok(ShowAnswer { show, lines })
}

/// The changes of a version against its first parent. The first version has no parent, so its summary is empty.
fn changes_of(
    workplace: &Workplace,
    reader: &dyn Reader,
    version: &VersionRecord,
) -> Result<Option<ChangeSummary>, OpError> {
    let Some(parent) = version.parents.first() else { return Ok(Some(ChangeSummary::default())) };
    let parent = require_version(reader, parent)?;
    if parent.pruned_at.is_some() || version.pruned_at.is_some() {
        return Ok(None);
    }
    let [before, after] = roots_to_compare(reader, &parent, version)?;
    let progress = workplace.client.observer.unshown_operation()?;
    let pages: &dyn Pages = &reader;
    let pages = StoppablePages::new(pages, &progress.meter);
    let roots = (&before, &after);
    Ok(Some(ChangeSummary::compare(&workplace.vault, &pages, roots, &[], Shown::WithoutTimes)?))
}
