//! Why the host refused something, as far as avfs treats it differently.

use std::io::{Error, ErrorKind};

use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    NotFound,
    Exists,
    NotADirectory,
    /// A symbolic link stood where none may be followed.
    Link,
    NoPermission,
    ReadOnly,
    DiskFull,
    /// The disk or the file system failed at this file; others may be well.
    Unreadable,
    Other,
}

impl Cause {
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::LOOP) => return Self::Link,
            // A bad sector, a damaged inode, a digest that does not match, an encrypted file without its key.
            Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG | Errno::NOKEY) => return Self::Unreadable,
            Some(_) | None => {}
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "the host's list of reasons is open")]
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
