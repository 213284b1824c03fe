//! The `result` of the verbs about approvals.

use serde::Serialize;
use serde_json::Value;

/// The state of an approval.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStateName {
    /// Nobody has decided yet.
    Pending,
    /// A person allowed the request; it has not run yet.
    Approved,
    /// A person refused the request.
    Denied,
    /// The request ran. An approval is good for one run.
    Used,
    /// Nobody has decided in time, or nobody has used it in time.
    Expired,
}

impl ApprovalStateName {
    /// The word that JSON has for the state.
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

/// A request that a person has to decide, or has decided.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalObject {
    /// The id of the approval: 10 hex digits.
    pub id: String,
    /// The state now; expiry is taken into account.
    pub state: ApprovalStateName,
    /// Why a person is asked.
    pub reason: String,
    /// The command of the request: a list of words, or one string for a shell.
    pub command: Value,
    /// The only request it is good for.
    pub request_digest: String,
    /// The run that asked.
    pub asked_by: String,
    /// When the request was made, RFC 3339 in UTC.
    pub created_at: String,
    /// When the approval expires, RFC 3339 in UTC.
    pub expires_at: String,
    /// When it was decided; null while pending.
    pub decided_at: Option<String>,
    /// The user who decided; null while pending.
    pub decided_by: Option<String>,
    /// The run it let through.
    pub used_by: Option<String>,
}

/// The result of `avfs approvals list`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalsList {
    /// Newest first.
    pub approvals: Vec<ApprovalObject>,
    /// True if there are older ones.
    pub more: bool,
}

/// The result of `avfs approvals show`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalsShow {
    /// The approval; its fields are part of this object.
    #[serde(flatten)]
    pub approval: ApprovalObject,
    /// The whole request, as the journal has it.
    pub request: Value,
    /// The decision of the policy that asks for the approval.
    pub decision: Value,
}

/// An answer that was given.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalsAnswer {
    /// The approval after the answer; its fields are part of this object.
    #[serde(flatten)]
    pub approval: ApprovalObject,
    /// Rules that were written for all later requests like it, and the file they are in.
    pub rules: Vec<String>,
    /// The policy file with the new rules; null if no rule was written.
    pub policy_file: Option<String>,
}
