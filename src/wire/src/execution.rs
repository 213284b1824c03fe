//! The execution envelope: the output of `avfs-run --json`, for runs, denials and errors alike.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use avfs_request::spec::RequestObject;
use avfs_request::spec::SCHEMA_VERSION;
use avfs_types::Word;

use crate::answer::ErrorBody;
use crate::enforcement_object::EnforcementObject;
use crate::result_object::ResultObject;

/// The output of `avfs-run --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionEnvelope {
    /// The version of the JSON; a change of meaning is a new version.
    pub schema_version: u32,
    /// Always `execution`.
    pub kind: Word,
    /// The command ran and exited with status 0, and its changes are kept as requested.
    pub success: bool,
    /// The outcome of the request.
    pub state: StateName,
    /// The id of the run in the journal; null if no run was recorded.
    pub run_id: Option<String>,
    /// The request; null if it could not be parsed.
    pub request: Option<RequestObject>,
    /// The decision of the policy; null if the policy was not consulted.
    pub decision: Option<DecisionObject>,
    /// The result of the command; null if it did not run.
    pub result: Option<ResultObject>,
    /// The restrictions that were enforced while the command ran; null if it did not run.
    pub enforcement: Option<EnforcementObject>,
    /// Why the request failed or did not run.
    pub error: Option<ErrorBody>,
    /// The code of the error's cause, if it is more specific, as for `capture.failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_cause: Option<String>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// The command ran, with any exit status.
    Completed,
    /// The policy denied the request.
    Denied,
    /// The request waits for a person.
    ApprovalRequired,
    /// avfs could not run the command, or could not keep its changes.
    Failed,
    /// The request was only planned, with `--dry-run`.
    Planned,
}

/// The decision of the policy about a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct DecisionObject {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: Word,
    /// The categories of the command, such as `mutating`.
    pub categories: Vec<String>,
    /// The rule that decided; null for a built-in default.
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// Rules that would allow a denied request if added to your own policy.toml.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_rule: Option<String>,
    /// The approval that allowed the request, or that it waits for.
    pub approval_id: Option<String>,
    // The rest is in the journal, but in no envelope.
    /// In an approval: the network that the person granted, if not the requested one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub granted_net: Option<String>,
    /// Keys that a later version wrote.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub later: Map<String, Value>,
}

impl ExecutionEnvelope {
    /// The envelope of a request that failed before it was resolved.
    #[must_use]
    pub fn failed(request: Option<RequestObject>, error: ErrorBody) -> Self {
        Self { request, error: Some(error), ..Self::empty(StateName::Failed) }
    }

    /// The approval that the request waits for.
    #[must_use]
    pub fn needed_approval(&self) -> Option<&str> {
        let decision = self.decision.as_ref().filter(|_| self.state == StateName::ApprovalRequired);
        decision?.approval_id.as_deref()
    }

    /// The rules that would allow the request, if it was denied.
    #[must_use]
    pub fn allow_rule(&self) -> Option<&str> {
        self.decision.as_ref()?.allow_rule.as_deref()
    }

    /// An envelope that contains only a state.
    #[must_use]
    pub fn empty(state: StateName) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "execution".into(),
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
