//! Remembering what came of a run, and taking that for another run like it.
//!
//! | file | has |
//! |---|---|
//! | `key.rs` | what a result depends on, as named parts |
//! | `inputs.rs` `machine.rs` | the parts that lie on the host: what `--input` names, and the system |
//! | `reason.rs` | why a result is not remembered, or not found |
//! | `look.rs` | whether there is one; nothing is written |
//! | `recall.rs` | a run that is a remembered one: its changes land, nothing is executed |
//! | `keep.rs` | what a run that was executed leaves to be remembered |
//! | `changes.rs` | what a run changed, as edits of other files with the same content |
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
use avfs_vault::VaultError;

use crate::workspace_root::GroundError;

pub use look::{CachedResult, Look, look};
pub use machine::Machine;
pub use reason::{Reason, why_not_remembered};

/// What the cache needs to know of where it is.
pub struct MemoSite<'a> {
    pub machine: &'a Machine,
    /// The mask that commands get: it decides the modes of files they make.
    pub umask: u32,
    /// How long a result is remembered.
    pub expires_seconds: i64,
}

/// What the cache had to do with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheUse {
    pub mode: CacheMode,
    /// Nothing for a request that cannot be remembered.
    pub key: Option<MemoKey>,
    /// The run whose result was taken.
    pub from: Option<RunId>,
    /// Why none was.
    pub missed: Vec<Reason>,
    /// Why what came of it is not remembered, where that was asked for.
    pub not_remembered: Vec<Reason>,
    pub remembered: bool,
}

impl CacheUse {
    fn new(mode: CacheMode) -> Self {
        let (missed, not_remembered) = (Vec::new(), Vec::new());
        Self { mode, key: None, from: None, missed, not_remembered, remembered: false }
    }
}

/// What keeps the parts of a key from being known.
#[derive(Debug, thiserror::Error)]
pub enum MemoError {
    #[error("cannot read the input {}", path.display())]
    Input {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the input {} is neither a file, a directory nor a link", path.display())]
    OddInput { path: PathBuf },
    #[error(transparent)]
    Ground(#[from] GroundError),
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl Diagnose for MemoError {
    fn code(&self) -> &'static str {
        match self {
            Self::Input { .. } => "cache.input_unreadable",
            Self::OddInput { .. } => "cache.input_odd",
            Self::Ground(error) => error.code(),
            Self::Vault(error) => error.code(),
        }
    }
}
