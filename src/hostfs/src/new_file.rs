//! A file that is complete before it gets its name: written under another name in the same directory, then renamed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};

use crate::beneath;
use crate::held::FileId;
use crate::remove::remove_same;

/// A new file. Dropping it removes it.
#[derive(Debug)]
pub struct NewFile {
    dir: OwnedFd,
    name: Vec<u8>,
    id: FileId,
    file: File,
    is_placed: bool,
}

impl NewFile {
    /// Creates an empty file that can be read and written; fails if the name exists.
    pub fn create(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = beneath::create(dir, name, flags, Mode::from_raw_mode(mode))?;
        let (dir, id) = (dir.try_clone_to_owned()?, FileId::of(&file)?);
        Ok(Self { dir, name: name.to_vec(), id, file: file.into(), is_placed: false })
    }

    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Renames it to `name`, over an existing file.
    pub fn place(mut self, name: &[u8]) -> io::Result<()> {
        avfs_types::pause::point("publish");
        self.id.require_at(self.dir.as_fd(), &self.name)?;
        rustix::fs::renameat(&self.dir, OsStr::from_bytes(&self.name), &self.dir, OsStr::from_bytes(name))?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_placed {
            // A leftover does no harm; the error that led here counts.
            let _ = remove_same(self.dir.as_fd(), &self.name, self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::beneath::open_root;

    #[test]
    fn only_the_same_file_is_renamed_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let fd = open_root(dir.path()).unwrap();
        let new = || NewFile::create(fd.as_fd(), b"new", 0o600).unwrap();
        let written = new();
        written.file().write_all(b"text").unwrap();
        assert!(NewFile::create(fd.as_fd(), b"new", 0o600).is_err());
        written.place(b"file").unwrap();
        assert_eq!(std::fs::read(at("file")).unwrap(), b"text");
        drop(new());
        assert!(!at("new").exists());
        for is_renamed in [true, false] {
            let replaced = new();
            std::fs::rename(at("new"), at("moved")).unwrap();
            std::fs::write(at("new"), "other").unwrap();
            match is_renamed {
                true => assert!(replaced.place(b"file").is_err()),
                false => drop(replaced),
            }
            assert_eq!(std::fs::read(at("file")).unwrap(), b"text");
            assert_eq!(std::fs::read(at("new")).unwrap(), b"other");
            std::fs::remove_file(at("new")).unwrap();
        }
    }
}
