//! What keeps changes from being applied.

use std::path::{Path, PathBuf};

use avfs_hostfs::cause::Cause;
use avfs_types::diagnose::Diagnose;
use avfs_types::path::TreePath;
use avfs_vault::VaultError;

/// A path that is not as the changes expect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub path: TreePath,
    pub reason: &'static str,
}

impl Conflict {
    /// True for a path inside a git repository's own directory.
    #[must_use]
    pub fn is_in_repository(&self) -> bool {
        self.path.as_bytes().split(|byte| *byte == b'/').any(|part| part == b".git")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{} changed since the run began, so nothing was written: {}", dir.display(), list(conflicts))]
    Conflict { dir: PathBuf, conflicts: Vec<Conflict> },
    #[error("{} changed since, so nothing was taken out of it: {}", dir.display(), list(conflicts))]
    ChangedSince { dir: PathBuf, conflicts: Vec<Conflict> },
    #[error("nothing of {what} is in the directory")]
    NotApplied { what: String },
    #[error("the record of what was applied cannot be read")]
    Unreadable,
    #[error("nothing that a run changed is in the directory")]
    NothingApplied,
    #[error("no permission to change {path}; nothing was written")]
    NoPermission { path: TreePath },
    #[error("the {what} of {path} cannot be kept; nothing was written")]
    Owner { what: &'static str, path: TreePath },
    #[error("{path} lies on another file system than the directory; nothing was written")]
    OtherFileSystem { path: TreePath },
    #[error("{pattern:?} is not a pattern: {detail}")]
    BadPattern { pattern: String, detail: String },
    #[error("cannot {operation} {}", path.display())]
    Dir {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot {operation} {path}")]
    Io {
        operation: &'static str,
        path: TreePath,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Vault(#[from] VaultError),
}

fn list(conflicts: &[Conflict]) -> String {
    let told: Vec<String> =
        conflicts.iter().map(|conflict| format!("{} ({})", conflict.path, conflict.reason)).collect();
    told.join(", ")
}

impl ApplyError {
    pub(super) fn dir(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Dir { operation, path, source }
    }

    pub(super) fn io(operation: &'static str, path: &TreePath) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.clone();
        move |source| Self::Io { operation, path, source }
    }
}

impl Diagnose for ApplyError {
    fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "apply.conflict",
            Self::ChangedSince { .. } => "unapply.conflict",
            Self::NotApplied { .. } | Self::NothingApplied => "unapply.nothing",
            Self::Unreadable => "unapply.unreadable",
            Self::NoPermission { .. } => "apply.no_permission",
            Self::Owner { .. } => "apply.owner",
            Self::OtherFileSystem { .. } => "apply.other_file_system",
            Self::BadPattern { .. } => "apply.bad_pattern",
            Self::Dir { source, .. } => match Cause::of(source) {
                Cause::NotFound | Cause::NotADirectory => "apply.no_directory",
                Cause::NoPermission => "apply.no_permission",
                Cause::Exists
                | Cause::Link
                | Cause::ReadOnly
                | Cause::DiskFull
                | Cause::Unreadable
                | Cause::Other => "apply.io",
            },
            Self::Io { .. } => "apply.io",
            Self::Vault(error) => error.code(),
        }
    }
}
