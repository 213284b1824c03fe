//! JSON forms of versions, forks, checkpoints and audit rows.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use serde_json::Value;

use avfs_request::spec::CommandText;

/// A version of the workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionObject {
    /// The digest of the version's record, in hex digits.
    pub id: String,
    /// The digest of the tree, including times.
    pub root: String,
    /// The digest of the tree without modification times: equal for equal content.
    pub content: String,
    /// The ids of its parents; the first is the version it replaced on its fork.
    pub parents: Vec<String>,
    /// The run that made it; null if no run did.
    pub run: Option<String>,
    /// The message of the version.
    pub message: String,
    /// The user who made it.
    pub author: String,
    /// When it was made, RFC 3339 in UTC.
    pub at: String,
    /// When it was made, in nanoseconds since 1970.
    pub at_ns: i64,
    /// Entries of the tree.
    pub entries: u64,
    /// Bytes of all files, counting each hard link.
    pub bytes: u64,
    /// When a prune removed its files; null if it did not.
    pub pruned_at: Option<String>,
    /// True if it holds only the paths that a run with `--base touched` changed; left out otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// How long a fork lives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LifeName {
    /// Until it is deleted.
    Persistent,
    /// Until it expires.
    Ephemeral,
}

/// A fork.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkObject {
    /// The name of the fork.
    pub name: String,
    /// The version at its head.
    pub head: String,
    /// The version that it started from.
    pub base: String,
    /// The fork that this version was taken from.
    pub parent: Option<String>,
    /// When it was created, RFC 3339 in UTC.
    pub created_at: String,
    /// How long it lives.
    pub life: LifeName,
    /// When a gc removes it; null for a persistent fork.
    pub expires_at: Option<String>,
}

/// A checkpoint: a label that pins a version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointObject {
    /// The fork that it belongs to.
    pub fork: String,
    /// The name of the checkpoint, unique in its fork.
    pub name: String,
    /// The id of the version that it pins.
    pub version: String,
    /// Saved by a run, not by hand: a prune may remove it.
    pub automatic: bool,
    /// The message of the checkpoint.
    pub message: String,
    /// When it was saved, RFC 3339 in UTC.
    pub at: String,
}

/// The state of a run in the journal.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStateName {
    /// The command ended.
    Completed,
    /// avfs could not run the command, or could not keep its changes.
    Failed,
    /// avfs died before the run ended.
    Interrupted,
    /// The command ended, but its changes are not in the vault yet: `avfs recover` captures them.
    Recoverable,
    /// The policy denied the run.
    Denied,
    /// The request waits for a person.
    ApprovalRequired,
}

impl RunStateName {
    /// The word in the journal.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Recoverable => "recoverable",
            Self::Denied => "denied",
            Self::ApprovalRequired => "approval_required",
        }
    }
}

/// A row of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunObject {
    /// The position in the journal; later runs have larger numbers.
    pub seq: i64,
    /// The id of the run: 10 hex digits.
    pub id: String,
    /// The fork with its changes.
    pub fork: String,
    /// The state of the run.
    pub state: RunStateName,
    /// The version that it started from; null if it did not start.
    pub version_before: Option<String>,
    /// The version after the run; null if it changed nothing.
    pub version_after: Option<String>,
    /// When it started, RFC 3339 in UTC.
    pub started_at: String,
    /// When it ended, RFC 3339 in UTC.
    pub ended_at: Option<String>,
    /// The exit status; null if the command was killed or never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// When its changes were applied to the directory; null if they were not.
    pub applied_at: Option<String>,
    /// The state of its changes in the bound directory: `applied`, `partly_applied` or `unapplied`; null if they were
    /// never written. Only in the output of `avfs runs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_directory: Option<String>,
    /// Whether its version was undone on its fork, and not redone. Only in the output of `avfs runs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone: Option<bool>,
    /// When its changes were discarded; null if they were not.
    pub discarded_at: Option<String>,
    /// The run whose cached result was used.
    pub cached_from: Option<String>,
    /// The command of the request: a list of words, or one string for a shell.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub command: Option<CommandText>,
}

/// A row of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditRow {
    /// The number of the row, from 1.
    pub seq: i64,
    /// When it was written, RFC 3339 in UTC.
    pub at: String,
    /// When it was written, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The user who acted.
    pub actor: String,
    /// The action, such as `fork.create`.
    pub action: String,
    /// The object of the action, such as the name of a fork.
    pub subject: String,
    /// The state before, such as the id of a version.
    pub before: Option<String>,
    /// The state after.
    pub after: Option<String>,
    /// Details in words; may be empty.
    pub detail: String,
    /// The digest of this row, which covers the row before it.
    pub digest: String,
}

/// One line of `avfs audit export`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditLine {
    /// The row; its fields are part of this object.
    #[serde(flatten)]
    pub row: AuditRow,
    /// The digest of the row before, which the digest of this row covers; zeros for the first row.
    pub previous: String,
}
