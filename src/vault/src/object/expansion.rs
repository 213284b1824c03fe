//! Bounds what a comparison holds in memory where a tree is larger than what is stored of it.
//!
//! A page may be part of many directories, and a directory of many others: a few stored bytes stand for any number of
//! paths. Entries of a page that is opened for the first time are as many as the vault stores, and are not counted. An
//! entry of a page that was opened before is counted with what one change takes.

use std::collections::HashSet;

use avfs_types::ids::TreeId;
use avfs_types::path::TreePath;

use super::page::DirRef;
use crate::{Result, VaultError};

/// What one change takes beside its path, about.
const CHANGE_BYTES: u64 = 512;
/// What the changes of shared pages may take: enough for fifty copies of a directory of 60,000 files.
pub const SHARED_BYTES_MAX: u64 = 2 << 30;

/// Whether the vault stores an entry once for each path it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Here,
    /// Its page is part of another directory too, or of this one in another place.
    Elsewhere,
}

/// What a directory that waits to be opened will take at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved(u64);

/// Which of the two versions. Each has its own pages: what is renamed is in both, and is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    Before,
    After,
}

/// Bounds the memory of a walk over directories that a tree shares many times.
#[derive(Debug)]
pub struct Expansion {
    opened: HashSet<(Version, TreeId)>,
    /// Directories that are only in one version, opened or not.
    announced: HashSet<(Version, TreeId)>,
    held_bytes: u64,
    reserved_bytes: u64,
    max_bytes: u64,
}

impl Default for Expansion {
    fn default() -> Self {
        Self::within(SHARED_BYTES_MAX)
    }
}

impl Expansion {
    /// At most `max_bytes` for what a walk holds of shared directories.
    #[must_use]
    pub fn within(max_bytes: u64) -> Self {
        let (opened, announced) = (HashSet::new(), HashSet::new());
        Self { opened, announced, held_bytes: 0, reserved_bytes: 0, max_bytes }
    }

    /// A page is opened.
    pub(crate) fn open(&mut self, version: Version, page: &TreeId) -> Stored {
        if self.opened.insert((version, *page)) { Stored::Here } else { Stored::Elsewhere }
    }

    /// A change is kept.
    pub(crate) fn keep(&mut self, path: &TreePath, stored: Stored) -> Result<()> {
        match stored {
            Stored::Here => Ok(()),
            Stored::Elsewhere => {
                self.held_bytes = self.held_bytes.saturating_add(cost(1, path));
                self.check()
            }
        }
    }

    /// A directory that is only in one version will be opened: all beneath it are changes. From the second time on
    /// they are counted in advance, so that a refusal comes before they are collected.
    pub(crate) fn announce(&mut self, version: Version, dir: &DirRef, path: &TreePath) -> Result<Reserved> {
        if self.announced.insert((version, dir.tree)) {
            return Ok(Reserved::default());
        }
        let reserved = cost(dir.totals.entries, path);
        self.reserved_bytes = self.reserved_bytes.saturating_add(reserved);
        self.check()?;
        Ok(Reserved(reserved))
    }

    /// It is opened now; what is in it is counted one by one.
    pub(crate) fn release(&mut self, reserved: Reserved) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(reserved.0);
    }

    fn check(&self) -> Result<()> {
        if self.held_bytes.saturating_add(self.reserved_bytes) > self.max_bytes {
            return Err(VaultError::SharedTooOften { max_bytes: self.max_bytes });
        }
        Ok(())
    }
}

/// What this many changes take, none of whose paths is shorter than this one.
fn cost(changes: u64, path: &TreePath) -> u64 {
    let path_bytes = u64::try_from(path.as_bytes().len()).unwrap_or(u64::MAX);
    changes.saturating_mul(CHANGE_BYTES.saturating_add(path_bytes))
}
