//! Why the host refused an operation, as far as avfs distinguishes the causes.

use std::io::{Error, ErrorKind};

use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    NotFound,
    Exists,
    NotADirectory,
    /// A symlink at a place where none may be followed.
    Link,
    NoPermission,
    ReadOnly,
    DiskFull,
    /// The disk or the file system failed for this file; other files may be fine.
    Unreadable,
    Other,
}

impl Cause {
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::LOOP) => return Self::Link,
            // A bad sector, a damaged inode, a mismatched checksum, an encrypted file without its key.
            Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG | Errno::NOKEY) => return Self::Unreadable,
            Some(_) | None => {}
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "the set of error kinds is open")]
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::AlreadyExists => Self::Exists,
            ErrorKind::NotADirectory => Self::NotADirectory,
            ErrorKind::PermissionDenied => Self::NoPermission,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Other,
        }
    }
}
