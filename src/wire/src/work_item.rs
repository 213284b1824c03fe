//! What a worker (`avfs-run --serve`) is told to do: a request, and what it is for.

use serde::{Deserialize, Serialize};

use avfs_request::spec::{RunSpec, SpecError, read_json};

use crate::list::said_only;

/// One line that a worker reads from its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkItem {
    /// As `avfs-run --request` takes it.
    #[serde(serialize_with = "said_only")]
    pub request: RunSpec,
    /// The item of a batch that it is for. Its version may not be on the disk when the worker answers: whoever gave the
    /// order waits for that before it acknowledges the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<WorkItemOfBatch>,
    /// Only look whether a result is remembered; the answer is [`Inspection`], else it is an execution envelope.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub look: bool,
    /// How many bytes of each output the answer has, from its end; everything if nothing is said. Output that is no text
    /// is left out then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<usize>,
}

/// What is remembered for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// Null if no result is remembered.
    pub found: Option<InspectionHit>,
}

/// A result that would be taken, digests in hex digits.
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
    /// The digest of the tree after the run, times included.
    pub tree: String,
    /// The digest of that tree without modification times.
    pub content: String,
    /// The version with these files; null if the command left what it found.
    pub version: Option<String>,
}

/// The item of a batch that an order belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkItemOfBatch {
    /// The id of the batch.
    pub batch: String,
    /// The item's place in the list, from 0.
    pub number: u64,
}

impl WorkItem {
    /// Reads one line. Fails on invalid JSON, an unknown key, or a schema version that is not supported.
    pub fn parse(line: &str) -> Result<Self, SpecError> {
        let order: Self = read_json(line.as_bytes())?;
        order.request.check_version()?;
        Ok(order)
    }
}
