//! The errors of preparing a run, before the engine has it.

use avfs_engine::{ExecuteError, LocateError, TrustError, UnreadableFile};
use avfs_policy::{PolicyError, Verdict};
use avfs_present::hint;
use avfs_request::ResolveError;
use avfs_request::config::SettingsError;
use avfs_types::diagnose::Diagnose;
use avfs_vault::{VaultError, transfer};

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
    Self::Vault(error) => error.hint(avfs),
    Self::Locate(error) => error.hint(avfs),
    Self::Trust(error) => error.hint(avfs),
    Self::Refused(verdict) => verdict.hint.clone(),
    Self::Execute(error) => error.hint(avfs),
});
