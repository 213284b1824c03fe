//! Text files written by people. A device or a pipe at such a path may never end.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, makedev, openat};
use rustix::io::Errno;

use crate::beneath::{READ, outlast_lease};

/// More than any such file contains.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// `/dev/null`
const NULL: (u32, u32) = (1, 3);

/// Whether a symlink as the last component of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlink {
    Follow,
    Refuse,
}

/// The content of a text file that the user named, of at most 16 MiB.
pub fn read(path: &Path) -> Result<String> {
    read_all(File::open(path)?)
}

/// The content of a text file that was found, of at most 16 MiB.
pub fn read_found(path: &Path) -> Result<String> {
    read_all(open_found(path, Symlink::Follow)?)
}

/// Opens a file that was found, not named: a regular file or `/dev/null`. In a workspace anything can be at its path:
/// a fifo waits for a writer and a terminal for a line, and opening some devices has effects.
pub fn open_found(path: &Path, symlink: Symlink) -> Result<File> {
    let (looked, flags) = match symlink {
        Symlink::Follow => (path.metadata()?, OFlags::empty()),
        Symlink::Refuse => (path.symlink_metadata()?, OFlags::NOFOLLOW),
    };
    check_kind(&looked)?;
    let open = || openat(CWD, path, READ | flags | OFlags::CLOEXEC, Mode::empty());
    let file = File::from(outlast_lease(open)?);
    // It may have been replaced.
    check_kind(&file.metadata()?)?;
    Ok(file)
}

fn check_kind(found: &Metadata) -> Result<()> {
    let kind = found.file_type();
    let is_null = kind.is_char_device() && found.rdev() == makedev(NULL.0, NULL.1);
    match kind.is_file() || is_null {
        true => Ok(()),
        false if kind.is_dir() => Err(Errno::ISDIR.into()),
        false => Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn read_all(file: File) -> Result<String> {
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    match text.len() > TEXT_BYTES_MAX {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {TEXT_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_never_ends_is_refused() {
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/null")).unwrap(), "");
    }

    #[test]
    fn only_regular_files_and_dev_null_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (link, target) in
            [("to-file", "file"), ("to-null", "/dev/null"), ("to-fifo", "fifo"), ("to-zero", "/dev/zero")]
        {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        assert_eq!(read_found(&at("to-file")).unwrap(), "text");
        assert_eq!(read_found(&at("to-null")).unwrap(), "");
        for name in ["fifo", "to-fifo", "to-zero", "socket"] {
            assert_eq!(read_found(&at(name)).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(read_found(dir.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read_found(&at("missing")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(open_found(&at("file"), Symlink::Refuse).is_ok());
        assert!(open_found(&at("to-file"), Symlink::Refuse).is_err());
    }
}
