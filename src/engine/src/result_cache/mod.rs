//! The result cache: stores the results of runs and reuses them for equal requests.
//!
//! | file | content |
//! |---|---|
//! | `key.rs` | the named parts that a result depends on |
//! | `inputs.rs` `machine.rs` | the parts on the host: the paths of `--input`, and the system |
//! | `reason.rs` | why a result is not cached, or not found |
//! | `look.rs` | looks up a result; writes nothing |
//! | `recall.rs` | a run with a cached result: its changes land, nothing is executed |
//! | `keep.rs` | caches the result of an executed run |
//! | `changes.rs` | the changes of a run, as edits of other files with the same content |
//!
//! Never starts a process, and never decides whether a request may be run.

mod changes;
mod inputs;
mod keep;
mod key;
mod look;
mod machine;
mod reason;
mod recall;

use std::path::PathBuf;

use avfs_request::CacheMode;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{MemoKey, RunId};
use avfs_vault::{VaultError, transfer};

use crate::workspace_root::WorkspaceRootError;

pub(crate) use keep::memo;
pub use look::{CachedResult, Look, look};
pub use machine::Machine;
pub(crate) use reason::Ending;
pub use reason::{Reason, why_not_remembered};
pub(crate) use recall::{Lookup, Recall, recall};

/// The context of the cache.
pub struct MemoSite<'a> {
    pub machine: &'a Machine,
    /// The umask of commands: it determines the modes of new files.
    pub umask: u32,
    /// How long a result is cached.
    pub expires_seconds: i64,
}

/// How a run used the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheUse {
    pub mode: CacheMode,
    /// `None` for a request whose result cannot be cached.
    pub key: Option<MemoKey>,
    /// The run whose result was used.
    pub from: Option<RunId>,
    /// Why no result was used.
    pub missed: Vec<Reason>,
    /// Why the result is not cached, if that was requested.
    pub not_remembered: Vec<Reason>,
    pub remembered: bool,
}

impl CacheUse {
    fn new(mode: CacheMode) -> Self {
        let (missed, not_remembered) = (Vec::new(), Vec::new());
        Self { mode, key: None, from: None, missed, not_remembered, remembered: false }
    }
}

/// An error while computing the parts of a key.
#[derive(Debug, thiserror::Error)]
pub enum MemoError {
    #[error("cannot read the input {}", path.display())]
    Input {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the input {} is not a file, a directory or a symlink", path.display())]
    OddInput { path: PathBuf },
    #[error(transparent)]
    WorkspaceRoot(#[from] WorkspaceRootError),
    #[error(transparent)]
    Vault(#[from] transfer::Error),
}

impl From<VaultError> for MemoError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.into())
    }
}

impl Diagnose for MemoError {
    fn code(&self) -> &'static str {
        match self {
            Self::Input { .. } => "cache.input_unreadable",
            Self::OddInput { .. } => "cache.input_odd",
            Self::WorkspaceRoot(error) => error.code(),
            Self::Vault(error) => error.code(),
        }
    }
}
