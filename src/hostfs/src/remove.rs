//! Removes a directory tree owned by the caller, regardless of modes and depth.
//!
//! A tree is emptied through its descriptor. Its name is removed only if it still refers to the same directory, so that
//! a directory that another process puts in its place keeps its files.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};
use rustix::io::Errno;

use crate::beneath::DIR;
use crate::held::FileId;
use crate::stat::HostKind;
use crate::{beneath, make};

/// The permissions of its owner that a directory needs to be emptied.
const OWNER_ALL: u32 = 0o700;
/// How often entries can vanish while a tree is emptied, because another process removes it too.
const TRIES_MAX: u32 = 1000;
/// Files that are removed between two questions whether to go on.
const FILES_PER_LOOK: usize = 256;

/// Removes everything at `path`; a missing path is not an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (above, name) =
        (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or(OsStr::new(".")));
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    match beneath::open_root(above) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => remove_tree_in(opened?.as_fd(), name.as_bytes()),
    }
}

/// How much of a tree was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    All,
    InPart,
}

/// Like [`remove_tree`], while `goes_on`.
pub fn remove_tree_while(path: &Path, goes_on: &dyn Fn() -> bool) -> io::Result<Removed> {
    let tree = match beneath::open_root(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Removed::All),
        opened => opened?,
    };
    match empty(tree.as_fd(), goes_on)? {
        Removed::All => remove_tree(path).map(|()| Removed::All),
        Removed::InPart => Ok(Removed::InPart),
    }
}

/// Removes the directory `name`, or the symlink, but no other file; a missing one is not an error.
pub fn remove_tree_in(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match open_up(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) if beneath::stat(dir, name).is_ok_and(|stat| stat.kind == HostKind::Symlink) => {
            remove_file(dir, name)
        }
        opened => remove_open_tree(dir, name, opened?.as_fd()),
    }
}

/// Removes an open directory with all entries. Fails, once it is empty, if `name` in `dir` is another file.
pub fn remove_open_tree(dir: BorrowedFd<'_>, name: &[u8], tree: BorrowedFd<'_>) -> io::Result<()> {
    avfs_types::pause::point("remove-tree");
    let id = FileId::of(tree)?;
    for _ in 0..TRIES_MAX {
        match empty(tree, &|| true) {
            // Another process removes the same tree.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            emptied => {
                emptied?;
                break;
            }
        }
        if is_missing(dir, name) {
            return Ok(());
        }
    }
    match id.require_at(dir, name) {
        Err(_) if is_missing(dir, name) => Ok(()),
        same => same.and_then(|()| remove_empty(dir, name)),
    }
}

