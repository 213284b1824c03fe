//! The `result` of `avfs bisect` and `avfs race`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::ErrorBody;
use crate::records::{RunObject, VersionObject};
use crate::result_object::NoteObject;

/// How a command ended that a verb ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

/// The first version in a history for which a test fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bisect {
    /// The fork whose history was searched.
    pub fork: String,
    /// The older end of the search, where the test passes.
    pub good: VersionObject,
    /// The newer end of the search, where the test fails.
    pub bad: VersionObject,
    /// The number of versions after `good`, up to and including `bad`.
    pub versions: u64,
    /// The first version for which the test fails; null if it is one of several `suspects`.
    pub first_bad: Option<VersionObject>,
    /// The run that made that version; null if no run did.
    pub run: Option<RunObject>,
    /// The versions that may be the first bad one, oldest first: several if all but the last of them cannot be tested.
    pub suspects: Vec<VersionObject>,
    /// The tested versions, in the order in which the tests ended.
    pub probes: Vec<BisectProbe>,
}

/// One run of the test on a version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BisectProbe {
    /// The id of the version.
    pub version: String,
    /// The verdict on the version.
    pub verdict: VerdictName,
    /// How the test ended; its fields are part of this object.
    #[serde(flatten)]
    pub ended: EndedObject,
}

/// The outcome of a test on one version.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictName {
    /// The test exited with status 0.
    Good,
    /// The test failed.
    Bad,
    /// The test could not be applied to the version.
    Skipped,
}

/// The result of `avfs race`: attempts from the same version, of which one is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Race {
    /// The version that all attempts started from.
    pub base: String,
    /// The number of the winning attempt; null if no attempt won.
    pub winner: Option<u64>,
    /// The fork with the changes of the winner; null if it changed nothing and no name was given.
    pub fork: Option<String>,
    /// The version that the winner made; `base` if it changed nothing.
    pub version: Option<String>,
    /// The attempts, by number.
    pub attempts: Vec<RaceAttempt>,
}

/// One attempt of a race.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RaceAttempt {
    /// The number of the attempt, from 1; the value of `AVFS_ATTEMPT` in it.
    pub attempt: u64,
    /// The command: a list of words, or one string for a shell.
    pub command: Value,
    /// How the attempt ended.
    pub state: AttemptState,
    /// How the command ended; its fields are part of this object.
    #[serde(flatten)]
    pub ended: EndedObject,
    /// The fork that keeps its changes for review; null if they are not kept or nothing changed.
    pub fork: Option<String>,
    /// The version that it made, if the changes are kept.
    pub version: Option<String>,
    /// The number that the scoring command printed; null without a scoring command.
    pub score: Option<f64>,
    /// Why it could not run, or has no score.
    pub error: Option<ErrorBody>,
    /// The first notes of its run, if the attempt failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteObject>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Another attempt won before this one started.
    NotBegun,
    /// It was stopped because another attempt won.
    Stopped,
    /// It could not run, or was refused.
    NotRun,
    /// It ended with an exit status other than 0, by a signal, or by its timeout.
    Failed,
    /// It exited with status 0.
    Succeeded,
    /// It exited with status 0, but its score is not a number.
    Disqualified,
    /// It won: its changes are kept.
    Won,
}
