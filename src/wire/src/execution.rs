//! The execution envelope: what `avfs-run --json` prints, for runs, denials and errors alike.

use schemars::JsonSchema;
use serde::Serialize;

use avfs_request::request_file::SCHEMA_VERSION;
use avfs_request::request_object::RequestObject;

use crate::answer::ErrorBody;
use crate::enforcement_object::EnforcementObject;
use crate::result_object::ResultObject;

/// The whole answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExecutionEnvelope {
    pub schema_version: u32,
    pub kind: &'static str,
    /// The command ran, exited with 0, and its changes are kept as was asked.
    pub success: bool,
    pub state: StateName,
    /// What the journal has it as; nothing if it never came to be a run.
    pub run_id: Option<String>,
    /// Nothing if what was asked for could not be understood.
    pub request: Option<RequestObject>,
    pub decision: Option<DecisionObject>,
    pub result: Option<ResultObject>,
    pub enforcement: Option<EnforcementObject>,
    pub error: Option<ErrorBody>,
    /// The code of what the error came from, where that says more: of `capture.failed`, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_cause: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    Completed,
    Denied,
    ApprovalRequired,
    Failed,
    /// Only with `--dry-run`.
    Planned,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DecisionObject {
    pub action: &'static str,
    pub categories: Vec<String>,
    pub rule: Option<String>,
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// The approval that let the request through, or that it waits for.
    pub approval_id: Option<String>,
}

impl ExecutionEnvelope {
    /// One that could not even be asked for.
    #[must_use]
    pub fn failed(request: Option<RequestObject>, error: ErrorBody) -> Self {
        Self { request, error: Some(error), ..Self::empty(StateName::Failed) }
    }

    /// One that says nothing but its state.
    #[must_use]
    pub fn empty(state: StateName) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "execution",
            success: false,
            state,
            run_id: None,
            request: None,
            decision: None,
            result: None,
            enforcement: None,
            error: None,
            error_cause: None,
        }
    }
}
