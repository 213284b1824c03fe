//! What is asked for: one command, on which fork, with what around it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::ids::ForkName;
use crate::vault::version::Reference;

use super::launcher::{NetMode, ProcMode, Streams};
use super::timeout::ExecutionTimeout;
use super::view::{Extra, Profile};
use super::words::words;

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    Argv(Vec<OsString>),
    /// A line for `/bin/sh -c`.
    Shell(OsString),
}

impl CommandLine {
    /// The words that are executed.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        match self {
            Self::Argv(words) => words.clone(),
            Self::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        }
    }

    /// One line for people and messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Argv(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
            Self::Shell(line) => line.to_string_lossy().into_owned(),
        }
    }
}

/// The fork a command works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkChoice {
    /// One of its own, made from the present state of the workspace.
    Ephemeral,
    /// A named one that each run moves on; made from `from` on first use.
    Persistent { name: ForkName, from: Option<Reference> },
}

words!(
    /// What becomes of the changes.
    Retention, "way to keep changes", {
        /// They are kept for somebody to look at.
        Review = "review",
        /// They are written to the host's directory if the command succeeds.
        Apply = "apply",
        /// Nothing is kept but the record.
        Discard = "discard",
    }
);

words!(
    /// Whether the command may write to the workspace.
    Writing, "way to write", {
        Allowed = "allowed",
        Refused = "refused",
    }
);

words!(
    /// What lies beneath an ephemeral run.
    BaseChoice, "base", {
        /// The directory itself where it can, else a copy in the cache.
        Auto = "auto",
        /// The directory itself, read-only.
        Live = "live",
        /// A copy in the cache.
        Cached = "cached",
    }
);

words!(
    /// Where what the command writes goes first.
    ScratchChoice, "scratch", {
        Auto = "auto",
        Memory = "memory",
        Disk = "disk",
    }
);

words!(
    /// How the workspace is made writable.
    BackendChoice, "backend", {
        Auto = "auto",
        Overlay = "overlay",
        Copy = "copy",
    }
);

words!(
    /// When checkpoints are made.
    CheckpointMode, "checkpoint mode", {
        /// After a run that changed something on a persistent fork.
        Auto = "auto",
        /// Before and after every run.
        Always = "always",
        Never = "never",
    }
);

words!(
    /// Whether less isolation than asked for is taken where the host refuses a piece.
    Degradation, "degradation", {
        Refused = "refused",
        Allowed = "allowed",
    }
);

/// One request, complete: nothing else decides what happens.
#[derive(Clone, Debug)]
pub struct ExecutionRequest {
    pub command: CommandLine,
    pub fork: ForkChoice,
    pub retention: Retention,
    pub writing: Writing,
    pub base: BaseChoice,
    pub scratch: ScratchChoice,
    pub backend: BackendChoice,
    pub checkpoint: CheckpointMode,
    pub degradation: Degradation,
    /// Where the workspace is seen inside; its own path if nothing is said.
    pub at: Option<PathBuf>,
    /// Inside; relative to the workspace.
    pub cwd: Option<PathBuf>,
    pub timeout: ExecutionTimeout,
    pub grace: Duration,
    pub net: NetMode,
    pub proc: ProcMode,
    pub profile: Profile,
    pub extras: Vec<Extra>,
    pub environment: super::environment::Environment,
    pub streams: Streams,
}
