//! The result of a request.

use std::time::Duration;

use avfs_changes::{ChangeReport, ChangeSummary, RunsOnHost};
use avfs_request::{ClockHeld, Confined, EnforcedLimit, LimitKind, NetMode, RefusedCall};
use avfs_types::clock::Timestamp;
use avfs_types::ids::{CheckpointName, ForkName, RunId, VersionId};
use avfs_types::path::TreePath;
use avfs_types::words;
use avfs_vault::capture::LeftOut;
use avfs_vault::run::Landed;

use crate::launcher::{Connections, Exit, OutsideWrites, Usage};
use crate::output::Output;
use crate::result_cache::CacheUse;
use crate::scratch_size::Scratch;

use super::state::{ProxyExecutionState, Stage};

words!(
    /// How the workspace was made writable.
    Backend, "backend", {
        Overlay = "overlay",
        Copy = "copy",
    }
);

words!(
    /// The base that the run used.
    BaseUsed, "base", {
        /// The host directory itself.
        Live = "live",
        /// The host directory itself; only the touched paths are recorded.
        Touched = "touched",
        /// Existing layers.
        Reused = "reused",
        /// A layer that was written for the run, over an existing one.
        Layered = "layered",
        /// A whole directory that was written for the run.
        Materialized = "materialized",
    }
);

/// The duration of each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    pub resolve: Duration,
    pub mount: Duration,
    pub execute: Duration,
    pub capture: Duration,
    pub commit: Duration,
}

/// Information for the caller that is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Stable: part of the JSON contract.
    pub code: &'static str,
    pub text: String,
    pub remedy: Option<Remedy>,
}

impl Note {
    #[must_use]
    pub fn new(code: &'static str, text: String) -> Self {
        Self { code, text, remedy: None }
    }

    /// Names the `avfs` command that resolves the noted condition.
    #[must_use]
    pub fn with_remedy(self, purpose: &'static str, arguments: String) -> Self {
        Self { remedy: Some(Remedy { purpose, arguments }), ..self }
    }
}

/// An `avfs` command at the end of a note. It needs `--vault` if the user gave it, which only the edge knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The words before the command: "merge its changes with".
    pub purpose: &'static str,
    /// The words after `avfs`.
    pub arguments: String,
}

/// What a run has noted so far, in the order in which it happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Vec<Note>);

impl Notes {
    pub fn add(&mut self, code: &'static str, text: impl Into<String>) {
        self.push(Note::new(code, text.into()));
    }

    pub fn push(&mut self, note: Note) {
        self.0.push(note);
    }

    pub fn extend(&mut self, notes: impl IntoIterator<Item = Note>) {
        self.0.extend(notes);
    }

    pub fn followed_by(&self, later: &Self) -> Self {
        Self(self.0.iter().chain(&later.0).cloned().collect())
    }

    pub fn has(&self, code: &str) -> bool {
        self.0.iter().any(|note| note.code == code)
    }

    pub fn into_list(self) -> Vec<Note> {
        self.0
    }
}

/// The isolation that was actually enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforcement {
    pub backend: Backend,
    pub confined: Confined,
    pub limits: Vec<EnforcedLimit>,
    pub net: NetMode,
    /// How far the fixed clock was effective.
    pub clock: Option<ClockHeld>,
    pub base: BaseUsed,
    pub scratch: Scratch,
    /// Requested features that were not available.
    pub degraded: Vec<String>,
}

/// A run that was executed.
#[derive(Clone, Debug)]
pub struct ExecutionResult {
    pub run_id: RunId,
    /// The fork with the changes; `None` if nothing changed.
    pub fork: Option<ForkName>,
    pub version_before: Option<VersionId>,
    pub version_after: Option<VersionId>,
    pub checkpoint_before: Option<CheckpointName>,
    pub checkpoint_after: Option<CheckpointName>,
    pub exit: Exit,
    pub timed_out: bool,
    /// The limit for which it was stopped.
    pub stopped_by: Option<LimitKind>,
    pub started_at: Timestamp,
    pub duration: Duration,
    /// `None` if it was not captured.
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    pub changes: ChangeSummary,
    /// The changes as text, in the requested form.
    pub change_report: Option<ChangeReport>,
    pub left_out: Vec<LeftOut>,
    /// The paths in the workspace that persist between runs. Each run leaves them out.
    pub caches: Vec<TreePath>,
    pub landed: Landed,
    /// True if the command was classified read-only but changed files.
    pub classification_violated: bool,
    /// Changed paths that tools on the host execute once they are applied.
    pub runs_on_host: Vec<RunsOnHost>,
    pub connections: Connections,
    pub refused_calls: Vec<RefusedCall>,
    /// Files the command left in its private home and in /tmp, which are removed with the sandbox.
    pub outside_writes: OutsideWrites,
    /// True if the vault is bound to a directory, to which the changes can be applied.
    pub is_bound: bool,
    /// Number of paths written to the host directory.
    pub applied: Option<u64>,
    /// When changes kept for review are dropped, unless they are applied before.
    pub kept_until: Option<Timestamp>,
    pub usage: Usage,
    pub phases: Phases,
    pub notes: Vec<Note>,
    /// `None` if nothing was executed.
    pub enforcement: Option<Enforcement>,
    /// `None` if the cache was not requested.
    pub cache: Option<CacheUse>,
}

impl Stage for ExecutionResult {
    const STATE: ProxyExecutionState = ProxyExecutionState::Completed;
}
