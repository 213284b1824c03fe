//! Versions, forks, checkpoints and audit rows on the wire.

use schemars::JsonSchema;
use serde::Serialize;

use serde_json::Value;

use crate::backend::{AuditRecord, CheckpointRecord, ForkRecord, Life, RunRecord, RunState, VersionRecord};
use crate::ids::{ForkName, VersionId, to_hex};
use crate::vault::audit_query::Link;

use super::cache::CacheObject;
use super::text::time_text;

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

impl From<&VersionRecord> for VersionObject {
    fn from(version: &VersionRecord) -> Self {
        Self {
            id: version.id.to_hex(),
            root: version.root.to_hex(),
            content: version.content.to_hex(),
            parents: version.parents.iter().map(VersionId::to_hex).collect(),
            run: version.run.clone(),
            message: version.message.clone(),
            author: version.author.clone(),
            at: time_text(version.at),
            at_ns: version.at.0,
            entries: version.entries,
            bytes: version.bytes,
            pruned_at: version.pruned_at.map(time_text),
        }
    }
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

impl From<&ForkRecord> for ForkObject {
    fn from(fork: &ForkRecord) -> Self {
        let (life, expires_at) = match fork.life {
            Life::Persistent => (LifeName::Persistent, None),
            Life::Ephemeral { expires_at } => (LifeName::Ephemeral, Some(time_text(expires_at))),
        };
        Self {
            name: fork.name.to_string(),
            head: fork.head.to_hex(),
            base: fork.base.to_hex(),
            parent: fork.parent.as_ref().map(ForkName::to_string),
            created_at: time_text(fork.created_at),
            life,
            expires_at,
        }
    }
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

impl From<&CheckpointRecord> for CheckpointObject {
    fn from(checkpoint: &CheckpointRecord) -> Self {
        Self {
            fork: checkpoint.fork.to_string(),
            name: checkpoint.name.to_string(),
            version: checkpoint.version.to_hex(),
            automatic: checkpoint.automatic,
            message: checkpoint.message.clone(),
            at: time_text(checkpoint.at),
        }
    }
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

impl From<RunState> for RunStateName {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Completed => Self::Completed,
            RunState::Failed => Self::Failed,
            RunState::Interrupted => Self::Interrupted,
            RunState::Recoverable => Self::Recoverable,
            RunState::Denied => Self::Denied,
            RunState::ApprovalRequired => Self::ApprovalRequired,
        }
    }
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

impl From<&RunRecord> for RunObject {
    fn from(run: &RunRecord) -> Self {
        Self {
            seq: run.seq,
            id: run.id.to_string(),
            fork: run.fork.to_string(),
            state: RunStateName::from(run.state),
            version_before: run.version_before.map(|id| id.to_hex()),
            version_after: run.version_after.map(|id| id.to_hex()),
            started_at: time_text(run.started_at),
            ended_at: run.ended_at.map(time_text),
            exit_code: run.exit_code,
            signal: run.signal,
            applied_at: run.applied_at.map(time_text),
            discarded_at: run.discarded_at.map(time_text),
            cached_from: CacheObject::of_row(run).and_then(|cache| cache.cached_from),
            command: command_of(&run.request),
        }
    }
}

/// What a text of the journal holds; text that somebody else has put there is shown as it is.
#[must_use]
pub fn journal_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The command in the text of a request; null where there is none.
#[must_use]
pub fn command_of(request: &str) -> Value {
    journal_value(request).get_mut("command").map(Value::take).unwrap_or_default()
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

impl From<&Link> for AuditLine {
    fn from(link: &Link) -> Self {
        Self { row: AuditRow::from(&link.row), previous: link.previous.to_hex() }
    }
}

impl From<&AuditRecord> for AuditRow {
    fn from(row: &AuditRecord) -> Self {
        Self {
            seq: row.seq,
            at: time_text(row.at),
            at_ns: row.at.0,
            actor: row.actor.clone(),
            action: row.action.clone(),
            subject: row.subject.clone(),
            before: row.before.map(|digest| to_hex(&digest)),
            after: row.after.map(|digest| to_hex(&digest)),
            detail: row.detail.clone(),
            digest: row.digest.to_hex(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_cannot_be_read_has_no_command() {
        assert_eq!(command_of(r#"{"command":["a"],"x":1}"#), serde_json::json!(["a"]));
        for damaged in ["", r#"{"command":"a","x":dalse}"#, "[]", "7", r#""text""#, "{}"] {
            assert_eq!(command_of(damaged), Value::Null, "{damaged}");
        }
    }
}
