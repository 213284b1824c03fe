//! The scan of a directory: walks it, reads its files and builds its trees. Imports and captures share it.
//!
//! What comes in is an open directory and a [`Source`], which says how this kind of directory is read: a host directory
//! that other processes use (`import::host`), or the released upper of an overlay over a base (`capture::upper`). What
//! leaves is a [`Built`]: the root, new pages, and a report; blobs go to an [`Outlet`] while the scan runs.
//!
//! What must hold: every path is opened beneath the root without following symlinks; a file is kept only if it was read
//! without a concurrent write, else it is reported; a directory is built as soon as all its entries are known, so that
//! memory does not grow with the size of the directory.
//!
//! Open `walk` first: one job for each directory, several for its files. `shared` is the state of all jobs, `entry`
//! that of each file, `files` reads content, `assembly` builds trees bottom up from `build`, with hard links
//! of `hard_links`. A source is a type parameter: its calls for each entry are not dynamic.

mod assembly;
mod build;
mod entry;
mod error;
mod files;
mod hard_links;
mod report;
mod shared;
mod spilled_entries;
mod walk;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use avfs_hostfs::overlay::Shows;
use avfs_hostfs::stat::HostStat;
use avfs_hostfs::xattr::Xattrs;
use avfs_types::path::TreePath;

pub(crate) use assembly::{Assembly, Built, Records};
pub(crate) use build::{BuiltDir, Groups, leaf, meta, node};
pub(crate) use entry::{ScannedDir, ScannedEntry, What};
pub use error::ImportError;
pub(crate) use files::FileBlocks;
pub(crate) use report::Keep;
pub use report::{OnTrouble, Scanned, Trouble, TroubleReason, UNVERSIONED_MAX};
pub(crate) use shared::{Outlet, Shared, lock};
pub(crate) use walk::{CHANNEL_BATCHES, Found, Job, Listing, Scan};

use crate::page::DirRef;
use crate::pages::NewPages;
use crate::transfer::Result;

/// A kind of directory to scan.
pub(crate) trait Source: Sync + Sized {
    /// What a directory has from the one above it, and what its tree depends on besides its entries.
    type Dir: Send + Sync;

    /// No process writes to the directory during the scan: a stamp proves that a file is unchanged, and a file without
    /// permission belongs to another user.
    const IS_QUIET: bool;
    /// The entries of a directory that waits for the end of the scan can be spilled: its tree needs only what the stat
    /// cache records too.
    const SPILLS: bool;

    /// Opens a directory for reading.
    fn open_dir(&self, root: BorrowedFd<'_>, path: &TreePath) -> io::Result<OwnedFd>;

    /// The stat of a directory as its version gets it.
    fn stat_of_dir(
        shared: &Shared<'_, Self>,
        job: &Job<Self::Dir>,
        dir: &OwnedFd,
        stat: HostStat,
    ) -> Result<HostStat>;

    /// Lists a directory, and decides which of its names are versioned. `None` if it no longer exists.
    fn list<'j>(
        shared: &Shared<'_, Self>,
        job: &'j mut Job<Self::Dir>,
        dir: OwnedFd,
        found: Found,
    ) -> Result<Option<Listing<'j, Self::Dir>>>;

    /// The tree of a directory whose entries are all known. `built` are its subdirectories.
    fn tree(
        &self,
        dir: &ScannedDir<Self::Dir>,
        built: &HashMap<u32, BuiltDir>,
        groups: &Groups,
        new: &mut NewPages,
    ) -> Result<DirRef>;

    /// Attributes as the user of the directory sees them, and whether it is opaque.
    fn visible(&self, xattrs: Xattrs) -> (Xattrs, Shows) {
        (xattrs, Shows::Beneath)
    }

    /// The original mode of a file that was made readable.
    fn true_mode(&self, stat: &HostStat) -> u32 {
        stat.mode
    }

    /// The attributes of a directory that may be stored.
    fn kept_xattrs(shared: &Shared<'_, Self>, path: &TreePath, xattrs: Xattrs) -> Xattrs {
        let _ = (shared, path);
        xattrs
    }

    /// True if a file must not be stored, which the source then has recorded.
    fn withholds_small(
        shared: &Shared<'_, Self>,
        path: &TreePath,
        bytes: &[u8],
        xattrs: &Xattrs,
    ) -> Result<bool> {
        let _ = (shared, path, bytes, xattrs);
        Ok(false)
    }

    /// Like [`Self::withholds_small`], for a file that is read in blocks.
    fn withholds_large(shared: &Shared<'_, Self>, path: &TreePath, file: &File) -> Result<bool> {
        let _ = (shared, path, file);
        Ok(false)
    }
}