fn is_missing(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    beneath::stat(dir, name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn remove_empty(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match unlinkat(dir, OsStr::from_bytes(name), AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Removes the file `name`; a missing file is not an error.
pub fn remove_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match unlinkat(dir, OsStr::from_bytes(name), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes the file or the directory tree `name` if it is this one.
pub fn remove_same(dir: BorrowedFd<'_>, name: &[u8], id: FileId) -> io::Result<()> {
    if !id.is_at(dir, name)? {
        return Ok(());
    }
    match unlinkat(dir, OsStr::from_bytes(name), AtFlags::empty()) {
        Err(Errno::ISDIR) => {
            let tree = open_up(dir, name)?;
            if FileId::of(&tree)? == id { remove_open_tree(dir, name, tree.as_fd()) } else { Ok(()) }
        }
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Removes the directory `name` if it is empty; returns false if it is not.
pub fn remove_empty_dir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    match unlinkat(dir, OsStr::from_bytes(name), AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// A directory on the way from the tree to the one that is being emptied.
struct Level {
    name: Vec<u8>,
    id: FileId,
    /// The directories in it that are still to be removed.
    dirs: Vec<Vec<u8>>,
}

impl Level {
    /// Removes the files of a directory, and lists its directories.
    fn of(name: Vec<u8>, dir: BorrowedFd<'_>, goes_on: &dyn Fn() -> bool) -> io::Result<Self> {
        let mut dirs = Vec::new();
        for (place, listed) in beneath::names(dir)?.into_iter().enumerate() {
            if place % FILES_PER_LOOK == FILES_PER_LOOK - 1 && !goes_on() {
                break;
            }
            if listed.is_dir == Some(true) {
                dirs.push(listed.name);
                continue;
            }
            match unlinkat(dir, OsStr::from_bytes(&listed.name), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => dirs.push(listed.name),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Self { name, id: FileId::of(dir)?, dirs })
    }
}

/// Empties a directory with at most three open descriptors. The way back up is `..`, which must be the directory that
/// was left: a directory may have been moved meanwhile.
fn empty(tree: BorrowedFd<'_>, goes_on: &dyn Fn() -> bool) -> io::Result<Removed> {
    give_owner_all(tree)?;
    // Another open file description, because listing a directory moves its offset.
    let mut at = beneath::open(tree, b"", DIR)?;
    let mut levels = vec![Level::of(Vec::new(), at.as_fd(), goes_on)?];
    while let Some(level) = levels.last_mut() {
        if !goes_on() {
            return Ok(Removed::InPart);
        }
        if let Some(name) = level.dirs.pop() {
            let inner = match open_up(at.as_fd(), &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            levels.push(Level::of(name, inner.as_fd(), goes_on)?);
            at = inner;
            continue;
        }
        let Some(Level { name, id, .. }) = levels.pop() else { break };
        let Some(above) = levels.last() else { break };
        at = rustix::fs::openat(&at, "..", DIR | OFlags::CLOEXEC, Mode::empty())?;
        if FileId::of(&at)? != above.id {
            return Err(io::Error::other("a directory was moved while it was removed"));
        }
        if id.is_at(at.as_fd(), &name)? {
            remove_empty(at.as_fd(), &name)?;
        }
    }
    Ok(Removed::All)
}

/// Opens a directory after giving its owner all permissions.
fn open_up(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let opened = beneath::open(dir, name, DIR).or_else(|closed| {
        if closed.kind() != io::ErrorKind::PermissionDenied {
            return Err(closed);
        }
        let handle = beneath::open(dir, name, OFlags::PATH | OFlags::DIRECTORY)?;
        give_owner_all(handle.as_fd())?;
        beneath::open(handle.as_fd(), b"", DIR)
    })?;
    give_owner_all(opened.as_fd())?;
    Ok(opened)
}

fn give_owner_all(dir: BorrowedFd<'_>) -> io::Result<()> {
    let mode = beneath::fstat(dir)?.mode;
    if mode & OWNER_ALL == OWNER_ALL { Ok(()) } else { make::set_mode(dir, mode | OWNER_ALL) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn closed_directories_are_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(tree.join("a/b/f"), "x").unwrap();
        for closed in ["a/b", "a", ""] {
            std::fs::set_permissions(tree.join(closed), std::fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
        remove_tree(&tree.join("no/such")).unwrap();
    }

    #[test]
    fn only_the_opened_directory_is_emptied_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("tree/sub")).unwrap();
        std::fs::create_dir_all(at("victim/sub")).unwrap();
        symlink("../victim", at("tree/link")).unwrap();
        let above = beneath::open_root(dir.path()).unwrap();
        let tree = beneath::open(above.as_fd(), b"tree", DIR).unwrap();
        std::fs::rename(at("tree"), at("moved")).unwrap();
        for name in ["victim", "tree"] {
            if name == "tree" {
                symlink("victim", at("tree")).unwrap();
            }
            assert!(remove_open_tree(above.as_fd(), name.as_bytes(), tree.as_fd()).is_err());
            assert!(at("victim/sub").exists());
        }
        assert_eq!(std::fs::read_dir(at("moved")).unwrap().count(), 0);
        // A symlink is removed itself.
        remove_tree(&at("tree")).unwrap();
        assert!(!at("tree").is_symlink() && at("victim/sub").exists());
        remove_open_tree(above.as_fd(), b"moved", tree.as_fd()).unwrap();
        assert!(!at("moved").exists());
    }

    #[test]
    fn several_processes_can_remove_the_same_tree() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        for _ in 0..5 {
            for number in 0..100 {
                std::fs::create_dir_all(tree.join(format!("{}/{number}/deep/er", number % 10))).unwrap();
            }
            std::thread::scope(|scope| {
                let removing: Vec<_> = (0..4).map(|_| scope.spawn(|| remove_tree(&tree))).collect();
                removing.into_iter().for_each(|removed| removed.join().unwrap().unwrap());
            });
            assert!(!tree.exists());
        }
    }

    #[test]
    fn a_file_is_no_tree() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(remove_tree(&file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert!(file.exists());
    }
}
