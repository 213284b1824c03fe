//! Errors that prevent changes from being applied.

use std::borrow::Cow;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};

use avfs_hostfs::cause::Cause;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::{VaultError, transfer};

use super::inherited::Inherited;
use crate::repository::BlockedRepository;

/// A path whose state on the host is not the one the changes expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub path: TreePath,
    pub reason: Cow<'static, str>,
}

/// What an unapply of several applies had reverted before it met a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reverted {
    Nothing,
    /// The directory was changed during the unapply.
    NewerApplies,
}

impl Display for Reverted {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing was reverted",
            Self::NewerApplies => "only newer applies were reverted",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{}; nothing was written: {}", conflict_in(dir, conflicts, inherited), list(conflicts))]
    Conflict {
        dir: PathBuf,
        conflicts: Vec<Conflict>,
        /// The version with the changes.
        version: VersionId,
        /// The repository that the conflicts block.
        repository: Option<Box<BlockedRepository>>,
        /// The changes that the directory lacks and that cause conflicts. Their numbers count the conflicts.
        inherited: Vec<Inherited>,
    },
    #[error("{} changed since the apply; {reverted}: {}", dir.display(), list(conflicts))]
    ChangedSince { dir: PathBuf, conflicts: Vec<Conflict>, reverted: Reverted },
    #[error("no changes of {what} are applied to the directory")]
    NotApplied { what: String },
    #[error("cannot read the record of the applied changes")]
    Unreadable,
    #[error("no changes of any run are applied to the directory")]
    NothingApplied,
    #[error(
        "the changes of fork {fork} can no longer be reverted: the versions were deleted after the apply expired"
    )]
    Expired { fork: ForkName },
    #[error("no permission to change {path}; nothing was written")]
    NoPermission { path: TreePath },
    #[error("cannot preserve the {what} of {path}; nothing was written")]
    Owner { what: &'static str, path: TreePath },
    #[error("{path} is on a different file system than the directory; nothing was written")]
    OtherFileSystem { path: TreePath },
    #[error("invalid pattern {pattern:?}: {detail}")]
    BadPattern { pattern: String, detail: String },
    #[error("{} is a symbolic link; nothing is written through it", link.display())]
    Symlink {
        link: PathBuf,
        /// The directory without symlinks.
        real: PathBuf,
    },
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
    #[error("interrupted before anything was written to the directory")]
    Interrupted,
    #[error(transparent)]
    Vault(#[from] transfer::Error),
}

impl From<VaultError> for ApplyError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.into())
    }
}

fn conflict_in(dir: &Path, conflicts: &[Conflict], inherited: &[Inherited]) -> String {
    let caused: u64 = inherited.iter().map(|of| of.changes).sum();
    match caused >= conflicts.len() as u64 {
        true => format!("{} lacks the changes that these are based on", dir.display()),
        false => format!("conflict with newer changes in {}", dir.display()),
    }
}

fn list(conflicts: &[Conflict]) -> String {
    let texts: Vec<String> =
        conflicts.iter().map(|conflict| format!("{} ({})", conflict.path, conflict.reason)).collect();
    texts.join(", ")
}

impl ApplyError {
    /// The error for the conflicts of these changes, which make `version`.
    pub(super) fn conflict(
        dir: &Path,
        conflicts: Vec<Conflict>,
        version: VersionId,
        changes: &Changes,
    ) -> Self {
        let paths: Vec<&TreePath> = conflicts.iter().map(|conflict| &conflict.path).collect();
        match BlockedRepository::find(&paths, changes) {
            Ok(repository) => {
                let (dir, repository) = (dir.to_owned(), repository.map(Box::new));
                let inherited = Vec::new();
                Self::Conflict { dir, conflicts, version, repository, inherited }
            }
            Err(error) => error.into(),
        }
    }

    /// The error of an apply that has written nothing yet.
    pub(super) fn before_writes(self) -> Self {
        let is_interrupted = matches!(self, Self::Vault(transfer::Error::Vault(VaultError::Interrupted)));
        if is_interrupted { Self::Interrupted } else { self }
    }

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
            Self::Expired { .. } => "unapply.expired",
            Self::Unreadable => "unapply.unreadable",
            Self::NoPermission { .. } => "apply.no_permission",
            Self::Owner { .. } => "apply.owner",
            Self::OtherFileSystem { .. } => "apply.other_file_system",
            Self::BadPattern { .. } => "apply.bad_pattern",
            Self::Symlink { .. } => "apply.symlink",
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
            Self::Interrupted => "interrupted",
            Self::Vault(error) => error.code(),
        }
    }
}
