//! Makes the upper of a run that was captured the top layer of the next one's stack.

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
use crate::Result;
use crate::capture::{LeftOut, WrittenLinks};
use crate::materialize::BaseCache;
use crate::page::DirRef;
use crate::shelf::host;

/// What became of an upper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptUpper {
    /// It is a layer now; nothing is left at its path.
    Layer,
    /// It is still the caller's, to be discarded. The next run's stack is made from the vault.
    Not(NotKept),
}

/// Why an upper was not kept as a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The stack it lay over shows the tree already.
    Unchanged,
    /// There are [`LAYERS_MAX`] already: the next stack has one layer for all of them.
    TooManyLayers,
    /// It does not lie on the cache's file system.
    OtherFileSystem,
    /// What was left out of the capture could not be taken out of it.
    NoPermission,
    /// Names in the layers beneath have content that was written through another name of their file.
    WrittenLinks,
    /// It holds the value of a secret, or attributes that no version has: nothing of it is kept, and the version is made anew
    /// from the vault.
    HoldsMore,
}

impl BaseCache {
    /// Moves an upper that lay over `below`, and was captured as `tree`, into the cache. It must be quiet and
    /// no part of a mount any more. What was left out of the capture is taken out of it first.
    ///
    /// Costs some renames and two small files; nothing is synced, a base is not trusted after a power loss
    /// either.
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

/// Renames a directory. One its owner may not write to cannot be given another parent: it is opened up for
/// that moment.
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

/// Takes what is not in the version out of an upper, leaving the times of its directories as they are.
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
                // By way of the descriptor: the whole path may be longer than the kernel takes.
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
