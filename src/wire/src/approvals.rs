//! The `result` of the verbs about approvals.

use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use serde_json::Value;

use avfs_request::spec::{CommandText, RequestObject};

use crate::execution::DecisionObject;
use crate::journal::Recorded;

/// The state of an approval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStateName {
    /// Nobody has decided yet.
    Pending,
    /// A person approved the request; it has not run yet.
    Approved,
    /// A person denied the request.
    Denied,
    /// The request ran. An approval is valid for one run.
    Used,
    /// The approval was not decided, or not used, in time.
    Expired,
}

impl ApprovalStateName {
    /// The word for the state in JSON.
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

/// A request that waits for a person's decision, or has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalObject {
    /// The id of the approval: 10 hex digits.
    pub id: String,
    /// The state now; expiry is taken into account.
    pub state: ApprovalStateName,
    /// Why approval is required.
    pub reason: String,
    /// The command of the request: a list of words, or one string for a shell.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub command: Option<CommandText>,
    /// The digest of the only request that it is valid for.
    pub request_digest: String,
    /// The run that asked for it.
    pub asked_by: String,
    /// When the request was made, RFC 3339 in UTC.
    pub created_at: String,
    /// When the approval expires, RFC 3339 in UTC.
    pub expires_at: String,
    /// When it was decided; null while pending.
    pub decided_at: Option<String>,
    /// The user who decided; null while pending.
    pub decided_by: Option<String>,
    /// The run that used it; null if it is unused.
    pub used_by: Option<String>,
}

/// The result of `avfs approvals list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalsList {
    /// Newest first.
    pub approvals: Vec<ApprovalObject>,
    /// True if there are older ones.
    pub more: bool,
}

/// The result of `avfs approvals show`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalsShow {
    /// The approval; its fields are part of this object.
    #[serde(flatten)]
    pub approval: ApprovalObject,
    /// The whole request, as in the journal.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub request: Recorded<RequestObject>,
    /// The decision of the policy that requires the approval.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub decision: Recorded<DecisionObject>,
}

/// The result of `avfs approvals approve` and `avfs approvals deny`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalsAnswer {
    /// The approval after the answer; its fields are part of this object.
    #[serde(flatten)]
    pub approval: ApprovalObject,
    /// Rules that were written for all later requests of the same kind.
    pub rules: Vec<String>,
    /// The policy file with the new rules; null if no rule was written.
    pub policy_file: Option<String>,
}
