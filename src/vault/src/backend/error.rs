//! What can go wrong with the store itself, told by what a person can do about it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_hostfs::cause::Cause;
use avfs_hostfs::lock::LockError;
use avfs_types::diagnose::Diagnose;

/// Why the store of a vault cannot be used. Implements [`Diagnose`]: each variant has a code.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// There is no file.
    #[error("there is no vault at {}", path.display())]
    NotFound {
        /// The vault file.
        path: PathBuf,
    },
    /// There is a file where a vault was to be created.
    #[error("there is a vault at {} already", path.display())]
    Exists {
        /// The vault file.
        path: PathBuf,
    },
    /// The file is not a vault.
    #[error("{} is not an avfs vault", path.display())]
    Foreign {
        /// The vault file.
        path: PathBuf,
    },
    /// The SQLite schema has a table, view or trigger that avfs did not make.
    #[error("the vault {} contains {name:?}, which no avfs made", path.display())]
    ForeignObject {
        /// The vault file.
        path: PathBuf,
        /// The name of the object in the SQLite schema.
        name: String,
    },
    /// The file has a newer format than this program knows.
    #[error("{} was made by a newer avfs (vault format {found}; this one knows up to {known})", path.display())]
    Newer {
        /// The vault file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that this program reads.
        known: i64,
    },
    /// The file is damaged. `avfs fsck` says how far.
    #[error("the vault {} is damaged: {detail}", path.display())]
    Corrupt {
        /// The vault file.
        path: PathBuf,
        /// What is wrong, in the words of SQLite or of the check.
        detail: String,
    },
    /// The log is damaged, and the vault that of an earlier commit.
    #[error("the log of {} is damaged: it lost {rollback}", path.display())]
    RolledBack {
        /// The vault file.
        path: PathBuf,
        /// What was lost.
        rollback: Box<super::Rollback>,
    },
    /// The file, or its file system, is read-only.
    #[error("the vault {} is read-only", path.display())]
    ReadOnly {
        /// The vault file.
        path: PathBuf,
    },
    /// The user may not read or write the file.
    #[error("no permission to use {}", path.display())]
    NoPermission {
        /// The vault file.
        path: PathBuf,
    },
    /// The directory for a new vault cannot be made.
    #[error("the directory {} cannot be made or written", dir.display())]
    NoPlace {
        /// The directory.
        dir: PathBuf,
        /// What of it is there, and refuses.
        at: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// Other processes kept the vault locked for longer than the patience of
    /// [`sqlite::OpenOptions`](super::sqlite::OpenOptions).
    #[error("the vault {} is busy: other processes held it for {waited_s} s", path.display())]
    Busy {
        /// The vault file.
        path: PathBuf,
        /// Seconds that were waited.
        waited_s: u64,
    },
    /// The vault changed while it was being read without locks.
    #[error("the vault {} was written while it was read", path.display())]
    Unsteady {
        /// The vault file.
        path: PathBuf,
    },
    /// The file system is full.
    #[error("no space left for the vault {}", path.display())]
    DiskFull {
        /// The vault file.
        path: PathBuf,
    },
    /// The file system does not support file locks.
    #[error("the file system of {} has no file locks", path.display())]
    LocksUnsupported {
        /// The vault file.
        path: PathBuf,
    },
    /// The file has several hard links, so that its lock would not exclude everybody.
    #[error("the vault {} has another name too, by a hard link", path.display())]
    Linked {
        /// The vault file.
        path: PathBuf,
    },
    /// Any other failure of the file system.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was attempted, such as `open`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// Any other failure of SQLite.
    #[error("SQLite cannot use {}", path.display())]
    Sqlite {
        /// The vault file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// A failure that a test asked for, see [`fault`](super::fault).
    #[error("a failure was injected into {operation}")]
    Injected {
        /// What was attempted, such as `open`.
        operation: &'static str,
    },
}

impl Diagnose for BackendError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "vault.not_found",
            Self::Exists { .. } => "vault.exists",
            Self::Foreign { .. } => "vault.foreign",
            Self::ForeignObject { .. } => "vault.foreign_object",
            Self::Newer { .. } => "vault.newer",
            Self::Corrupt { .. } => "vault.corrupt",
            Self::RolledBack { .. } => "vault.rolled_back",
            Self::ReadOnly { .. } => "vault.read_only",
            Self::NoPermission { .. } => "vault.no_permission",
            Self::NoPlace { source, .. } => match Cause::of(source) {
                Cause::NoPermission => "vault.no_permission",
                Cause::ReadOnly => "vault.read_only",
                Cause::DiskFull => "vault.disk_full",
                Cause::NotFound
                | Cause::Exists
                | Cause::NotADirectory
                | Cause::Link
                | Cause::Unreadable
                | Cause::Other => "vault.io",
            },
            Self::Busy { .. } | Self::Unsteady { .. } => "vault.busy",
            Self::DiskFull { .. } => "vault.disk_full",
            Self::LocksUnsupported { .. } => "vault.locks_unsupported",
            Self::Linked { .. } => "vault.linked",
            Self::Io { .. } => "vault.io",
            Self::Sqlite { .. } => "vault.sqlite",
            Self::Injected { .. } => "vault.injected",
        }
    }
}

impl BackendError {
    /// An error of the file system, with a variant of its own where its cause has one.
    pub fn io(operation: &'static str, path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match Cause::of(&source) {
            Cause::NotFound => Self::NotFound { path },
            Cause::Exists => Self::Exists { path },
            Cause::NoPermission => Self::NoPermission { path },
            Cause::ReadOnly => Self::ReadOnly { path },
            Cause::DiskFull => Self::DiskFull { path },
            Cause::NotADirectory | Cause::Link | Cause::Unreadable | Cause::Other => {
                Self::Io { operation, path, source }
            }
        }
    }

    /// This, told by who has waited for so long.
    pub(crate) fn after(mut self, patience: Duration) -> Self {
        if let Self::Busy { waited_s, .. } = &mut self {
            *waited_s = patience.as_secs();
        }
        self
    }

    /// The directory a vault shall lie in refuses it.
    pub fn no_place(dir: &Path, source: std::io::Error) -> Self {
        if Cause::of(&source) == Cause::DiskFull {
            return Self::DiskFull { path: dir.to_owned() };
        }
        let at = dir.ancestors().find(|at| at.symlink_metadata().is_ok()).unwrap_or(dir).to_owned();
        Self::NoPlace { dir: dir.to_owned(), at, source }
    }

    pub(crate) fn lock(path: &Path, error: LockError) -> Self {
        match error {
            LockError::TimedOut(waited) => Self::Busy { path: path.to_owned(), waited_s: waited.as_secs() },
            LockError::Unsupported(_) => Self::LocksUnsupported { path: path.to_owned() },
            LockError::Open { path: lock, source } => match Cause::of(&source) {
                // The vault itself is gone, or can have no files beside it.
                Cause::NotFound | Cause::ReadOnly | Cause::DiskFull => Self::io("open", path, source),
                Cause::NoPermission => Self::NoPermission { path: refusing(path, &lock) },
                Cause::Exists | Cause::NotADirectory | Cause::Link | Cause::Unreadable | Cause::Other => {
                    Self::Io { operation: "open", path: lock, source }
                }
            },
            LockError::Lock(source) => Self::io("lock", path, source),
        }
    }
}

/// The file that keeps somebody out: the lock, or the directory of the vault, which shall have one.
fn refusing(vault: &Path, lock: &Path) -> PathBuf {
    let place = vault.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if lock.symlink_metadata().is_ok() { lock.to_owned() } else { place.to_owned() }
}
