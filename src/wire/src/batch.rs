//! What is told of a batch: a line for each item, and the `result` of the verb.

use serde::{Deserialize, Serialize};

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// It exited with 0.
    Succeeded,
    /// It exited with something else, was killed, timed out, or could not be executed.
    Failed,
    /// The policy did not let it run.
    Denied,
    /// It could not be run, or what it made could not be kept, for a reason that is not the command's.
    Error,
    /// Something that it needs did not succeed.
    LeftOut,
    /// The batch ended before its turn came.
    NotRun,
}

impl ItemState {
    #[must_use]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Error => "error",
            Self::LeftOut => "left out",
            Self::NotRun => "not run",
        }
    }
}

/// One line of `--results`: an item and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchItemResult {
    /// Its number in the list, from 1.
    pub item: u64,
    /// The id of the item, from the list.
    pub id: String,
    /// The command on one line.
    pub command: String,
    /// How the item ended.
    pub state: ItemState,
    /// It was not run: a remembered result was taken.
    #[serde(default)]
    pub cached: bool,
    /// The exit status; null if the command was killed or never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// The command was killed at its timeout.
    #[serde(default)]
    pub timed_out: bool,
    /// How often it was run.
    pub attempts: u32,
    /// The run of the last attempt; null if the item never ran.
    pub run_id: Option<String>,
    /// Where its changes are; null if it made none.
    pub fork: Option<String>,
    /// What it left: the version it made, or the one it began with.
    pub version: Option<String>,
    /// Wall-clock time of all attempts in milliseconds.
    pub duration_ms: f64,
    /// The end of what it wrote. Null for an item that a batch which was gone on with had done before.
    pub stdout: Option<String>,
    /// The end of what it wrote to standard error; null as for `stdout`.
    pub stderr: Option<String>,
    /// Why it has not succeeded, where its exit code does not say.
    pub reason: Option<String>,
    /// Stable: never renamed.
    pub code: Option<String>,
}

impl BatchItemResult {
    /// How it ended, in a few words.
    #[must_use]
    pub fn ending(&self) -> String {
        match (self.state, self.exit_code, self.signal) {
            (ItemState::Succeeded, ..) if self.cached => "cached".to_owned(),
            (ItemState::Failed, ..) if self.timed_out => "timed out".to_owned(),
            (ItemState::Failed, _, Some(signal)) => format!("killed by signal {signal}"),
            (ItemState::Failed, Some(code), None) => format!("exit code {code}"),
            (state, ..) => match &self.reason {
                // A denial says so itself.
                Some(reason) if state == ItemState::Denied => reason.clone(),
                Some(reason) => format!("{}: {reason}", state.word()),
                None => state.word().to_owned(),
            },
        }
    }
}

/// How many items came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchCounts {
    /// Items of the list.
    pub items: u64,
    /// Items that exited with 0.
    pub succeeded: u64,
    /// Of those that succeeded, how many were not run.
    pub cached: u64,
    /// Items that failed by themselves.
    pub failed: u64,
    /// Items that the policy denied.
    pub denied: u64,
    /// Items that could not be run or whose changes could not be kept.
    pub error: u64,
    /// Items that were skipped because an item they need did not succeed.
    pub left_out: u64,
    /// Items whose turn never came.
    pub not_run: u64,
}

impl BatchCounts {
    /// Counts one more item.
    pub fn add(&mut self, result: &BatchItemResult) {
        self.items += 1;
        self.cached += u64::from(result.cached && result.state == ItemState::Succeeded);
        *match result.state {
            ItemState::Succeeded => &mut self.succeeded,
            ItemState::Failed => &mut self.failed,
            ItemState::Denied => &mut self.denied,
            ItemState::Error => &mut self.error,
            ItemState::LeftOut => &mut self.left_out,
            ItemState::NotRun => &mut self.not_run,
        } += 1;
    }

    /// True if no item failed, was denied, or was left out.
    #[must_use]
    pub fn all_succeeded(&self) -> bool {
        self.succeeded == self.items
    }
}

/// A batch that was run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Batch {
    /// The id of the batch: 10 hex digits.
    pub batch_id: String,
    /// `chain`, `fan-out` or `needs`.
    pub mode: &'static str,
    /// What its first items began from.
    pub base: String,
    /// The fork of a chain.
    pub fork: Option<String>,
    /// How many items ended in which way.
    pub counts: BatchCounts,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
    /// Items that had been done before this batch was gone on with.
    pub resumed: u64,
    /// Why it ended before its end; going on with it may help.
    pub stopped: Option<String>,
    /// The first of those that have not succeeded.
    pub unsuccessful: Vec<BatchItemResult>,
}

/// What `avfs batch` answers: what it ran, or with `--list` what there is.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum BatchAnswer {
    /// A batch was run.
    Ran(Box<Batch>),
    /// The batches of the vault were listed.
    Listed(BatchList),
}

/// The batches of a vault.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchList {
    /// Newest first.
    pub batches: Vec<BatchObject>,
}

/// A batch in the vault.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchObject {
    /// The id of the batch: 10 hex digits.
    pub id: String,
    /// When it started, RFC 3339 in UTC.
    pub started_at: String,
    /// Null as long as something is left to do.
    pub ended_at: Option<String>,
    /// The digest of its list.
    pub list: String,
    /// The version that its first items started from.
    pub base: String,
    /// How it is run.
    pub plan: serde_json::Value,
}
