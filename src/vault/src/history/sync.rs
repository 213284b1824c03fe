//! Merges the changes of a directory since a fork started into that fork: a three-way merge of whole paths.
//!
//! A sync adds a version with two parents: the fork's head and the version of the directory. The merged state
//! follows from the history alone, and undo reverts a sync like any other step.

use std::collections::HashSet;

use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;

use super::join::{OnClash, common, onto, root_of, same_but_time};
use super::ops;
use super::undo::Line;
use super::version::own_ancestor;
use crate::backend::{ForkRecord, Reader};
use crate::edit::Manner;
use crate::page::{FileNode, Node};
use crate::tree::Pages;
use crate::{Advance, Committed, Result, Vault, When};

/// The result of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synced {
    /// The fork already has everything.
    UpToDate,
    /// The version added to the fork.
    Merged(Box<Committed>),
    /// Both sides changed these paths in different ways; nothing was merged.
    Conflicts(Vec<TreePath>),
}

/// True if two contents of a file mean the same.
pub type SameMeaning<'a> = &'a dyn Fn(&dyn Reader, &TreePath, [&FileNode; 2]) -> Result<bool>;

impl Vault {
    /// Merges the history of `version`, usually the newest version of the directory, into a fork. A side that only
    /// changed a file's time, or wrote content of the same meaning, takes the other side's change. `on_clash` decides
    /// about each path that both sides changed in different ways.
    pub fn sync(
        &self,
        fork: &ForkName,
        version: &VersionId,
        on_clash: &dyn Fn(&TreePath) -> OnClash,
        same_meaning: SameMeaning<'_>,
    ) -> Result<Synced> {
        self.transact(|transaction| {
            let record = transaction.fork(fork)?;
            let view = transaction.view();
            // A partial version has no common ancestor with any other, and cannot be merged.
            root_of(view, &record.head)?;
            // Undone steps are ancestors of the head, but not part of its state.
            let shown = Line::of(view, &record).stands_at(&record.head)?.id;
            let bases = common(view, &[shown], version)?;
            if bases.contains(version) {
                return Ok(Synced::UpToDate);
            }
            let bases = bases.iter().map(|base| root_of(view, base)).collect::<Result<Vec<_>>>()?;
            let (head, other) = (root_of(view, &record.head)?, root_of(view, version)?);
            let pages: &dyn Pages = &view;
            let same = |path: &TreePath, one: &Node, other: &Node| match (one, other) {
                (Node::File(a), Node::File(b)) => {
                    Ok(same_but_time(path, one, other)? || same_meaning(view, path, [a, b])?)
                }
                (_, _) => same_but_time(path, one, other),
            };
            let edits = match onto(pages, (&bases, &head, &other), on_clash, &same)? {
                Ok(edits) => edits,
                Err(paths) => return Ok(Synced::Conflicts(paths)),
            };
            let root = ops::apply_edits(transaction, &head, &edits, Manner::Exact)?;
            let message = format!("sync with {}", version.short());
            let advance = Advance { action: "fork.sync", message: &message, run: None, when: When::Always };
            let parents = vec![record.head, *version];
            let committed = transaction.advance_to(&record, &root, parents, advance)?;
            Ok(Synced::Merged(Box::new(committed)))
        })
    }
}

/// The last sync that is part of a fork's current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSync {
    /// A sync was found.
    Found {
        /// The version that the sync added to the fork.
        version: VersionId,
        /// The version of the directory that it merged.
        merged: VersionId,
    },
    /// The fork was never synced.
    Never,
    /// None of the examined versions is a sync, and the fork has more versions.
    Unknown,
}

/// Searches this many of a fork's newest versions for the last sync.
pub fn last_sync(reader: &dyn Reader, fork: &ForkRecord, versions_max: usize) -> Result<LastSync> {
    let line = Line::of(reader, fork);
    let mut version = line.stands_at(&fork.head)?;
    let mut seen = HashSet::new();
    while seen.len() < versions_max {
        if !seen.insert(version.id) {
            return Err(own_ancestor(&version.id));
        }
        if let Some(merged) = line.merged(&version)? {
            return Ok(LastSync::Found { version: version.id, merged });
        }
        match line.before(&version)? {
            Some(before) => version = before,
            None => return Ok(LastSync::Never),
        }
    }
    Ok(LastSync::Unknown)
}
