//! The disk usage of a directory tree, while other processes write to it.
//!
//! Walks by descriptor and never follows a symlink. Does not recurse on the stack, and keeps two directories open at
//! a time, at any depth of the tree.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, OFlags, RawDir, StatxFlags, statx};
use rustix::io::Errno;

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::DIR;

use super::processes::blocks;

/// The measured usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub bytes: u64,
    /// The number of names: files, directories and whiteouts.
    pub files: u64,
    /// Directories that could not be read: their content is not counted.
    pub closed: u64,
}

/// The limits at which the walk may end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough {
    pub bytes: u64,
    pub files: u64,
}

/// A directory that has not been read yet.
struct Pending {
    parent: Option<Rc<Pending>>,
    name: Vec<u8>,
}

impl Pending {
    fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = Some(self);
        while let Some(pending) = at {
            names.push(pending.name.as_slice());
            at = pending.parent.as_deref();
        }
        names.reverse();
        names.join(&b'/')
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Otherwise a chain of thousands would be dropped recursively.
        let mut parent = self.parent.take();
        while let Some(mut above) = parent.and_then(Rc::into_inner) {
            parent = above.parent.take();
        }
    }
}

/// Measures a tree; `None` if `stop` was set during the walk. Entries that vanish during the walk are not counted.
pub fn measure(root: &OwnedFd, enough: Enough, stop: &AtomicBool) -> Option<Footprint> {
    let mut found = Footprint::default();
    let mut pending: Vec<Option<Rc<Pending>>> = vec![None];
    let mut last = None;
    let mut buffer = Vec::with_capacity(32 << 10);
    while let Some(at) = pending.pop() {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let dir = match open(root, at.as_deref(), last.take()) {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found.closed += 1;
                continue;
            }
            Err(_) => continue,
        };
        let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { break };
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            found.files += 1;
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW | rustix::fs::AtFlags::STATX_DONT_SYNC;
            let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::BLOCKS;
            let kind = match statx(&dir, name, flags, wanted) {
                Ok(stat) => {
                    let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
                    let taken = blocks(i64::try_from(stat.stx_blocks).unwrap_or(i64::MAX));
                    // A file with hard links is divided among its names; the links of a directory do not count.
                    let names = if kind == FileType::Directory { 1 } else { stat.stx_nlink.max(1) };
                    found.bytes = found.bytes.saturating_add(taken / u64::from(names));
                    kind
                }
                Err(Errno::ACCESS) => {
                    found.closed += 1;
                    continue;
                }
                Err(_) => continue,
            };
            if kind == FileType::Directory {
                let parent = at.clone();
                pending.push(Some(Rc::new(Pending { parent, name: name.to_bytes().to_vec() })));
            }
            if found.bytes > enough.bytes || found.files > enough.files {
                return Some(found);
            }
        }
        last = at.map(|at| (at, dir));
    }
    Some(found)
}

/// Whether a path exists beneath a directory.
pub fn is_there(root: &OwnedFd, path: &Path) -> bool {
    beneath::open(root.as_fd(), path.as_os_str().as_bytes(), OFlags::PATH | OFlags::NOFOLLOW).is_ok()
}

/// Opens a directory relative to the previously opened one, if that is its parent: relative to the root, each level
/// would cost as much as all levels above it.
fn open(root: &OwnedFd, at: Option<&Pending>, last: Option<(Rc<Pending>, OwnedFd)>) -> io::Result<OwnedFd> {
    let Some(at) = at else { return beneath::open(root.as_fd(), b"", DIR) };
    match (&at.parent, &last) {
        (Some(parent), Some((above, dir))) if Rc::ptr_eq(parent, above) => {
            beneath::open(dir.as_fd(), &at.name, DIR)
        }
        (Some(_) | None, Some(_) | None) => beneath::open(root.as_fd(), &at.path(), DIR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Enough = Enough { bytes: u64::MAX, files: u64::MAX };

    fn measured(path: &std::path::Path, enough: Enough) -> Footprint {
        measure(&beneath::open_root(path).unwrap(), enough, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn files_links_and_holes_count_by_disk_usage() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/full"), vec![7; 1 << 20]).unwrap();
        std::fs::hard_link(at("a/b/full"), at("again")).unwrap();
        std::fs::File::create(at("holes")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/", at("out")).unwrap();
        let found = measured(dir.path(), NEVER);
        assert_eq!((found.files, found.closed), (6, 0));
        assert!(found.bytes >= 1 << 20 && found.bytes < 2 << 20, "{found:?}");
        let early = measured(dir.path(), Enough { files: 2, ..NEVER });
        assert_eq!(early.files, 3);
    }

    #[test]
    fn any_depth_is_walked() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = beneath::open_root(dir.path()).unwrap();
        // Deeper than any path can name.
        let name = "a-directory-with-a-long-name";
        for _ in 0..200 {
            rustix::fs::mkdirat(&at, name, rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
            at = beneath::open(at.as_fd(), name.as_bytes(), DIR).unwrap();
        }
        assert_eq!(measured(dir.path(), NEVER).files, 200);
        drop(at);
        avfs_hostfs::remove::remove_tree(&dir.path().join(name)).unwrap();
    }

    #[test]
    fn the_walk_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let root = beneath::open_root(dir.path()).unwrap();
        assert_eq!(measure(&root, NEVER, &AtomicBool::new(true)), None);
    }
}
