//! Versions, forks, checkpoints and audit rows on the wire.

use schemars::JsonSchema;
use serde::Serialize;

use serde_json::Value;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VersionObject {
    pub id: String,
    /// Digest of the tree, times included.
    pub root: String,
    /// Digest of the tree without modification times: equal for equal content.
    pub content: String,
    pub parents: Vec<String>,
    pub run: Option<String>,
    pub message: String,
    pub author: String,
    pub at: String,
    pub at_ns: i64,
    pub entries: u64,
    pub bytes: u64,
    /// Set when the files were given up by a prune.
    pub pruned_at: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LifeName {
    Persistent,
    Ephemeral,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ForkObject {
    pub name: String,
    pub head: String,
    /// The version it began at.
    pub base: String,
    /// The fork that version was taken from.
    pub parent: Option<String>,
    pub created_at: String,
    pub life: LifeName,
    pub expires_at: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckpointObject {
    pub fork: String,
    pub name: String,
    pub version: String,
    /// Made by a run, not by hand: a prune may take it.
    pub automatic: bool,
    pub message: String,
    pub at: String,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RunStateName {
    Completed,
    Failed,
    Interrupted,
    Recoverable,
    Denied,
    ApprovalRequired,
}

/// A row of the journal.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunObject {
    pub seq: i64,
    pub id: String,
    /// Where its changes went.
    pub fork: String,
    pub state: RunStateName,
    pub version_before: Option<String>,
    /// Nothing if it changed nothing.
    pub version_after: Option<String>,
    pub started_at: String,
    pub ended_at: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub applied_at: Option<String>,
    pub discarded_at: Option<String>,
    /// The run whose result was taken for it.
    pub cached_from: Option<String>,
    /// As the request has it: a list of words, or one string for a shell.
    pub command: Value,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditRow {
    pub seq: i64,
    pub at: String,
    pub at_ns: i64,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub before: Option<String>,
    pub after: Option<String>,
    pub detail: String,
    pub digest: String,
}

/// One line of `avfs audit export`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditLine {
    #[serde(flatten)]
    pub row: AuditRow,
    /// The digest of the row before, which this row's covers; zeros for the first.
    pub previous: String,
}
