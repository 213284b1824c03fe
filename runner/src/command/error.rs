//! Everything `avfs-run` can refuse, and the exit code of each.

use std::ffi::OsString;
use std::path::PathBuf;

use avfs_engine::config_files::UnreadableConfig;
use avfs_engine::{ExecuteError, LocateError, TrustError, UnreadablePolicy};
use avfs_policy::{PolicyError, Verdict};
use avfs_request::SecretError;
use avfs_request::config::SettingsError;
use avfs_types::diagnose::Diagnose;
use avfs_types::exit_code;
use avfs_types::ids::NameError;
use avfs_vault::VaultError;

use crate::command::request_file::BadRequest;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("there is no {}", path.display())]
    NoPath { path: PathBuf },
    #[error("{} has '..' in it", path.display())]
    ParentDir { path: PathBuf },
    #[error("{word:?} is neither NAME nor NAME=VALUE")]
    BadEnv { word: OsString },
    #[error("cannot read {}", path.display())]
    EnvFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("line {line} of {} is not NAME=VALUE", path.display())]
    EnvLine { path: PathBuf, line: usize },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    UnreadableConfig(#[from] UnreadableConfig),
    #[error(transparent)]
    Config(#[from] SettingsError),
    #[error(transparent)]
    UnreadablePolicy(#[from] UnreadablePolicy),
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
    Name(#[from] NameError),
    #[error(transparent)]
    Reference(VaultError),
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The rules refuse it before there is a vault to write that down in.
    #[error("denied: {}", .0.reason)]
    Refused(Verdict),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

impl Diagnose for RunError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoPath { .. } => "request.no_path",
            Self::ParentDir { .. } => "request.parent_dir",
            Self::BadEnv { .. } | Self::EnvFile { .. } | Self::EnvLine { .. } => "request.bad_env",
            Self::Secret(error) => error.code(),
            Self::UnreadableConfig(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::UnreadablePolicy(error) => error.code(),
            Self::Policy(error) => error.code(),
            Self::Request(error) => error.code(),
            Self::BadFd { .. } => "request.bad_fd",
            Self::Host { .. } => "run.host",
            Self::Name(error) => error.code(),
            Self::Reference(error) | Self::Vault(error) => error.code(),
            Self::Locate(error) => error.code(),
            Self::Trust(error) => error.code(),
            Self::Refused(_) => "policy.denied",
            Self::Execute(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoPath { .. } | Self::EnvFile { .. } | Self::Host { .. } => None,
            Self::ParentDir { .. } => Some("name the path without it".to_owned()),
            Self::Config(error) => error.hint(),
            Self::UnreadableConfig(error) => error.hint(),
            Self::BadEnv { .. } => Some("pass one on with --env HOME, set one with --env A=b".to_owned()),
            Self::Secret(error) => error.hint(),
            Self::EnvLine { .. } => Some("write one NAME=VALUE on each line".to_owned()),
            Self::UnreadablePolicy(error) => error.hint(),
            Self::Policy(error) => error.hint(),
            Self::Request(error) => error.hint(),
            Self::BadFd { .. } => {
                Some("open it in the shell: avfs-run --json-fd 3 -- cmd 3>result.json".to_owned())
            }
            Self::Name(error) => error.hint(),
            Self::Reference(error) | Self::Vault(error) => error.hint(),
            Self::Locate(error) => error.hint(),
            Self::Trust(error) => error.hint(),
            Self::Refused(verdict) => verdict.hint.clone(),
            Self::Execute(error) => error.hint(),
        }
    }
}

impl RunError {
    /// The exit code of the contract.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Execute(error) => execute_code(error),
            Self::Refused(_) => exit_code::RUN_DENIED,
            Self::NoPath { .. }
            | Self::ParentDir { .. }
            | Self::BadEnv { .. }
            | Self::EnvFile { .. }
            | Self::EnvLine { .. }
            | Self::Secret(_)
            | Self::UnreadableConfig(_)
            | Self::Config(_)
            | Self::UnreadablePolicy(_)
            | Self::Policy(_)
            | Self::Request(_)
            | Self::BadFd { .. }
            | Self::Host { .. }
            | Self::Name(_)
            | Self::Reference(_)
            | Self::Locate(_)
            | Self::Trust(_)
            | Self::Vault(_) => exit_code::RUN_OWN,
        }
    }
}

/// The exit code of a request that came to nothing.
#[must_use]
pub fn execute_code(error: &ExecuteError) -> u8 {
    match error {
        ExecuteError::Launch(error) => error.exit_code,
        ExecuteError::CaptureFailed { .. } | ExecuteError::CaptureLost { .. } => exit_code::RUN_CAPTURE,
        ExecuteError::Request(_)
        | ExecuteError::Ground(_)
        | ExecuteError::Session(_)
        | ExecuteError::Vault(_)
        | ExecuteError::Memo(_)
        | ExecuteError::NotApplied { .. } => exit_code::RUN_OWN,
    }
}
