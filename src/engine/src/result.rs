//! What came of a request.

use std::time::Duration;

use avfs_changes::{ChangeReport, ChangeSummary, RunsOnHost};
use avfs_request::{ClockHeld, Confined, EnforcedLimit, LimitKind, NetMode, RefusedCall};
use avfs_types::clock::Timestamp;
use avfs_types::ids::{CheckpointName, ForkName, RunId, VersionId};
use avfs_types::words;
use avfs_vault::capture::LeftOut;
use avfs_vault::run::Landed;

use crate::launcher::{Connections, Exit, OutsideWrites, Usage};
use crate::output::Output;
use crate::result_cache::CacheUse;
use crate::scratch_size::Scratch;

words!(
    /// How the workspace was made writable.
    Backend, "backend", {
        Overlay = "overlay",
        Copy = "copy",
    }
);

words!(
    /// What lay beneath the run.
    BaseUsed, "base", {
        /// The host's directory itself.
        Live = "live",
        /// The host's directory itself, of which only the touched paths are recorded.
        Touched = "touched",
        /// Layers that were there.
        Reused = "reused",
        /// A layer that was written for the run, over one that was there.
        Layered = "layered",
        /// A whole directory that was written for the run.
        Materialized = "materialized",
    }
);

/// How long each part took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    pub resolve: Duration,
    pub mount: Duration,
    pub execute: Duration,
    pub capture: Duration,
    pub commit: Duration,
}

/// Something the caller should know that is no failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Stable: part of the JSON contract.
    pub code: &'static str,
    pub text: String,
}

/// What was really enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforcement {
    pub backend: Backend,
    pub confined: Confined,
    pub limits: Vec<EnforcedLimit>,
    pub net: NetMode,
    /// How far a fixed clock held.
    pub clock: Option<ClockHeld>,
    pub base: BaseUsed,
    pub scratch: Scratch,
    /// Pieces that were asked for and could not be had.
    pub degraded: Vec<String>,
}

/// A run that took place.
#[derive(Clone, Debug)]
pub struct ExecutionResult {
    pub run_id: RunId,
    /// Where the changes are; nothing if there are none.
    pub fork: Option<ForkName>,
    pub version_before: Option<VersionId>,
    pub version_after: Option<VersionId>,
    pub checkpoint_before: Option<CheckpointName>,
    pub checkpoint_after: Option<CheckpointName>,
    pub exit: Exit,
    pub timed_out: bool,
    /// The limit it was ended for.
    pub stopped_by: Option<LimitKind>,
    pub started_at: Timestamp,
    pub duration: Duration,
    /// Nothing where it was not kept.
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    pub changes: ChangeSummary,
    /// The changes as text, in the form that was asked for.
    pub change_report: Option<ChangeReport>,
    pub left_out: Vec<LeftOut>,
    pub landed: Landed,
    /// The command was taken for one that only looks, and it changed files.
    pub classification_violated: bool,
    /// What the host's tools execute once the changes are applied.
    pub runs_on_host: Vec<RunsOnHost>,
    pub connections: Connections,
    pub refused_calls: Vec<RefusedCall>,
    /// What the command left in its private home and in /tmp, which go with the sandbox.
    pub outside_writes: OutsideWrites,
    /// Paths that were written to the host's directory.
    pub applied: Option<u64>,
    /// When changes that were kept for review are dropped, if nobody has applied them by then.
    pub kept_until: Option<Timestamp>,
    pub usage: Usage,
    pub phases: Phases,
    pub notes: Vec<Note>,
    /// Nothing where nothing was run.
    pub enforcement: Option<Enforcement>,
    /// Nothing where the cache was not asked for.
    pub cache: Option<CacheUse>,
}
