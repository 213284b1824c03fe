//! The compact envelope: the output of `avfs-run --json=compact`, for a reader with little room, such as a model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use avfs_types::Word;

use crate::answer::ErrorBody;
use crate::execution::StateName;
use crate::result_object::OmittedObject;

/// The maximum size of a compact envelope, in bytes.
pub const COMPACT_BYTES_MAX: usize = 16 * 1024;

/// A run in brief. Fields that would be null, false or empty are absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactEnvelope {
    /// The version of the JSON; a change of meaning is a new version.
    pub schema_version: u32,
    /// Always `execution.compact`.
    pub kind: Word,
    /// The command ran and exited with status 0, and its changes are kept as requested.
    pub success: bool,
    /// The outcome of the request.
    pub state: StateName,
    /// The id of the run in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The exit status; absent if the command was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that killed the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The command was killed at its timeout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The limit for which the command was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<Word>,
    /// Nothing was executed: a cached result was used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// Wall-clock time of the command in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// The start and the end of standard output; bytes that are not UTF-8 as `\xff`. A line in brackets marks an
    /// omitted part.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// Standard error, in the same form.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// The part of the output that `stdout` lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_omitted: Option<OmittedObject>,
    /// The part of the output that `stderr` lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_omitted: Option<OmittedObject>,
    /// The changes of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<CompactChanges>,
    /// The fork with the changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork: Option<String>,
    /// When changes that are not applied are dropped, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<String>,
    /// Paths written to the bound directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Files that the command left outside of the workspace, which are dropped: totals, and the first paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside_writes: Vec<String>,
    /// Changes that tools on the host execute or read automatically once they are applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_on_host: Vec<String>,
    /// Files that the command left in the workspace but that are not in the version, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Connections that were refused, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_connections: Vec<String>,
    /// Notes for the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The approval that the request waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Rules that would allow a denied request if added to your own policy.toml.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_rule: Option<String>,
    /// Why the request failed or did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CompactError>,
    /// The number of entries that were left off from all lists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_off: u64,
}

/// Changes in brief.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactChanges {
    /// The number of changes of each kind: `added`, `modified` and so on.
    pub counts: BTreeMap<Word, u64>,
    /// The first changes that git does not ignore, as `A src/new.rs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The number of changes that git does not ignore, by directory; only if `paths` does not list them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<CompactDir>,
    /// The paths that git ignores, and `.git` itself, with the number of changes at or below each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<CompactDir>,
}

/// A directory or an ignored path, and the number of changes in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactDir {
    /// The path, `.` for the workspace itself.
    pub path: String,
    /// The number of changes.
    pub changes: u64,
}

/// What failed and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompactError {
    /// A stable code; never renamed.
    pub code: String,
    /// What failed.
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<&ErrorBody> for CompactError {
    fn from(error: &ErrorBody) -> Self {
        Self { code: error.code.clone(), message: error.message.clone(), hint: error.hint.clone() }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
