//! The `result` of `avfs record`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A recording: a named range of runs in the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordingObject {
    /// The name of the recording.
    pub name: String,
    /// The fork whose runs are recorded; null for all forks.
    pub fork: Option<String>,
    /// Whether runs are still added.
    pub open: bool,
    /// The `seq` of the last run before the recording started.
    pub after_run: i64,
    /// The `seq` of its last run; null while it is open.
    pub last_run: Option<i64>,
    /// When it started, RFC 3339 in UTC.
    pub started_at: String,
    /// When it was stopped; null while it is open.
    pub stopped_at: Option<String>,
}

/// The result of `avfs record start` and `avfs record delete`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordOne {
    /// The recording.
    pub recording: RecordingObject,
}

/// The result of `avfs record stop`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordStop {
    /// The recording, which is no longer open.
    pub recording: RecordingObject,
    /// The number of runs in it, including those that a list leaves out.
    pub runs: u64,
}

/// The result of `avfs record list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordList {
    /// All recordings of the vault.
    pub recordings: Vec<RecordingObject>,
}

/// The result of `avfs record export`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordExport {
    /// The file that was written; null without one.
    pub output: Option<String>,
    /// The lines of the list, the header first; null if a file was written.
    pub list: Option<Vec<Value>>,
    /// Items of the list.
    pub items: u64,
    /// The number of runs that are not in the list, by reason: their state, or `unreadable`.
    pub left_out: BTreeMap<String, u64>,
    /// Items without digests, because their versions no longer exist.
    pub without_versions: u64,
    /// Items whose command was stored with a credential removed.
    pub redacted: u64,
}
