//! Errors for which a request was not executed, or its changes were not kept.

use std::path::PathBuf;

use avfs_changes::ApplyError;
use avfs_hostfs::cause::Cause;
use avfs_request::RequestError;
use avfs_types::diagnose::{Diagnose, with_causes};
use avfs_types::ids::RunId;
use avfs_vault::{VaultError, transfer};

use crate::launcher::{Exit, LaunchError};
use crate::mount_session::SessionError;
use crate::result_cache::MemoError;
use crate::workspace_root::WorkspaceRootError;

#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    WorkspaceRoot(#[from] WorkspaceRootError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Vault(#[from] transfer::Error),
    #[error(transparent)]
    Memo(MemoError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("interrupted before the command started")]
    Interrupted { signal: i32 },
    #[error(
        "interrupted before the changes of the command were captured: they are kept in {}", dir.display()
    )]
    CaptureInterrupted { id: RunId, dir: PathBuf, exit: Exit, signal: i32 },
    #[error("the command ended, but its changes could not be captured; they are kept in {}", dir.display())]
    CaptureFailed {
        id: RunId,
        dir: PathBuf,
        exit: Exit,
        #[source]
        source: Box<transfer::Error>,
    },
    #[error("the command ended, but its changes could be neither captured nor kept ({})", with_causes(lost))]
    CaptureLost {
        id: RunId,
        lost: Box<SessionError>,
        #[source]
        source: Box<transfer::Error>,
    },
    #[error("interrupted: the changes of run {id} are kept, but were not written to the directory")]
    ApplyInterrupted { id: RunId, signal: i32 },
    #[error("the changes of run {id} are kept, but were not written to the directory")]
    NotApplied {
        id: RunId,
        #[source]
        source: Box<ApplyError>,
    },
}

impl From<VaultError> for ExecuteError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.into())
    }
}

impl From<MemoError> for ExecuteError {
    fn from(error: MemoError) -> Self {
        match error {
            MemoError::WorkspaceRoot(error) => Self::WorkspaceRoot(error),
            MemoError::Vault(error) => Self::Vault(error),
            error @ (MemoError::Input { .. } | MemoError::OddInput { .. }) => Self::Memo(error),
        }
    }
}

impl ExecuteError {
    /// True if the command did not run, so that no other record of it exists.
    #[must_use]
    pub fn is_of_no_run(&self) -> bool {
        match self {
            Self::Request(_)
            | Self::WorkspaceRoot(_)
            | Self::Session(_)
            | Self::Vault(_)
            | Self::Memo(_)
            | Self::Interrupted { .. }
            | Self::Launch(_) => true,
            Self::CaptureInterrupted { .. }
            | Self::CaptureFailed { .. }
            | Self::CaptureLost { .. }
            | Self::ApplyInterrupted { .. }
            | Self::NotApplied { .. } => false,
        }
    }
}

/// True if a write failed because the disk is full.
#[must_use]
pub fn is_disk_full<E: Diagnose + 'static>(error: &E) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && Cause::of(error) == Cause::DiskFull
        {
            return true;
        }
        cause = error.source();
    }
    error.code() == "vault.disk_full"
}

impl Diagnose for ExecuteError {
    fn code(&self) -> &'static str {
        match self {
            Self::Request(error) => error.code(),
            Self::WorkspaceRoot(error) => error.code(),
            Self::Session(error) => error.code(),
            Self::Vault(error) => error.code(),
            Self::Memo(error) => error.code(),
            Self::Launch(error) => error.code(),
            Self::Interrupted { .. } | Self::CaptureInterrupted { .. } | Self::ApplyInterrupted { .. } => {
                "interrupted"
            }
            Self::CaptureFailed { .. } => "capture.failed",
            Self::CaptureLost { .. } => "capture.lost",
            Self::NotApplied { source, .. } => source.code(),
        }
    }

    fn cause(&self) -> Option<&'static str> {
        match self {
            Self::CaptureFailed { source, .. } | Self::CaptureLost { source, .. } => Some(source.code()),
            Self::Request(_)
            | Self::WorkspaceRoot(_)
            | Self::Session(_)
            | Self::Vault(_)
            | Self::Memo(_)
            | Self::Interrupted { .. }
            | Self::CaptureInterrupted { .. }
            | Self::ApplyInterrupted { .. }
            | Self::Launch(_)
            | Self::NotApplied { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_changes_are_reported_with_all_causes() {
        let source = std::io::Error::other("d/f: No space left on device");
        let lost = SessionError::Host { operation: "copy to", path: "/scratch/upper".into(), source };
        let error: ExecuteError = ExecuteError::CaptureLost {
            id: RunId::parse("0123456789").unwrap(),
            lost: Box::new(lost),
            source: Box::new(VaultError::NotRecording.into()),
        };
        let printed = error.to_string();
        assert!(
            printed.ends_with("(cannot copy to /scratch/upper: d/f: No space left on device)"),
            "{printed}"
        );
    }
}
