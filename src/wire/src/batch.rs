//! The JSON of a batch: a line for each item, and the `result` of the verb.

use serde::{Deserialize, Serialize};

use avfs_types::Word;

use crate::{NoteObject, Recorded};

/// The outcome of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// It exited with status 0.
    Succeeded,
    /// It exited with another status, was killed, timed out, or could not be executed.
    Failed,
    /// The policy denied it.
    Denied,
    /// It could not run, or its changes could not be kept, for a reason other than the command itself.
    Error,
    /// An item that it needs did not succeed.
    LeftOut,
    /// The batch ended before the item started.
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

/// One line of `--results`: an item and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchItemResult {
    /// The number of the item in the list, from 1.
    pub item: u64,
    /// The id of the item, from the list.
    pub id: String,
    /// The command on one line.
    pub command: String,
    /// How the item ended.
    pub state: ItemState,
    /// The item did not run: a cached result was used.
    #[serde(default)]
    pub cached: bool,
    /// The exit status; null if the command was killed or never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// The command was killed at its timeout.
    #[serde(default)]
    pub timed_out: bool,
    /// The number of times that the item ran.
    pub attempts: u32,
    /// The run of the last attempt; null if the item never ran.
    pub run_id: Option<String>,
    /// The fork with its changes; null if it changed nothing.
    pub fork: Option<String>,
    /// The version after the item: the one it made, or the one it started from.
    pub version: Option<String>,
    /// Wall-clock time of all attempts in milliseconds.
    pub duration_ms: f64,
    /// The end of standard output. Null for an item that was already done when the batch was resumed.
    pub stdout: Option<String>,
    /// The end of standard error; null as for `stdout`.
    pub stderr: Option<String>,
    /// The approval that it needs, if it was not run for that reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Why the item did not succeed, if the exit status does not show it.
    pub reason: Option<String>,
    /// A stable code; never renamed.
    pub code: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Rules that would allow a denied item if added to your own policy.toml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_rule: Option<String>,
    /// The first notes of its run, if the item failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteObject>,
}

impl BatchItemResult {
    /// The outcome in a few words.
    #[must_use]
    pub fn ending(&self) -> String {
        match (self.state, self.exit_code, self.signal) {
            (ItemState::Succeeded, ..) if self.cached => "cached".to_owned(),
            (ItemState::Failed, ..) if self.timed_out => "timed out".to_owned(),
            (ItemState::Failed, _, Some(signal)) => format!("killed by signal {signal}"),
            (ItemState::Failed, Some(code), None) => format!("exit code {code}"),
            (state, ..) => match &self.reason {
                // The reason already says that it was denied.
                Some(reason) if state == ItemState::Denied => reason.clone(),
                Some(reason) => format!("{}: {reason}", state.word()),
                None => state.word().to_owned(),
            },
        }
    }
}

/// The number of items by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchCounts {
    /// Items of the list.
    pub items: u64,
    /// Items that exited with status 0.
    pub succeeded: u64,
    /// Items among the successful ones that did not run.
    pub cached: u64,
    /// Items whose command failed.
    pub failed: u64,
    /// Items that the policy denied.
    pub denied: u64,
    /// Items that could not run, or whose changes could not be kept.
    pub error: u64,
    /// Items that were skipped because an item they need did not succeed.
    pub left_out: u64,
    /// Items that did not start.
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

    /// True if every item succeeded.
    #[must_use]
    pub fn all_succeeded(&self) -> bool {
        self.succeeded == self.items
    }
}

/// The result of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Batch {
    /// The id of the batch: 10 hex digits.
    pub batch_id: String,
    /// `chain`, `fan-out` or `needs`.
    pub mode: Word,
    /// The version that its first items started from.
    pub base: String,
    /// The fork of a chain.
    pub fork: Option<String>,
    /// The number of items by outcome.
    pub counts: BatchCounts,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
    /// Items that were already done when this batch was resumed.
    pub resumed: u64,
    /// Why the batch ended early; resuming it may help.
    pub stopped: Option<String>,
    /// The first items that did not succeed.
    pub unsuccessful: Vec<BatchItemResult>,
    /// Notes about the options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteObject>,
}

/// The result of `avfs batch`: the batch that ran, or with `--list` all batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum BatchAnswer {
    /// A batch was run.
    Ran(Box<Batch>),
    /// The batches of the vault were listed.
    Listed(BatchList),
}

/// The batches of a vault.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchList {
    /// Newest first.
    pub batches: Vec<BatchObject>,
}

/// A batch in the vault.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchObject {
    /// The id of the batch: 10 hex digits.
    pub id: String,
    /// When it started, RFC 3339 in UTC.
    pub started_at: String,
    /// When it ended; null while items are left to run.
    pub ended_at: Option<String>,
    /// The digest of its list.
    pub list: String,
    /// The version that its first items started from.
    pub base: String,
    /// The settings with which it runs.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub plan: Recorded<BatchPlan>,
}

/// The settings of a batch, as the vault stores them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchPlan {
    /// `chain`, `fan-out` or `needs`.
    pub mode: String,
    /// The fork of a chain.
    pub fork: Option<String>,
    /// The number of items.
    pub items: u64,
    /// The list, as the user named it.
    pub list: String,
}
