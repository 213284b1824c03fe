//! The `result` of `avfs bisect` and `avfs race`.

use serde::Serialize;
use serde_json::Value;

use crate::answer::ErrorBody;
use crate::records::{RunObject, VersionObject};

/// How one command ended that was run for a verb.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedObject {
    /// The run in the journal; null if there is no such run.
    pub run_id: Option<String>,
    /// The exit status; null if the command was killed or never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// The command was killed at its timeout.
    pub timed_out: bool,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
}

/// The first version of a history that a test fails on.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bisect {
    /// The fork whose history was searched.
    pub fork: String,
    /// Where the test passes, and where it fails.
    pub good: VersionObject,
    /// The newer end of the search, where the test fails.
    pub bad: VersionObject,
    /// How many versions come after `good`, up to `bad`.
    pub versions: u64,
    /// Null if it is one of several `suspects`.
    pub first_bad: Option<VersionObject>,
    /// The run that made it; null if none did.
    pub run: Option<RunObject>,
    /// The versions that may be it, oldest first: more than one where those before the last cannot be tested.
    pub suspects: Vec<VersionObject>,
    /// In the order in which they ended.
    pub probes: Vec<BisectProbe>,
}

/// The test was run on a version.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BisectProbe {
    /// The id of the version.
    pub version: String,
    /// What the test says of the version.
    pub verdict: VerdictName,
    /// How the test ended; its fields are part of this object.
    #[serde(flatten)]
    pub ended: EndedObject,
}

/// The outcome of a test on one version.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictName {
    /// The test exited with 0.
    Good,
    /// The test failed.
    Bad,
    /// The test could not judge the version.
    Skipped,
}

/// Attempts from the same version, and which of them is kept.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Race {
    /// The version that all of them began with.
    pub base: String,
    /// The number of the attempt that won.
    pub winner: Option<u64>,
    /// The fork that has its changes; null if it changed nothing and no name was given.
    pub fork: Option<String>,
    /// What it made: `base` if it changed nothing.
    pub version: Option<String>,
    /// By their numbers.
    pub attempts: Vec<RaceAttempt>,
}

/// One attempt of a race.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RaceAttempt {
    /// From 1; what `AVFS_ATTEMPT` is in it.
    pub attempt: u64,
    /// The command: a list of words, or one string for a shell.
    pub command: Value,
    /// How the attempt ended.
    pub state: AttemptState,
    /// How the command ended; its fields are part of this object.
    #[serde(flatten)]
    pub ended: EndedObject,
    /// Where its changes are kept for review; null if they are not, or if there are none.
    pub fork: Option<String>,
    /// What it made, if that was kept.
    pub version: Option<String>,
    /// The number that the scoring command printed; null without one.
    pub score: Option<f64>,
    /// Why it could not be run, or has no score.
    pub error: Option<ErrorBody>,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// It is the attempt that is kept.
    Won,
}
