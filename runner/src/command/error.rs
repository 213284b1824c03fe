//! The errors of `avfs-run`, and the exit code of each.

use avfs_engine::{ExecuteError, LocateError, TrustError, UnreadableFile};
use avfs_policy::{PolicyError, Verdict};
use avfs_present::hint;
use avfs_request::ResolveError;
use avfs_request::config::SettingsError;
use avfs_types::diagnose::Diagnose;
use avfs_types::exit_code;
use avfs_vault::{VaultError, transfer};

use crate::command::request_file::BadRequest;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Config(#[from] SettingsError),
    #[error(transparent)]
    UnreadableFile(#[from] UnreadableFile),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Request(#[from] BadRequest),
    #[error("descriptor {fd} is not open for writing")]
    BadFd { fd: i32 },
    #[error("cannot {operation}")]
    Host {
        operation: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The policy denies the request before a vault exists to record it in.
    #[error("denied: {}", .0.reason)]
    Refused(Verdict),
    #[error(transparent)]
    Vault(#[from] transfer::Error),
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

impl From<VaultError> for RunError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.into())
    }
}

impl Diagnose for RunError {
    fn code(&self) -> &'static str {
        match self {
            Self::Resolve(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::UnreadableFile(error) => error.code(),
            Self::Policy(error) => error.code(),
            Self::Request(error) => error.code(),
            Self::BadFd { .. } => "request.bad_fd",
            Self::Host { .. } => "run.host",
            Self::Vault(error) => error.code(),
            Self::Locate(error) => error.code(),
            Self::Trust(error) => error.code(),
            Self::Refused(_) => "policy.denied",
            Self::Execute(error) => error.code(),
        }
    }
}

hint!(RunError, |error, avfs| match error {
    Self::Host { .. } => None,
    Self::Resolve(error) => error.hint(avfs),
    Self::Config(error) => error.hint(avfs),
    Self::UnreadableFile(error) => error.hint(avfs),
    Self::Policy(error) => error.hint(avfs),
    Self::Request(error) => error.hint(avfs),
    Self::BadFd { .. } => {
        Some("open it in the shell: avfs-run --json-fd 3 -- cmd 3>result.json".to_owned())
    }
    Self::Vault(error) => error.hint(avfs),
    Self::Locate(error) => error.hint(avfs),
    Self::Trust(error) => error.hint(avfs),
    Self::Refused(verdict) => verdict.hint.clone(),
    Self::Execute(error) => error.hint(avfs),
});

impl RunError {
    /// The exit code documented in docs/CONTRACT.md.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Execute(error) => execute_code(error),
            Self::Refused(_) => exit_code::RUN_DENIED,
            Self::Resolve(_)
            | Self::Config(_)
            | Self::UnreadableFile(_)
            | Self::Policy(_)
            | Self::Request(_)
            | Self::BadFd { .. }
            | Self::Host { .. }
            | Self::Locate(_)
            | Self::Trust(_)
            | Self::Vault(_) => exit_code::RUN_OWN,
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
