//! Errors of the store itself, divided by what the user can do about them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_hostfs::cause::Cause;
use avfs_hostfs::lock::LockError;
use avfs_types::diagnose::Diagnose;

/// Why the store of a vault cannot be used. Implements [`Diagnose`]: each variant has a code.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The file does not exist.
    #[error("there is no vault at {}", path.display())]
    NotFound {
        /// The vault file.
        path: PathBuf,
    },
    /// A file already exists at the path for a new vault.
    #[error("a vault already exists at {}", path.display())]
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
    /// The SQLite schema has a table, view or trigger that avfs did not create.
    #[error("the vault {} contains {name:?}, which avfs did not create", path.display())]
    ForeignObject {
        /// The vault file.
        path: PathBuf,
        /// The name of the object in the SQLite schema.
        name: String,
    },
    /// The file has a newer format than this program supports.
    #[error("{} was created by a newer avfs (vault format {found}; this one supports up to {known})", path.display())]
    Newer {
        /// The vault file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that this program can read.
        known: i64,
    },
    /// The file is damaged. `avfs fsck` reports the extent.
    #[error("the vault {} is damaged: {detail}", path.display())]
    Corrupt {
        /// The vault file.
        path: PathBuf,
        /// The damage, as described by SQLite or by the check.
        detail: String,
    },
    /// The write-ahead log is damaged, so the vault shows the state of an earlier commit.
    #[error("the write-ahead log of {} is damaged: it lost {rollback}", path.display())]
    RolledBack {
        /// The vault file.
        path: PathBuf,
        /// The lost commits.
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
    /// The directory for a new vault cannot be created or written.
    #[error("cannot create or write the directory {}", dir.display())]
    NoPlace {
        /// The directory.
        dir: PathBuf,
        /// The deepest existing ancestor of the directory, which refuses the write.
        at: PathBuf,
        /// The error from the kernel.
        #[source]
        source: std::io::Error,
    },
    /// Other processes kept the vault locked for longer than the patience of
    /// [`sqlite::OpenOptions`](super::sqlite::OpenOptions).
    #[error("the vault {} is busy: other processes kept it locked for {waited_s} s", path.display())]
    Busy {
        /// The vault file.
        path: PathBuf,
        /// Seconds waited.
        waited_s: u64,
    },
    /// The vault changed while it was being read without locks.
    #[error("the vault {} changed while it was being read", path.display())]
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
    #[error("the file system of {} does not support file locks", path.display())]
    LocksUnsupported {
        /// The vault file.
        path: PathBuf,
    },
    /// The file has several hard links, so its lock would not exclude all other processes.
    #[error("the vault {} has more than one hard link", path.display())]
    Linked {
        /// The vault file.
        path: PathBuf,
    },
    /// A rollback journal is next to the file, which SQLite would play back into it.
    #[error("the vault {} is not used: {} would overwrite parts of it, and avfs did not write it", path.display(),
        journal.display())]
    Journal {
        /// The vault file.
        path: PathBuf,
        /// The journal.
        journal: PathBuf,
    },
    /// Any other failure of the file system.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The attempted operation, such as `open`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error from the kernel.
        #[source]
        source: std::io::Error,
    },
    /// Any other failure of SQLite.
    #[error("SQLite cannot use {}", path.display())]
    Sqlite {
        /// The vault file.
        path: PathBuf,
        /// The error from SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// A failure injected by a test; see [`fault`](super::fault).
    #[error("a failure was injected into {operation}")]
    Injected {
        /// The attempted operation, such as `open`.
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
            Self::Journal { .. } => "vault.unsafe",
            Self::Io { .. } => "vault.io",
            Self::Sqlite { .. } => "vault.sqlite",
            Self::Injected { .. } => "vault.injected",
        }
    }
}

impl BackendError {
    /// Converts a file system error, into a specific variant where its cause has one.
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

    /// Sets the time waited, if this is [`BackendError::Busy`].
    pub(crate) fn after(mut self, patience: Duration) -> Self {
        if let Self::Busy { waited_s, .. } = &mut self {
            *waited_s = patience.as_secs();
        }
        self
    }

    /// The error for a directory that refuses a new vault.
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
                // The vault itself is gone, or no file can be created next to it.
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

/// The path that denied access: the lock file, or the vault's directory if the lock file does not exist.
fn refusing(vault: &Path, lock: &Path) -> PathBuf {
    let place = vault.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if lock.symlink_metadata().is_ok() { lock.to_owned() } else { place.to_owned() }
}
