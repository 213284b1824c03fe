//! The `result` of `avfs bisect` and `avfs race`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::answer::ErrorBody;
use crate::records::{RunObject, VersionObject};

/// How one command ended that was run for a verb.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct EndedObject {
    pub run_id: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub duration_ms: f64,
}

/// The first version of a history that a test fails on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Bisect {
    pub fork: String,
    /// Where the test passes, and where it fails.
    pub good: VersionObject,
    pub bad: VersionObject,
    /// How many versions come after `good`, up to `bad`.
    pub versions: u64,
    /// Nothing if it is one of several `suspects`.
    pub first_bad: Option<VersionObject>,
    /// The run that made it; nothing if none did.
    pub run: Option<RunObject>,
    /// The versions that may be it, oldest first: more than one where those before the last cannot be tested.
    pub suspects: Vec<VersionObject>,
    /// In the order in which they ended.
    pub probes: Vec<BisectProbe>,
}

/// The test was run on a version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BisectProbe {
    pub version: String,
    pub verdict: VerdictName,
    #[serde(flatten)]
    pub ended: EndedObject,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum VerdictName {
    Good,
    Bad,
    Skipped,
}

/// Attempts from the same version, and which of them is kept.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Race {
    /// The version that all of them began with.
    pub base: String,
    /// The number of the attempt that won.
    pub winner: Option<u64>,
    /// The fork that has its changes; nothing if it changed nothing and no name was given.
    pub fork: Option<String>,
    /// What it made: `base` if it changed nothing.
    pub version: Option<String>,
    /// By their numbers.
    pub attempts: Vec<RaceAttempt>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RaceAttempt {
    /// From 1; what `AVFS_ATTEMPT` is in it.
    pub attempt: u64,
    pub command: Value,
    pub state: AttemptState,
    #[serde(flatten)]
    pub ended: EndedObject,
    /// Where its changes are kept for review; nothing if they are not, or if there are none.
    pub fork: Option<String>,
    /// What it made, if that was kept.
    pub version: Option<String>,
    pub score: Option<f64>,
    /// Why it could not be run, or has no score.
    pub error: Option<ErrorBody>,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Somebody had won before its turn came.
    NotBegun,
    /// Somebody had won, so it was ended.
    Stopped,
    /// It could not be run, or was refused.
    NotRun,
    /// It ended with another exit code than 0, by a signal or its deadline.
    Failed,
    /// It exited with 0.
    Succeeded,
    /// It exited with 0, but its score is no number.
    Disqualified,
    Won,
}
