//! The `result` of the verbs about approvals.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::backend::{ApprovalRecord, ApprovalState};
use crate::clock::Timestamp;
use crate::ids::RunId;

use super::records::{command_of, journal_value};
use super::text::time_text;

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
    pub fn of(approval: &ApprovalRecord, now: Timestamp) -> Self {
        let expired = approval.expires_at <= now;
        match approval.state {
            ApprovalState::Pending | ApprovalState::Approved if expired => Self::Expired,
            ApprovalState::Pending => Self::Pending,
            ApprovalState::Approved => Self::Approved,
            ApprovalState::Denied => Self::Denied,
            ApprovalState::Used => Self::Used,
        }
    }

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

impl ApprovalObject {
    #[must_use]
    pub fn of(approval: &ApprovalRecord, now: Timestamp) -> Self {
        Self {
            id: approval.id.to_string(),
            state: ApprovalStateName::of(approval, now),
            reason: approval.reason.clone(),
            command: command_of(&approval.request),
            request_digest: approval.request_digest.to_hex(),
            asked_by: approval.asked_by.to_string(),
            created_at: time_text(approval.created_at),
            expires_at: time_text(approval.expires_at),
            decided_at: approval.decided_at.map(time_text),
            decided_by: approval.decided_by.clone(),
            used_by: approval.used_by.as_ref().map(RunId::to_string),
        }
    }
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

impl ApprovalsShow {
    #[must_use]
    pub fn of(approval: &ApprovalRecord, now: Timestamp) -> Self {
        Self {
            approval: ApprovalObject::of(approval, now),
            request: journal_value(&approval.request),
            decision: journal_value(&approval.decision),
        }
    }
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
