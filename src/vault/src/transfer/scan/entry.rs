//! The entries of a scan: the state of each file and directory before its tree is built.

use avfs_hostfs::stat::HostStat;
use avfs_types::ids::BlobId;
use avfs_types::path::TreePath;

use crate::page::FileContent;

/// A directory; `D` is what its source keeps with it.
pub(crate) struct ScannedDir<D> {
    pub(crate) path: TreePath,
    /// The number of its parent directory; `None` for the root.
    pub(crate) parent: Option<u32>,
    pub(crate) stat: HostStat,
    pub(crate) xattrs: Option<BlobId>,
    pub(crate) entries: Vec<ScannedEntry>,
    /// Its number in the stat cache.
    pub(crate) cached: Option<u32>,
    /// All entries match the cache, apart from the content of subdirectories.
    pub(crate) clean: bool,
    /// No entry of it is missing; after the scan, also none beneath it.
    pub(crate) complete: bool,
    /// What its source keeps with it.
    pub(crate) own: D,
}

#[derive(Clone)]
pub(crate) struct ScannedEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) stat: HostStat,
    pub(crate) what: What,
    pub(crate) settled: bool,
}

impl<D> ScannedDir<D> {
    /// True if it has an entry with this name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).is_ok()
    }
}

impl ScannedEntry {
    /// True for a file, symlink or fifo that may have other hard links in the scan.
    pub(crate) fn is_shared(&self) -> bool {
        match self.what {
            What::File { .. } | What::Symlink { .. } | What::Fifo => self.stat.links > 1,
            What::Dir(_) | What::Pending | What::Gone | What::Whiteout => false,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum What {
    File {
        content: FileContent,
        xattrs: Option<BlobId>,
    },
    Symlink {
        target: Vec<u8>,
    },
    Fifo,
    /// The number of the directory.
    Dir(u32),
    /// A file that is not read yet.
    Pending,
    /// No entry: it is deleted or unreadable. In an upper, the base's entry is used.
    Gone,
    /// No entry; the base's entry is deleted too.
    Whiteout,
}

/// The result of reading a file.
pub(crate) struct Facts {
    pub(crate) entry: usize,
    pub(crate) stat: HostStat,
    pub(crate) what: What,
}

impl Facts {
    /// Stores the result in an entry.
    pub(crate) fn apply(self, entry: &mut ScannedEntry, settled: bool) {
        entry.settled = settled;
        // Reading a file may have updated its atime.
        entry.stat = HostStat { atime: entry.stat.atime, ..self.stat };
        entry.what = self.what;
    }
}

/// A file that is too large or too sparse to be read at once.
pub(crate) struct LargeFile {
    pub(crate) dir: u32,
    pub(crate) entry: usize,
    pub(crate) path: TreePath,
}

impl LargeFile {
    /// The result if the file is not kept.
    pub(crate) fn gone(&self, stat: HostStat) -> Facts {
        Facts { entry: self.entry, stat, what: What::Gone }
    }
}
