//! What `avfs record` answers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordingObject {
    pub name: String,
    /// The fork whose runs are recorded; nothing for all of them.
    pub fork: Option<String>,
    pub open: bool,
    /// The `seq` of the last run before it began, and of the last before it ended.
    pub after_run: i64,
    pub last_run: Option<i64>,
    pub started_at: String,
    pub stopped_at: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordOne {
    pub recording: RecordingObject,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordStop {
    pub recording: RecordingObject,
    /// How many runs it holds, those that a list leaves out included.
    pub runs: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordList {
    pub recordings: Vec<RecordingObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordExport {
    /// The file that was written.
    pub output: Option<String>,
    /// Without one the lines of the list, the header first.
    pub list: Option<Vec<Value>>,
    pub items: u64,
    /// Runs that are not in the list, by what they are instead: a state, or `unreadable`.
    pub left_out: BTreeMap<String, u64>,
    /// Items without digests, since their versions are gone.
    pub without_versions: u64,
    /// Items whose command was written down without a credential that it had.
    pub redacted: u64,
}
