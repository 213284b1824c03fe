//! The execution envelope: what `avfs-run --json` prints, for runs, denials and errors alike.

use serde::Serialize;

use avfs_request::spec::RequestObject;
use avfs_request::spec::SCHEMA_VERSION;

use crate::answer::ErrorBody;
use crate::enforcement_object::EnforcementObject;
use crate::result_object::ResultObject;

/// The whole answer.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionEnvelope {
    /// The version of the JSON; a change of meaning is another version.
    pub schema_version: u32,
    /// Always `execution`.
    pub kind: &'static str,
    /// The command ran, exited with 0, and its changes are kept as was asked.
    pub success: bool,
    /// What became of the request.
    pub state: StateName,
    /// What the journal has it as; null if it never came to be a run.
    pub run_id: Option<String>,
    /// Null if what was asked for could not be understood.
    pub request: Option<RequestObject>,
    /// What the policy decided; null if it was never asked.
    pub decision: Option<DecisionObject>,
    /// What the command did; null unless it ran.
    pub result: Option<ResultObject>,
    /// What was enforced while the command ran; null unless it ran.
    pub enforcement: Option<EnforcementObject>,
    /// Why the request failed or did not run.
    pub error: Option<ErrorBody>,
    /// The code of what the error came from, where that says more: of `capture.failed`, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_cause: Option<String>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// The command ran; its exit status may be anything.
    Completed,
    /// The policy denied the request.
    Denied,
    /// The request waits for a person.
    ApprovalRequired,
    /// avfs could not run the command, or could not keep its changes.
    Failed,
    /// Only with `--dry-run`.
    Planned,
}

/// What the policy decided about a request.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionObject {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: &'static str,
    /// What the command was found to do, such as `mutating`.
    pub categories: Vec<String>,
    /// The rule that decided; null for a built-in default.
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// Rules with which your own policy.toml would let a denied request through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_rule: Option<String>,
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
