//! Why the host refused something, as far as avfs treats it differently.

use std::io::{Error, ErrorKind};

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
    Other,
}

impl Cause {
    #[must_use]
    pub fn of(error: &Error) -> Self {
        if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            return Self::Link;
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
