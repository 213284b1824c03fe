//! Limits the memory of a comparison for a tree that is larger than its stored form.
//!
//! A page may be part of many directories, and a directory part of many others: a few stored bytes can represent
//! any number of paths. The entries of a page opened for the first time are as many as the vault stores, and are
//! not counted. Each entry of a page that was opened before is counted with the memory of one change.

use std::collections::HashSet;

use avfs_types::ids::TreeId;
use avfs_types::path::TreePath;

use super::page::DirRef;
use crate::{Result, VaultError};

/// The approximate memory of one change, without its path.
const CHANGE_BYTES: u64 = 512;
/// The memory limit for changes in shared pages: enough for fifty copies of a directory of 60,000 files.
pub const SHARED_BYTES_MAX: u64 = 2 << 30;

/// Whether the vault stores an entry once for each of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Here,
    /// Its page is also part of another directory, or of this one at another place.
    Elsewhere,
}

/// The minimum memory for a directory that is still to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved(u64);

/// One of the two versions. Each counts its own pages: a renamed directory is in both, and is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    Before,
    After,
}

/// Bounds the memory of a walk over directories that a tree shares many times.
#[derive(Debug)]
pub struct Expansion {
    opened: HashSet<(Version, TreeId)>,
    /// Directories that exist only in one version, opened or not.
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
    /// Limits the memory for shared directories to `max_bytes`.
    #[must_use]
    pub fn within(max_bytes: u64) -> Self {
        let (opened, announced) = (HashSet::new(), HashSet::new());
        Self { opened, announced, held_bytes: 0, reserved_bytes: 0, max_bytes }
    }

    /// Records that a page is opened.
    pub(crate) fn open(&mut self, version: Version, page: &TreeId) -> Stored {
        if self.opened.insert((version, *page)) { Stored::Here } else { Stored::Elsewhere }
    }

    /// Counts a change that is kept.
    pub(crate) fn keep(&mut self, path: &TreePath, stored: Stored) -> Result<()> {
        match stored {
            Stored::Here => Ok(()),
            Stored::Elsewhere => {
                self.held_bytes = self.held_bytes.saturating_add(cost(1, path));
                self.check()
            }
        }
    }

    /// Announces a directory that exists only in one version and will be opened: everything in it is a change. From
    /// the second time on the changes are counted in advance, so that the limit is reported before they are
    /// collected.
    pub(crate) fn announce(&mut self, version: Version, dir: &DirRef, path: &TreePath) -> Result<Reserved> {
        if self.announced.insert((version, dir.tree)) {
            return Ok(Reserved::default());
        }
        let reserved = cost(dir.totals.entries, path);
        self.reserved_bytes = self.reserved_bytes.saturating_add(reserved);
        self.check()?;
        Ok(Reserved(reserved))
    }

    /// Releases the reservation of a directory that is now opened; its entries are counted one by one.
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

/// The memory of this many changes whose paths are at least as long as this one.
fn cost(changes: u64, path: &TreePath) -> u64 {
    let path_bytes = u64::try_from(path.as_bytes().len()).unwrap_or(u64::MAX);
    changes.saturating_mul(CHANGE_BYTES.saturating_add(path_bytes))
}
