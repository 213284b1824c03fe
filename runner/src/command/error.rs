//! The errors of `avfs-run`, and the exit code of each.

use avfs_engine::{ExecuteError, LocateError, TrustError};
use avfs_policy::{PolicyError, Verdict};
use avfs_present::hint;
use avfs_request::ResolveError;
use avfs_types::diagnose::Diagnose;
use avfs_types::exit_code;
use avfs_vault::{VaultError, transfer};
use avfs_workplace::RunError as WorkError;

use crate::command::request_file::BadRequest;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Work(#[from] WorkError),
    #[error(transparent)]
    Request(#[from] BadRequest),
    #[error("descriptor {fd} is not open for writing")]
    BadFd { fd: i32 },
}

impl RunError {
    /// The error of an operation of this process.
    pub fn host(operation: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Work(WorkError::Host { operation, source })
    }

    pub fn refused(verdict: Verdict) -> Self {
        Self::Work(WorkError::Refused(verdict))
    }
}

/// Errors that the workplace has a variant for.
macro_rules! of_work {
    ($($error:ty),*) => {
        $(impl From<$error> for RunError {
            fn from(error: $error) -> Self {
                Self::Work(error.into())
            }
        })*
    };
}

of_work!(ResolveError, PolicyError, LocateError, TrustError, VaultError, transfer::Error, ExecuteError);

impl Diagnose for RunError {
    fn code(&self) -> &'static str {
        match self {
            Self::Work(error) => error.code(),
            Self::Request(error) => error.code(),
            Self::BadFd { .. } => "request.bad_fd",
        }
    }
}

hint!(RunError, |error, avfs| match error {
    Self::Work(error) => error.hint(avfs),
    Self::Request(error) => error.hint(avfs),
    Self::BadFd { .. } => {
        Some("open it in the shell: avfs-run --json-fd 3 -- cmd 3>result.json".to_owned())
    }
});

impl RunError {
    /// The exit code documented in docs/CONTRACT.md.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Work(WorkError::Execute(error)) => execute_code(error),
            Self::Work(WorkError::Refused(_)) => exit_code::RUN_DENIED,
            Self::Work(_) | Self::Request(_) | Self::BadFd { .. } => exit_code::RUN_OWN,
        }
    }
}

/// The exit code of a request that failed.
#[must_use]
pub fn execute_code(error: &ExecuteError) -> u8 {
    match error {
        ExecuteError::Launch(error) => error.exit_code,
        ExecuteError::Interrupted { signal }
        | ExecuteError::CaptureInterrupted { signal, .. }
        | ExecuteError::ApplyInterrupted { signal, .. } => {
            exit_code::RUN_SIGNALLED.saturating_add(u8::try_from(*signal).unwrap_or(0))
        }
        ExecuteError::CaptureFailed { .. } | ExecuteError::CaptureLost { .. } => exit_code::RUN_CAPTURE,
        ExecuteError::Request(_)
        | ExecuteError::WorkspaceRoot(_)
        | ExecuteError::Session(_)
        | ExecuteError::Vault(_)
        | ExecuteError::Memo(_)
        | ExecuteError::NotApplied { .. } => exit_code::RUN_OWN,
    }
}
