//! Approvals as wire types.

use avfs_types::clock::{Timestamp, time_text};
use avfs_types::ids::RunId;
use avfs_vault::backend::{ApprovalRecord, ApprovalState};
use avfs_wire::{ApprovalObject, ApprovalStateName, ApprovalsShow, Recorded};

#[must_use]
pub fn approval_state(approval: &ApprovalRecord, now: Timestamp) -> ApprovalStateName {
    let expired = approval.expires_at <= now;
    match approval.state {
        ApprovalState::Pending | ApprovalState::Approved if expired => ApprovalStateName::Expired,
        ApprovalState::Pending => ApprovalStateName::Pending,
        ApprovalState::Approved => ApprovalStateName::Approved,
        ApprovalState::Denied => ApprovalStateName::Denied,
        ApprovalState::Used => ApprovalStateName::Used,
    }
}

#[must_use]
pub fn approval(approval: &ApprovalRecord, now: Timestamp) -> ApprovalObject {
    ApprovalObject {
        id: approval.id.to_string(),
        state: crate::approval_state(approval, now),
        reason: approval.reason.clone(),
        command: crate::command_of(&approval.request),
        request_digest: approval.request_digest.to_hex(),
        asked_by: approval.asked_by.to_string(),
        created_at: time_text(approval.created_at),
        expires_at: time_text(approval.expires_at),
        decided_at: approval.decided_at.map(time_text),
        decided_by: approval.decided_by.clone(),
        used_by: approval.used_by.as_ref().map(RunId::to_string),
    }
}

#[must_use]
pub fn approval_shown(approval: &ApprovalRecord, now: Timestamp) -> ApprovalsShow {
    ApprovalsShow {
        approval: crate::approval(approval, now),
        request: Recorded::parse(&approval.request),
        decision: Recorded::parse(&approval.decision),
    }
}
