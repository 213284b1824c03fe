//! A file of the host that was checked and is used later: kept open, and identified by its device and inode.
//!
//! Its path may refer to another file by then. While the first file is open, no other file gets its inode number.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use rustix::io::Errno;

use crate::beneath;

/// The identity of a file. The default matches no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    /// Allocates nothing, so a cloned process may call this.
    pub fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self::of_stat(&fstat(file)?))
    }

    #[allow(
        clippy::unnecessary_cast,
        clippy::allow_attributes,
        reason = "field widths differ between targets"
    )]
    const fn of_stat(stat: &Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }

    /// Whether `name` in `dir` is this file, and not a symlink to it. Another file can have its inode number if it is
    /// not open and was removed.
    pub fn is_at(self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
        match statat(dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Self::of_stat(&stat) == self),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Fails if `name` in `dir` is not this file.
    pub fn require_at(self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        match self.is_at(dir, name)? {
            true => Ok(()),
            false => Err(replaced(OsStr::from_bytes(name))),
        }
    }

    /// Fails if an open file, found again at `path`, is not this file.
    pub fn require(self, open: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
        match Self::of(open)? == self {
            true => Ok(()),
            false => Err(replaced(OsStr::from_bytes(path))),
        }
    }
}

/// The error for a file whose name has another one now.
#[must_use]
pub fn replaced(path: &OsStr) -> io::Error {
    let path = if path.is_empty() { OsStr::new("the directory") } else { path };
    io::Error::other(format!("{} was moved or replaced by another process", path.display()))
}

/// A file that is kept open, without permission to read or write it (`O_PATH`).
#[derive(Clone, Debug, Default)]
pub struct HeldFile {
    id: FileId,
    is_dir: bool,
    is_regular: bool,
    _open: Option<Arc<OwnedFd>>,
}

impl HeldFile {
    /// Opens a file without following any symlink in the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Self::of(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
    }

    /// Opens a file beneath a directory without following any symlink; the last component may be one.
    pub fn beneath(dir: BorrowedFd<'_>, path: &[u8]) -> io::Result<Self> {
        Self::of(beneath::open(dir, path, OFlags::PATH)?)
    }

    fn of(open: OwnedFd) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(&open)?.st_mode);
        let (is_dir, is_regular) = (kind == FileType::Directory, kind == FileType::RegularFile);
        Ok(Self { id: FileId::of(&open)?, is_dir, is_regular, _open: Some(Arc::new(open)) })
    }

    #[must_use]
    pub const fn id(&self) -> FileId {
        self.id
    }

    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.is_dir
    }

    #[must_use]
    pub const fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Whether a path refers to this file, without any symlink.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        Self::open(path).is_ok_and(|there| there.id == self.id)
    }
}

impl PartialEq for HeldFile {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for HeldFile {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (path, moved) = (root.join("a"), root.join("b"));
        std::fs::create_dir(&path).unwrap();
        let held = HeldFile::open(&path).unwrap();
        assert!(held.is_dir() && held.is_at(&path));
        std::fs::rename(&path, &moved).unwrap();
        assert!(!held.is_at(&path) && held.is_at(&moved));
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        assert!(!held.is_at(&path));
        // Its inode number is not reused while the file is open.
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_dir(&moved).unwrap();
        for name in 0..100 {
            let made = root.join(name.to_string());
            std::fs::create_dir(&made).unwrap();
            assert!(!held.is_at(&made));
        }
        assert!(!HeldFile::default().is_at(&root));
    }
}
