//! Brings what changed in a directory since a fork began into that fork: a three-way merge of whole paths.
//!
//! A sync adds a version with two parents: the fork's head and the version of the directory. What was merged follows
//! from the history alone, and an undo of the sync takes it back like any other step.

use std::collections::HashSet;

use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;

use super::join::{OnClash, common, onto, root_of};
use super::ops;
use super::undo::Line;
use crate::backend::{ForkRecord, Reader};
use crate::edit::Manner;
use crate::tree::Pages;
use crate::{Advance, Committed, Result, Vault, VaultError, When};

/// What came of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synced {
    /// The fork has everything already.
    UpToDate,
    /// The version that was added to the fork.
    Merged(Box<Committed>),
    /// Both sides changed these paths in different ways; nothing was merged.
    Conflicts(Vec<TreePath>),
}

impl Vault {
    /// Merges what led to `version`, usually the newest of the directory, into a fork.
    pub fn sync(&self, fork: &ForkName, version: &VersionId, on_clash: OnClash) -> Result<Synced> {
        self.transact(|transaction| {
            let record = transaction.fork(fork)?;
            let view = transaction.view();
            // A partial version has no ancestor in common with any other, and cannot be merged.
            root_of(view, &record.head)?;
            // Undone steps are behind the head, but not part of what it shows.
            let shown = Line::of(view, &record).stands_at(&record.head)?.id;
            let bases = common(view, &[shown], version)?;
            if bases.contains(version) {
                return Ok(Synced::UpToDate);
            }
            let bases = bases.iter().map(|base| root_of(view, base)).collect::<Result<Vec<_>>>()?;
            let (head, other) = (root_of(view, &record.head)?, root_of(view, version)?);
            let pages: &dyn Pages = &view;
            let edits = match onto(pages, &bases, &head, &other, on_clash)? {
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

/// The last sync that is part of what a fork shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSync {
    /// There is one.
    Found {
        /// The version that the sync added to the fork.
        version: VersionId,
        /// The version of the directory that it merged.
        merged: VersionId,
    },
    /// The fork was never synced.
    Never,
    /// The fork has more versions than were looked at, and none of those is a sync.
    Unknown,
}

/// Looks for the last sync among this many of a fork's newest versions.
pub fn last_sync(reader: &dyn Reader, fork: &ForkRecord, versions_max: usize) -> Result<LastSync> {
    let line = Line::of(reader, fork);
    let mut version = line.stands_at(&fork.head)?;
    let mut seen = HashSet::new();
    while seen.len() < versions_max {
        // Only a forged vault holds a cycle.
        if !seen.insert(version.id) {
            let (id, detail) = (version.id.short(), "it is its own ancestor".to_owned());
            return Err(VaultError::DamagedObject { kind: "version", id, detail });
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
