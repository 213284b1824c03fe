//! The input of a worker (`avfs-run --serve`): a request, and the batch item that it is for.

use serde::{Deserialize, Serialize};

use avfs_request::spec::{RunSpec, SpecError, read_json};

use crate::list::said_only;

/// One line that a worker reads from its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkItem {
    /// The request, as for `avfs-run --request`.
    #[serde(serialize_with = "said_only")]
    pub request: RunSpec,
    /// The item of a batch that the request is for; only for a worker that has inherited the lock of the batch. Its
    /// version may not be on disk when the worker answers: the process that sent the work item waits for that before it
    /// acknowledges the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<WorkItemOfBatch>,
    /// Only look up a cached result; the answer is an [`Inspection`] instead of an execution envelope.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub look: bool,
    /// The number of bytes of each output in the answer, from its end; all if absent. If set, output that is not UTF-8
    /// is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<usize>,
}

/// The cached result for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// Null if no result is cached.
    pub found: Option<InspectionHit>,
}

/// A cached result that would be used; digests in hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectionHit {
    /// The run that made the result.
    pub run_id: String,
    /// The exit status of that run.
    pub exit_code: i32,
    /// BLAKE3 of standard output.
    pub stdout_digest: String,
    /// BLAKE3 of standard error.
    pub stderr_digest: String,
    /// The digest of the tree after the run, including times.
    pub tree: String,
    /// The digest of that tree without modification times.
    pub content: String,
    /// The version with these files; null if the command changed nothing.
    pub version: Option<String>,
}

/// The item of a batch that a work item belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkItemOfBatch {
    /// The id of the batch.
    pub batch: String,
    /// The position of the item in the list, from 0.
    pub number: u64,
}

impl WorkItem {
    /// Parses one line. Fails on invalid JSON, an unknown key, or an unsupported schema version.
    pub fn parse(line: &str) -> Result<Self, SpecError> {
        let order: Self = read_json(line.as_bytes())?;
        order.request.check_version()?;
        Ok(order)
    }
}
