//! The envelope of a run as wire types.

use avfs_engine::journal::{Recorded, RunDecision, decided};
use avfs_engine::{Denial, Enforcement, Executed, Exit, Outcome};
use avfs_policy::{ExecutionDecision, NETWORKED, Verdict};
use avfs_request::spec::RequestObject;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::RunId;
use avfs_vault::backend::ApprovalRecord;
use avfs_wire::{DecisionObject, ErrorBody, ExecutionEnvelope, StateName};

use crate::hints::{Avfs, error_body};

/// The error for a denied request.
#[must_use]
pub fn denial_body(denial: &Denial, decision: Option<&ExecutionDecision>, avfs: &Avfs) -> ErrorBody {
    let reason = decision.map(|decision| decision.reason.clone()).unwrap_or_default();
    let advice = decision.and_then(|decision| decision.hint.clone());
    let (code, message, hint) = match denial {
        Denial::Policy => ("policy.denied", format!("denied: {reason}"), advice),
        Denial::NoTerminal => ("policy.no_terminal", format!("denied: {reason}"), advice),
        // The advice of the policy would be a way around the decision.
        Denial::Person { approval, .. } => {
            let hint = format!(
                "show the decision with: {avfs} approvals show {approval}; reverse it with: {}",
                approve_command(avfs, approval.as_str(), rule_of(decision))
            );
            ("approval.denied", format!("denied: {reason}"), Some(hint))
        }
        Denial::BadApproval { shown, fault } => {
            let hint = "omit --approved to request a new approval".to_owned();
            (fault.code(), format!("approval {shown} is not valid for this request: {fault}"), Some(hint))
        }
    };
    ErrorBody { code: code.to_owned(), message, hint }
}

fn rule_of(decision: Option<&ExecutionDecision>) -> Option<&str> {
    decision?.rule.as_deref()
}

/// The command that approves a request which this rule asks about. A request that needs a network and asks for none
/// gets one by the approval: without it the command would fail.
#[must_use]
pub fn approve_command(avfs: &Avfs, approval: &str, rule: Option<&str>) -> String {
    let net = if rule == Some(NETWORKED) { " --net allow=DOMAIN,…" } else { "" };
    format!("{avfs} approvals approve {approval}{net}")
}

/// The command that approves the request of an approval.
#[must_use]
pub fn command_to_approve(avfs: &Avfs, approval: &ApprovalRecord) -> String {
    let decision = Recorded::<RunDecision>::parse(&approval.decision);
    let rule = decision.read().and_then(|decision| decision.rule.as_deref());
    approve_command(avfs, approval.id.as_str(), rule)
}

/// The error for a request that needs an approval first.
#[must_use]
pub fn approval_body(
    approval: &ApprovalRecord,
    decision: Option<&ExecutionDecision>,
    avfs: &Avfs,
) -> ErrorBody {
    let rule = rule_of(decision);
    let command = approve_command(avfs, approval.id.as_str(), rule);
    let approve = |how| format!("approve it{how} with: {command}, then run it again");
    let hint = match decision {
        Some(ExecutionDecision { hint: Some(advice), .. }) => {
            let how = if rule == Some(NETWORKED) { "" } else { " unchanged" };
            format!("{advice}; or {}", approve(how))
        }
        Some(_) | None => approve(""),
    };
    let message = format!("an approval is required: {}", approval.reason);
    ErrorBody { code: "approval.required".to_owned(), message, hint: Some(hint) }
}

/// The decision about a request that was not read, or has no vault.
#[must_use]
pub fn decision_before_the_request(verdict: &Verdict) -> DecisionObject {
    DecisionObject {
        action: verdict.action.word().into(),
        rule: Some(verdict.rule.clone()),
        reason: verdict.reason.clone(),
        hint: verdict.hint.clone(),
        ..DecisionObject::default()
    }
}

/// The envelope of a request that reached the boundary.
#[must_use]
pub fn execution(request: RequestObject, executed: &Executed, avfs: &Avfs) -> ExecutionEnvelope {
    let decided = executed.decision.as_ref().map(|decision| decided(decision, executed.approval.as_ref()));
    let envelope = ExecutionEnvelope {
        run_id: executed.run_id.as_ref().map(RunId::to_string),
        request: Some(request),
        decision: decided,
        ..ExecutionEnvelope::empty(StateName::Failed)
    };
    match &executed.outcome {
        Ok(Outcome::Ran(result)) => ExecutionEnvelope {
            success: result.exit == Exit::Code(0) && !result.timed_out && result.stopped_by.is_none(),
            state: StateName::Completed,
            result: Some(crate::result(result, avfs)),
            enforcement: result.enforcement.as_ref().map(crate::enforcement),
            ..envelope
        },
        Ok(Outcome::Denied(denial)) => {
            let error = crate::denial_body(denial, executed.decision.as_ref(), avfs);
            ExecutionEnvelope { state: StateName::Denied, error: Some(error), ..envelope }
        }
        Ok(Outcome::ApprovalRequired(approval)) => ExecutionEnvelope {
            state: StateName::ApprovalRequired,
            error: Some(crate::approval_body(approval, executed.decision.as_ref(), avfs)),
            ..envelope
        },
        Err(error) => ExecutionEnvelope {
            error: Some(error_body(error, avfs)),
            error_cause: error.cause().map(str::to_owned),
            ..envelope
        },
    }
}

/// The envelope of a request that was only planned.
#[must_use]
pub fn execution_planned(
    request: RequestObject,
    decision: &ExecutionDecision,
    enforcement: &Enforcement,
) -> ExecutionEnvelope {
    ExecutionEnvelope {
        success: true,
        request: Some(request),
        decision: Some(decided(decision, None)),
        enforcement: Some(crate::enforcement(enforcement)),
        ..ExecutionEnvelope::empty(StateName::Planned)
    }
}
