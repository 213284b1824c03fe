//! How a verb ends early, and the errors of opening a workplace.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use avfs_hostfs::place::PlaceError;
use avfs_present::{Hint, hint};
use avfs_types::diagnose::{Diagnose, shell_word};
use avfs_wire::ErrorBody;

/// Why a verb ended early.
pub enum OpError {
    /// An error with its code, its causes and a hint.
    Error(Box<dyn Hint>),
    /// An error that is already in its wire form, such as the error of a worker.
    Body(ErrorBody),
    /// The receiver of the rows is gone, for example a reader that closed its pipe. Not a failure.
    ReceiverGone,
}

impl<E: Hint + 'static> From<E> for OpError {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error))
    }
}

impl OpError {
    /// The failure of a write to the receiver of an answer.
    #[must_use]
    pub fn of_output(error: std::io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            return Self::ReceiverGone;
        }
        WorkplaceError::Output(error).into()
    }

    /// The code of the error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Error(error) => Some(error.code()),
            Self::Body(body) => Some(&body.code),
            Self::ReceiverGone => None,
        }
    }
}

impl std::fmt::Debug for OpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => {
                write!(f, "{}: {}", error.code(), avfs_types::diagnose::with_causes(&**error))
            }
            Self::Body(body) => write!(f, "{}: {}", body.code, body.message),
            Self::ReceiverGone => f.write_str("the receiver is gone"),
        }
    }
}

/// An error of the client itself: its files, its threads, or a vault that may not be created.
#[derive(Debug, thiserror::Error)]
pub enum WorkplaceError {
    #[error("no vault is created here: {reason}")]
    NoNewVault { reason: String, hint: Option<String> },
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
    #[error("cannot start a thread")]
    Threads(#[source] std::io::Error),
    #[error("cannot write the output")]
    Output(#[source] std::io::Error),
    #[error("cannot {operation} {}", path.display())]
    Host {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write through {}: it is a symbolic link", link.display())]
    Symlink {
        link: PathBuf,
        /// The path of the file without symlinks.
        real: PathBuf,
    },
}

impl WorkplaceError {
    /// The error of an operation on a file of the host.
    pub fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Host { operation, path, source }
    }

    /// The error of finding the place of a file.
    pub fn place(operation: &'static str) -> impl FnOnce(PlaceError) -> Self {
        move |error| match error {
            PlaceError::Link { link, real } => Self::Symlink { link, real },
            PlaceError::Io { path, source } => Self::Host { operation, path, source },
        }
    }
}

impl Diagnose for WorkplaceError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoNewVault { .. } => "policy.denied",
            Self::Signals(_) => "io.signals",
            Self::Threads(_) => "host.threads",
            Self::Output(_) => "io.output",
            Self::Host { source, .. } if source.kind() == ErrorKind::PermissionDenied => "host.no_permission",
            Self::Host { source, .. } if source.kind() == ErrorKind::StorageFull => "host.disk_full",
            Self::Host { .. } => "host.io",
            Self::Symlink { .. } => "host.symlink",
        }
    }
}

hint!(WorkplaceError, |error, _avfs| {
    let hint = match error {
        Self::NoNewVault { hint, .. } => return hint.clone(),
        Self::Threads(_) => "end some processes, or raise the limit on them (ulimit -u); then try again",
        Self::Host { operation, source, .. } => match (source.kind(), *operation) {
            (ErrorKind::PermissionDenied, _) => "choose a writable place",
            (ErrorKind::StorageFull, _) => "free some space, then try again",
            (ErrorKind::NotFound, "read") => "check the spelling, or choose another file",
            (ErrorKind::NotFound, _) => "check the path, or create the directory first",
            (ErrorKind::AlreadyExists | ErrorKind::NotADirectory, _) => {
                "a file exists where a directory is needed: choose another place"
            }
            (_, _) => return None,
        },
        Self::Symlink { real, .. } => {
            return Some(format!("name the real path: {}", shell_word(real.as_os_str())));
        }
        Self::Signals(_) | Self::Output(_) => return None,
    };
    Some(hint.to_owned())
});
