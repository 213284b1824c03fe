//! The approval of a run, for `avfs runs show`.

use avfs_engine::journal::{Recorded, RunDecision};
use avfs_ops::OpError;
use avfs_terminal::Tone;
use avfs_types::ids::ApprovalPrefix;
use avfs_vault::backend::{ApprovalRecord, RunRecord, RunState};
use avfs_vault::{Vault, VaultError};
use avfs_wire::ApprovalStateName;

use crate::context::CommandContext;
use crate::ui::Out;

/// The number of rows read at once.
const BATCH_ROWS: usize = 200;

/// Prints the approval of a run, and how to answer it if it is pending.
pub fn show(ctx: &CommandContext, out: &mut Out, vault: &Vault, run: &RunRecord) -> Result<(), OpError> {
    let Some(approval) = approval_of(vault, run)? else { return Ok(()) };
    let (id, state) = (&approval.id, avfs_present::approval_state(&approval, vault.now()));
    let (shown, word) = (out.paint(Tone::Id, id), state.word());
    match state {
        ApprovalStateName::Pending => {
            let command = avfs_present::command_to_approve(&ctx.ui.avfs, &approval);
            out.line(format_args!("approval   {shown}, {word}; approve with: {command}"))
        }
        ApprovalStateName::Approved
        | ApprovalStateName::Denied
        | ApprovalStateName::Used
        | ApprovalStateName::Expired => out.line(format_args!("approval   {shown}, {word}")),
    }
}

/// The approval that allowed a run, or that it asked for.
fn approval_of(vault: &Vault, run: &RunRecord) -> Result<Option<ApprovalRecord>, OpError> {
    let decision = Recorded::<RunDecision>::parse(&run.decision);
    if let Some(id) = decision.read().and_then(|decision| decision.approval_id.as_ref()) {
        return match vault.approval(&ApprovalPrefix::parse(id)?) {
            Ok(approval) => Ok(Some(approval)),
            Err(VaultError::NoApproval { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    if run.state != RunState::ApprovalRequired {
        return Ok(None);
    }
    // The row of a run is written before its approval exists. An earlier run may have asked the same question.
    let is_asked = |approval: &ApprovalRecord| {
        approval.asked_by == run.id
            || approval.request == run.request && run.ended_at.is_none_or(|end| approval.created_at <= end)
    };
    let mut before = i64::MAX;
    loop {
        let approvals = vault.approvals(before, BATCH_ROWS)?;
        let Some(last) = approvals.last() else { return Ok(None) };
        before = last.seq;
        if let Some(found) = approvals.into_iter().find(is_asked) {
            return Ok(Some(found));
        }
    }
}
