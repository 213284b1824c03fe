//! Removes a directory tree owned by the caller, regardless of modes and depth.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, chmodat, fchmod, unlinkat};

use crate::beneath;
use crate::beneath::DIR;

/// Removes everything at `path`; a missing path is not an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    avfs_types::pause::point("remove-tree");
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Directories without owner permissions, or nested deeper than the limit on open files, need the slow
        // method.
        Err(_) if path.symlink_metadata()?.is_dir() => {
            remove_patiently(path)?;
            std::fs::remove_dir(path)
        }
        other => other,
    }
}

/// Removes the file `name`; a missing file is not an error.
pub fn remove_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match unlinkat(dir, OsStr::from_bytes(name), AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes the directory `name` if it is empty; returns false if it is not.
pub fn remove_empty_dir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    match unlinkat(dir, OsStr::from_bytes(name), AtFlags::REMOVEDIR) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(true),
        Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Empties a directory with at most two open descriptors, adding missing permissions.
fn remove_patiently(path: &Path) -> io::Result<()> {
    let owner_only = Mode::from_raw_mode(0o700);
    chmodat(rustix::fs::CWD, path, owner_only, AtFlags::empty())?;
    let root = beneath::open_root(path)?;
    // Parents before children; they are removed in reverse order.
    let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
    let mut next = 0;
    while next < dirs.len() {
        let dir = open_up(root.as_fd(), &dirs[next])?;
        for listed in beneath::names(dir.as_fd())? {
            match unlinkat(&dir, OsStr::from_bytes(&listed.name), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(rustix::io::Errno::ISDIR) => {
                    let slash: &[u8] = if dirs[next].is_empty() { b"" } else { b"/" };
                    dirs.push([&dirs[next], slash, &listed.name].concat());
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        next += 1;
    }
    for dir in dirs[1..].iter().rev() {
        let (parent, name) = split(dir);
        let parent = beneath::open(root.as_fd(), parent, DIR)?;
        unlinkat(&parent, OsStr::from_bytes(name), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Opens a directory after giving its owner all permissions; its parent must have them already.
fn open_up(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let owner_only = Mode::from_raw_mode(0o700);
    let opened = beneath::open(root, path, DIR).or_else(|closed| {
        if closed.kind() != io::ErrorKind::PermissionDenied {
            return Err(closed);
        }
        let (parent, name) = split(path);
        // It is known to be a directory in the caller's own tree, so it is not a symlink.
        chmodat(beneath::open(root, parent, DIR)?, OsStr::from_bytes(name), owner_only, AtFlags::empty())?;
        beneath::open(root, path, DIR)
    })?;
    fchmod(&opened, owner_only)?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn closed_directories_are_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(tree.join("a/b/f"), "x").unwrap();
        for closed in ["a/b", "a"] {
            std::fs::set_permissions(tree.join(closed), std::fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }
}
