//! Directories as objects: entries in pages, and the two digests of each page.
//!
//! A directory is a sorted list of entries, split into pages at boundaries determined by the NAMES of entries, with
//! pages of pages above that. So an edit rewrites only the pages on its path, and the same names are always split
//! at the same places, on every machine. The top page of a directory contains the directory's own metadata.

use avfs_types::clock::FileTime;
use avfs_types::ids::{BlobId, ContentId, LinkId, TreeId};

/// One entry in 2^5 starts a page.
const RANK_BITS: u32 = 5;
/// No name has a rank that would start pages above this level: a rank is derived from 64 bits.
pub(crate) const LEVEL_MAX: u8 = 12;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name: raw bytes without `/` and NUL.
    pub name: Vec<u8>,
    /// The object that the name refers to.
    pub node: Node,
}

/// The object that a name in a directory refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File(FileNode),
    /// A symbolic link.
    Symlink(SymlinkNode),
    /// A named pipe.
    Fifo(FifoNode),
    /// A directory.
    Dir(DirRef),
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNode {
    /// The permission bits, setuid, setgid and sticky included.
    pub mode: u32,
    /// The modification time.
    pub mtime: FileTime,
    /// Bytes of the content.
    pub size: u64,
    /// The blob or list with the content.
    pub content: FileContent,
    /// The set of extended attributes; `None` if it has none.
    pub xattrs: Option<BlobId>,
    /// The hard link group it belongs to; `None` for a file with one name.
    pub link: Option<LinkId>,
}

/// The location of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileContent {
    /// One blob.
    Whole(BlobId),
    /// A list of chunks and holes.
    Chunked(BlobId),
}

impl FileContent {
    /// The blob to start reading from.
    #[must_use]
    pub fn id(&self) -> &BlobId {
        match self {
            Self::Whole(id) | Self::Chunked(id) => id,
        }
    }
}

/// A symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkNode {
    /// The modification time.
    pub mtime: FileTime,
    /// Its target: raw bytes, never followed by the vault.
    pub target: Vec<u8>,
    /// The hard link group it belongs to; `None` for a symlink with one name.
    pub link: Option<LinkId>,
}

/// A named pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FifoNode {
    /// The permission bits.
    pub mode: u32,
    /// The modification time.
    pub mtime: FileTime,
    /// The hard link group it belongs to; `None` for a FIFO with one name.
    pub link: Option<LinkId>,
}

/// A reference to a directory from its parent or from a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirRef {
    /// Its top page, times included.
    pub tree: TreeId,
    /// Its top page without modification times.
    pub content: ContentId,
    /// Sums over everything under it.
    pub totals: Totals,
}

/// Sums over everything under a directory or in a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries, including those of subdirectories.
    pub entries: u64,
    /// Bytes of the files; each hard link is counted.
    pub bytes: u64,
    /// Entries that belong to a hard link group.
    pub links: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.links = self.links.saturating_add(other.links);
    }
}

/// The metadata of a directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirMeta {
    /// The permission bits.
    pub mode: u32,
    /// The modification time.
    pub mtime: FileTime,
    /// The set of extended attributes; `None` if it has none.
    pub xattrs: Option<BlobId>,
}

impl Default for DirMeta {
    fn default() -> Self {
        Self { mode: 0o755, mtime: FileTime::default(), xattrs: None }
    }
}

/// A reference to a page below the top of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// The first name in it.
    pub first: Vec<u8>,
    /// The page, times included.
    pub tree: TreeId,
    /// The page without modification times.
    pub content: ContentId,
    /// Sums over its entries and everything under them.
    pub totals: Totals,
}

/// The entries of a page, or the pages below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Entries, sorted by name.
    Leaf(Vec<Entry>),
    /// Pages of level `level - 1`; level 1 contains leaves.
    Inner {
        /// The level of this page, starting at 1.
        level: u8,
        /// The pages below it, sorted by their first names.
        pages: Vec<PageRef>,
    },
}

/// An object of the tree table. Only the top page of a directory has `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub(crate) meta: Option<DirMeta>,
    pub(crate) body: Body,
}

/// An encoded page, with the data for the reference in its parent.
pub struct Sealed {
    /// The digest of the page, times included.
    pub tree: TreeId,
    /// The digest of the page without modification times.
    pub content: ContentId,
    /// Sums over its entries and everything under them.
    pub totals: Totals,
    /// The encoded page.
    pub data: Vec<u8>,
}

/// The highest level at which a name starts a page: 0 for none, 1 for a leaf, 2 also for the page above, and so on.
///
/// FNV-1a with a final mixing step; part of the format, so it must never change.
#[must_use]
pub(crate) fn rank(name: &[u8]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash.trailing_zeros() / RANK_BITS
}

impl Node {
    /// The sums that this node adds to its directory, itself included.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let links = u64::from(self.link().is_some());
        match self {
            Self::File(file) => Totals { entries: 1, bytes: file.size, links },
            Self::Symlink(_) | Self::Fifo(_) => Totals { entries: 1, bytes: 0, links },
            Self::Dir(dir) => Totals { entries: dir.totals.entries.saturating_add(1), ..dir.totals },
        }
    }

    /// The hard link group it belongs to; `None` for an entry with one name and for directories.
    #[must_use]
    pub fn link(&self) -> Option<LinkId> {
        match self {
            Self::File(file) => file.link,
            Self::Symlink(symlink) => symlink.link,
            Self::Fifo(fifo) => fifo.link,
            Self::Dir(_) => None,
        }
    }

    /// The same node in another hard link group.
    #[must_use]
    pub(crate) fn with_link(mut self, link: Option<LinkId>) -> Self {
        match &mut self {
            Self::File(file) => file.link = link,
            Self::Symlink(symlink) => symlink.link = link,
            Self::Fifo(fifo) => fifo.link = link,
            Self::Dir(_) => {}
        }
        self
    }

    /// The name of the type: `file`, `symlink`, `fifo` or `dir`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Symlink(_) => "symlink",
            Self::Fifo(_) => "fifo",
            Self::Dir(_) => "dir",
        }
    }
}

impl Body {
    /// The number of page levels below it.
    #[must_use]
    pub fn level(&self) -> u8 {
        match self {
            Self::Leaf(_) => 0,
            Self::Inner { level, .. } => *level,
        }
    }

    /// The first name in it.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        match self {
            Self::Leaf(entries) => entries.first().map_or(b"", |entry| &entry.name),
            Self::Inner { pages, .. } => pages.first().map_or(b"", |page| &page.first),
        }
    }

    #[must_use]
    pub(crate) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        match self {
            Self::Leaf(entries) => entries.iter().for_each(|entry| sum += entry.node.totals()),
            Self::Inner { pages, .. } => pages.iter().for_each(|page| sum += page.totals),
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_part_of_the_format() {
        let ranks: Vec<u32> = (0..2000).map(|n| rank(format!("name{n}").as_bytes())).collect();
        let begin_page = ranks.iter().filter(|rank| **rank >= 1).count();
        assert!((30..100).contains(&begin_page), "{begin_page} of 2000 names begin a page");
        assert_eq!(rank(b""), 0);
        assert_eq!(u32::from(LEVEL_MAX), u64::BITS / RANK_BITS);
        let bytes: Vec<u8> = ranks.iter().map(|rank| u8::try_from(*rank).unwrap()).collect();
        let digest = blake3::hash(&bytes);
        assert_eq!(digest.to_hex()[..16], *"4b8e2777efa328cc");
    }
}
