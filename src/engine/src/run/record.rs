//! The identity of a run, its request and the decision on it: everything that its journal row needs before it ends.

use std::time::Instant;

use avfs_policy::ExecutionDecision;
use avfs_request::ExecutionRequest;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{ApprovalId, ForkName, RunId};
use avfs_vault::Vault;
use avfs_vault::backend::{RunRecord, RunState};
use avfs_vault::run::AuditTexts;

use crate::journal;

/// Maximum characters of a command in the message of its version.
const MESSAGE_CHARS: usize = 200;

/// A request with its decision. A step that grants or reduces the request makes a new value.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub id: RunId,
    /// The fork that will get its changes.
    pub fork: ForkName,
    pub message: String,
    pub begun: Instant,
    pub started_at: Timestamp,
    pub request: ExecutionRequest,
    pub decision: ExecutionDecision,
    /// The approval that permitted it.
    pub approval: Option<ApprovalId>,
}

impl Run {
    /// The row of a run that is not executed, or not yet.
    pub fn row(&self, vault: &Vault, state: RunState) -> RunRecord {
        RunRecord {
            seq: 0,
            id: self.id.clone(),
            fork: self.fork.clone(),
            state,
            version_before: None,
            version_after: None,
            started_at: self.started_at,
            ended_at: Some(vault.now()),
            exit_code: None,
            signal: None,
            applied_at: None,
            discarded_at: None,
            request: journal::request(&self.request, vault.path()),
            decision: journal::decision(&self.decision, self.approval.as_ref()),
            result: "{}".to_owned(),
        }
    }

    /// Its texts for the audit log. `decision` is [`ExecutionDecision::audit_text`].
    pub fn audit_texts<'t>(&'t self, decision: &'t str) -> AuditTexts<'t> {
        AuditTexts { request: &self.message, decision, ..AuditTexts::default() }
    }

    /// Journals a run that is not executed, or not yet.
    pub fn journal(&self, vault: &Vault, row: &RunRecord) -> avfs_vault::Result<()> {
        vault.journal_refused(row, self.audit_texts(&self.decision.audit_text()))
    }
}

/// A one-line description of a command for the message of its version, truncated.
pub fn message(command: &str) -> String {
    let mut message: String = command.chars().take(MESSAGE_CHARS).collect();
    if message.len() < command.len() {
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_truncated() {
        assert_eq!(message("make test"), "make test");
        let long = message(&"x".repeat(500));
        assert_eq!(long.chars().count(), MESSAGE_CHARS + 1);
    }
}
