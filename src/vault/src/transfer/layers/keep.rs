//! Makes the upper of a captured run the top layer of the next run's stack.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, unlinkat};
use rustix::io::Errno;

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::remove::remove_tree;
use avfs_hostfs::{beneath, make, overlay};

use super::{Footprint, LAYERS_MAX, Stack};
use crate::capture::{LeftOut, WrittenLinks};
use crate::materialize::BaseCache;
use crate::page::DirRef;
use crate::shelf::host;
use crate::transfer::Result;

/// Whether an upper was kept as a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptUpper {
    /// It was moved to the cache as a layer.
    Layer,
    /// It was not moved, and the caller must discard it. The next run's stack is built from the vault.
    Not(NotKept),
}

/// Why an upper was not kept as a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The stack beneath it already shows the tree.
    Unchanged,
    /// The stack already has [`LAYERS_MAX`] layers: the next stack has one layer for all of them.
    TooManyLayers,
    /// It is not on the cache's file system.
    OtherFileSystem,
    /// A path that the capture left out could not be removed from it.
    NoPermission,
    /// A hard link was written to, and other names of the file are in the layers beneath, with the old content.
    WrittenLinks,
    /// It contains the value of a secret, or attributes that the version does not have: it is discarded, and the
    /// version is rebuilt from the vault.
    HoldsMore,
}

impl BaseCache {
    /// Moves an upper that was mounted over `below`, and captured as `tree`, into the cache. It must no longer be
    /// mounted or written to. Paths that the capture left out are removed from it first.
    ///
    /// Costs some renames and two small files. Nothing is synced: layers, like bases, are not trusted after a power
    /// loss.
    pub fn keep_upper(
        &self,
        below: &Stack,
        upper: &Path,
        (left_out, links): (&[LeftOut], &WrittenLinks),
        size: Footprint,
        tree: &DirRef,
    ) -> Result<KeptUpper> {
        if tree.tree == below.tree {
            return Ok(KeptUpper::Not(NotKept::Unchanged));
        }
        if below.layers.len() >= LAYERS_MAX {
            return Ok(KeptUpper::Not(NotKept::TooManyLayers));
        }
        if !links.joined.is_empty() {
            return Ok(KeptUpper::Not(NotKept::WrittenLinks));
        }
        if left_out.iter().any(|left| left.reason.stays_in_upper()) {
            return Ok(KeptUpper::Not(NotKept::HoldsMore));
        }
        match take_out(upper, left_out) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(KeptUpper::Not(NotKept::NoPermission));
            }
            other => other.map_err(host("clean", upper))?,
        }
        let draft = self.begin_layer()?;
        if let Err(error) = move_dir(upper, &draft.path.join("root")) {
            remove_tree(&draft.path).map_err(host("remove", &draft.path))?;
            if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) {
                return Ok(KeptUpper::Not(NotKept::OtherFileSystem));
            }
            return Err(host("move", upper)(error));
        }
        self.publish_layer(draft, below, &tree.tree, size)?;
        Ok(KeptUpper::Layer)
    }
}

/// Renames a directory. Moving a directory to another parent needs write permission on the directory itself (it updates
/// `..`), so a read-only one is made writable for the rename.
fn move_dir(from: &Path, to: &Path) -> io::Result<()> {
    let fd = rustix::fs::open(from, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, 0.into())?;
    let stat = beneath::fstat(fd.as_fd())?;
    let closed = stat.mode & 0o200 == 0;
    if closed {
        make::set_mode(fd.as_fd(), stat.mode | 0o200)?;
    }
    let moved = std::fs::rename(from, to);
    if closed {
        make::set_mode(fd.as_fd(), stat.mode)?;
    }
    moved
}

/// Removes paths that are not in the version from an upper, preserving the mtimes of its directories.
fn take_out(upper: &Path, left_out: &[LeftOut]) -> io::Result<()> {
    if left_out.is_empty() {
        return Ok(());
    }
    let root = beneath::open_root(upper)?;
    for left in left_out {
        let Some((parent, name)) = left.path.split() else { continue };
        let dir = beneath::open(root.as_fd(), parent.as_bytes(), DIR)?;
        let mtime = beneath::fstat(dir.as_fd())?.mtime;
        match unlinkat(&dir, OsStr::from_bytes(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => {
                // Through the descriptor: the full path may exceed PATH_MAX.
                let mut path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
                path.push(OsStr::from_bytes(name));
                remove_tree(&path)?;
            }
            Err(errno) => return Err(errno.into()),
        }
        if left.base_is_gone {
            overlay::whiteout(dir.as_fd(), name)?;
        }
        make::set_mtime(dir.as_fd(), mtime)?;
    }
    Ok(())
}
