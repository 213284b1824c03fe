//! The `result` of the verbs about approvals.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStateName {
    Pending,
    Approved,
    Denied,
    Used,
    /// Nobody has decided in time, or nobody has used it in time.
    Expired,
}

impl ApprovalStateName {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Used => "used",
            Self::Expired => "expired",
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ApprovalObject {
    pub id: String,
    pub state: ApprovalStateName,
    /// Why a person is asked.
    pub reason: String,
    pub command: Value,
    /// The only request it is good for.
    pub request_digest: String,
    /// The run that asked.
    pub asked_by: String,
    pub created_at: String,
    pub expires_at: String,
    pub decided_at: Option<String>,
    pub decided_by: Option<String>,
    /// The run it let through.
    pub used_by: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ApprovalsList {
    /// Newest first.
    pub approvals: Vec<ApprovalObject>,
    /// True if there are older ones.
    pub more: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ApprovalsShow {
    #[serde(flatten)]
    pub approval: ApprovalObject,
    pub request: Value,
    pub decision: Value,
}

/// An answer that was given.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ApprovalsAnswer {
    #[serde(flatten)]
    pub approval: ApprovalObject,
    /// Rules that were written for all later requests like it, and the file they are in.
    pub rules: Vec<String>,
    pub policy_file: Option<String>,
}
