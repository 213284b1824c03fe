//! Converts scanned entries to nodes, and scanned directories to trees.

use std::collections::HashMap;

use avfs_types::ids::LinkId;

use super::entry::{ScannedDir, ScannedEntry, What};
use crate::page::{DirMeta, DirRef, Entry, FifoNode, FileNode, Node, SymlinkNode};

/// Hard link groups by device and inode. Only files with more than one name in the scan.
pub(crate) type Groups = HashMap<(u64, u64), LinkId>;

/// A directory with a tree.
#[derive(Clone, Copy)]
pub(crate) struct BuiltDir {
    pub(crate) dir: DirRef,
    pub(super) complete: bool,
    /// The number of the identical directory in the cache.
    pub(super) same_as: Option<u32>,
}

/// The metadata of a directory.
pub(crate) fn meta<D>(dir: &ScannedDir<D>) -> DirMeta {
    DirMeta { mode: dir.stat.mode, mtime: dir.stat.mtime, xattrs: dir.xattrs }
}

pub(super) fn link_of(entry: &ScannedEntry, groups: &Groups) -> Option<LinkId> {
    if entry.stat.links < 2 {
        return None;
    }
    groups.get(&(entry.stat.device, entry.stat.inode)).copied()
}

/// The entry of a tree; `built` are the subdirectories. `None` if it is missing.
pub(crate) fn node(entry: &ScannedEntry, built: &HashMap<u32, BuiltDir>, groups: &Groups) -> Option<Entry> {
    let node = match &entry.what {
        What::Dir(number) => Node::Dir(built.get(number)?.dir),
        What::File { .. }
        | What::Symlink { .. }
        | What::Fifo
        | What::Pending
        | What::Gone
        | What::Whiteout => leaf(entry, groups)?,
    };
    Some(Entry { name: entry.name.clone(), node })
}

/// The node of an entry. `None` for a directory or a missing file.
pub(crate) fn leaf(entry: &ScannedEntry, groups: &Groups) -> Option<Node> {
    let link = link_of(entry, groups);
    let (mode, mtime) = (entry.stat.mode, entry.stat.mtime);
    Some(match &entry.what {
        What::File { content, xattrs } => {
            let (content, xattrs) = (*content, *xattrs);
            Node::File(FileNode { mode, mtime, size: entry.stat.size, content, xattrs, link })
        }
        What::Symlink { target } => Node::Symlink(SymlinkNode { mtime, target: target.clone(), link }),
        What::Fifo => Node::Fifo(FifoNode { mode, mtime, link }),
        What::Dir(_) | What::Pending | What::Gone | What::Whiteout => return None,
    })
}
