//! The execution envelope: what `avfs-run --json` prints, for runs, denials and errors alike.

use schemars::JsonSchema;
use serde::Serialize;

use crate::backend::ApprovalRecord;
use crate::diagnose::Diagnose;
use crate::ids::{ApprovalId, RunId};
use crate::runtime::decision::ExecutionDecision;
use crate::runtime::launcher::Exit;
use crate::runtime::permission::Denial;
use crate::runtime::proxy::{Came, Executed};
use crate::runtime::redact::redact;
use crate::runtime::result::Enforcement;

use super::answer::{ErrorBody, SCHEMA_VERSION};
use super::enforcement_object::EnforcementObject;
use super::request_object::RequestObject;
use super::result_object::ResultObject;

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

impl DecisionObject {
    #[must_use]
    pub fn of(decision: &ExecutionDecision, approval: Option<&ApprovalId>) -> Self {
        Self {
            action: decision.action.word(),
            categories: decision.categories.iter().map(|category| category.word().to_owned()).collect(),
            rule: decision.rule.clone(),
            reason: decision.reason.clone(),
            hint: decision.hint.clone(),
            approval_id: approval.map(ApprovalId::to_string),
        }
    }

    /// As it is written down: a reason may quote the command.
    #[must_use]
    pub fn redacted(self) -> Self {
        let hint = self.hint.map(|hint| redact(&hint).into_owned());
        Self { reason: redact(&self.reason).into_owned(), hint, ..self }
    }
}

impl ExecutionEnvelope {
    /// What came of a request that reached the boundary.
    #[must_use]
    pub fn of<E: Diagnose + 'static>(request: RequestObject, executed: &Executed<E>) -> Self {
        let decided = executed
            .decision
            .as_ref()
            .map(|decision| DecisionObject::of(decision, executed.approval.as_ref()));
        let envelope = Self {
            run_id: executed.run_id.as_ref().map(RunId::to_string),
            request: Some(request),
            decision: decided,
            ..Self::empty(StateName::Failed)
        };
        match &executed.came {
            Ok(Came::Ran(result)) => Self {
                success: result.exit == Exit::Code(0) && !result.timed_out && result.stopped_by.is_none(),
                state: StateName::Completed,
                result: Some(ResultObject::from(&**result)),
                enforcement: result.enforcement.as_ref().map(EnforcementObject::from),
                ..envelope
            },
            Ok(Came::Denied(denial)) => {
                let error = denial_body(denial, executed.decision.as_ref());
                Self { state: StateName::Denied, error: Some(error), ..envelope }
            }
            Ok(Came::ApprovalRequired(approval)) => Self {
                state: StateName::ApprovalRequired,
                error: Some(approval_body(approval, executed.decision.as_ref())),
                ..envelope
            },
            Err(error) => Self {
                error: Some(ErrorBody::of(error)),
                error_cause: error.cause().map(str::to_owned),
                ..envelope
            },
        }
    }

    /// One that would take place.
    #[must_use]
    pub fn planned(request: RequestObject, decision: &ExecutionDecision, enforcement: &Enforcement) -> Self {
        Self {
            success: true,
            request: Some(request),
            decision: Some(DecisionObject::of(decision, None)),
            enforcement: Some(EnforcementObject::from(enforcement)),
            ..Self::empty(StateName::Planned)
        }
    }

    /// One that could not even be asked for.
    #[must_use]
    pub fn failed(request: Option<RequestObject>, error: ErrorBody) -> Self {
        Self { request, error: Some(error), ..Self::empty(StateName::Failed) }
    }

    fn empty(state: StateName) -> Self {
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

/// Why nothing was run.
#[must_use]
pub fn denial_body(denial: &Denial, decision: Option<&ExecutionDecision>) -> ErrorBody {
    let reason = decision.map(|decision| decision.reason.clone()).unwrap_or_default();
    let advice = decision.and_then(|decision| decision.hint.clone());
    let (code, message, hint) = match denial {
        Denial::Policy => ("policy.denied", format!("denied: {reason}"), advice),
        Denial::Person { .. } => ("approval.denied", format!("denied: {reason}"), advice),
        Denial::BadApproval { shown, fault } => {
            let hint = "leave it out to ask for a new one".to_owned();
            (fault.code(), format!("approval {shown} is not good for this request: {fault}"), Some(hint))
        }
    };
    ErrorBody { code: code.to_owned(), message, hint }
}

/// What has to happen first.
#[must_use]
pub fn approval_body(approval: &ApprovalRecord, decision: Option<&ExecutionDecision>) -> ErrorBody {
    let approve =
        |how| format!("approve it{how} with: avfs approvals approve {}, then run it again", approval.id);
    // An approval adds nothing to a request: no network that it does not ask for.
    let hint = match decision.and_then(|decision| decision.hint.clone()) {
        Some(advice) => format!("{advice}; or {}", approve(" as it is")),
        None => approve(""),
    };
    let message = format!("an approval is required: {}", approval.reason);
    ErrorBody { code: "approval.required".to_owned(), message, hint: Some(hint) }
}
