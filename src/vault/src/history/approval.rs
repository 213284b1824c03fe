//! Approvals: a question to a person about one exact request, the answer, and its single use.
//!
//! Every step is a transaction with a row in the audit log. The request that an approval is valid for never
//! changes.

use avfs_types::ids::{ApprovalId, ApprovalPrefix, RequestDigest, RunId};

use super::audit::Event;
use super::run::{AuditTexts, refuse};
use crate::backend::{ApprovalRecord, ApprovalState, Reader, RunRecord};
use crate::{Result, Transaction, Vault, VaultError};

/// Approvals fetched to report an ambiguous id.
const EXAMPLES_MAX: usize = 4;

/// The question to a person.
#[derive(Clone, Debug)]
pub struct Question {
    /// The id of the new approval.
    pub id: ApprovalId,
    /// The request to be approved.
    pub digest: RequestDigest,
    /// Why a person is asked.
    pub reason: String,
    /// Seconds until the approval expires.
    pub expires_seconds: i64,
}

/// The answer of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request may run, once.
    Approve,
    /// The request may run, with this network instead of the requested one.
    ApproveWith {
        /// The network, in the syntax of `--net`.
        net: String,
    },
    /// The request may not run.
    Deny,
}

/// The result of looking up the approval for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It was approved; the approval is now used.
    Granted(ApprovalRecord),
    /// It was denied.
    Denied(ApprovalRecord),
    /// It is not decided yet, or was never asked.
    Open,
    /// The given approval is not valid for this request.
    Refused {
        /// The given approval, as typed.
        shown: ApprovalPrefix,
        /// Why it is not valid for the request.
        fault: Fault,
    },
}

/// Why a given approval is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The approval does not exist.
    #[error("no such approval")]
    Unknown,
    /// The approval is for another request.
    #[error("it is for another request")]
    Mismatched,
    /// The approval has expired.
    #[error("it has expired")]
    Expired,
    /// Another run has used the approval.
    #[error("it was already used")]
    Used,
    /// The approval was denied.
    #[error("it was denied")]
    Denied,
    /// The approval is not decided yet.
    #[error("it is not approved yet")]
    Pending,
}

impl Fault {
    /// The code, part of the stable JSON contract.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unknown => "approval.unknown",
            Self::Mismatched => "approval.mismatched",
            Self::Expired => "approval.expired",
            Self::Used => "approval.used",
            Self::Denied => "approval.denied",
            Self::Pending => "approval.pending",
        }
    }
}

impl Vault {
    /// Journals a run that waits for approval, and asks for the approval. An open question about the same request
    /// is reused.
    pub fn ask_approval(
        &self,
        question: &Question,
        run: &RunRecord,
        texts: AuditTexts<'_>,
    ) -> Result<ApprovalRecord> {
        self.transact(|transaction| {
            refuse(transaction, run, texts)?;
            let now = transaction.now();
            let known = transaction.view().approvals_of(&question.digest)?;
            let open = |one: &ApprovalRecord| one.state == ApprovalState::Pending && one.expires_at > now;
            if let Some(known) = known.into_iter().find(open) {
                return Ok(known);
            }
            let approval = ApprovalRecord {
                seq: 0,
                id: question.id.clone(),
                request_digest: question.digest,
                state: ApprovalState::Pending,
                asked_by: run.id.clone(),
                reason: question.reason.clone(),
                request: run.request.clone(),
                decision: run.decision.clone(),
                created_at: now,
                expires_at: now.plus_seconds(question.expires_seconds),
                decided_at: None,
                decided_by: None,
                used_by: None,
            };
            transaction.writer.put_approval(&approval)?;
            record(transaction, "approval.ask", &approval, &run.id, "")?;
            one(transaction.view(), &ApprovalPrefix::from(&approval.id))
        })
    }

    /// Records the answer of a person.
    pub fn answer_approval(&self, prefix: &ApprovalPrefix, answer: Answer) -> Result<ApprovalRecord> {
        self.transact(|transaction| {
            let approval = one(transaction.view(), prefix)?;
            let now = transaction.now();
            let (state, action) = match answer {
                Answer::Approve | Answer::ApproveWith { .. } => (ApprovalState::Approved, "approval.approve"),
                Answer::Deny => (ApprovalState::Denied, "approval.deny"),
            };
            if !approval.state.may_become(state) {
                let (id, state) = (approval.id, approval.state);
                return Err(VaultError::ApprovalSettled { id, state });
            }
            if approval.expires_at <= now {
                return Err(VaultError::ApprovalExpired { id: approval.id });
            }
            let decided_by = Some(transaction.actor().to_owned());
            let (decision, said) = match answer {
                Answer::ApproveWith { net } => (with_net(&approval.decision, &net), format!(" net={net}")),
                Answer::Approve | Answer::Deny => (approval.decision, String::new()),
            };
            let approval = ApprovalRecord { state, decided_at: Some(now), decided_by, decision, ..approval };
            transaction.writer.put_approval(&approval)?;
            record(transaction, action, &approval, &approval.asked_by, &said)?;
            Ok(approval)
        })
    }

    /// Uses an approval of exactly this request for a run, if one exists: the given one, or any.
    pub fn claim_approval(
        &self,
        digest: &RequestDigest,
        shown: Option<&ApprovalPrefix>,
        run: &RunId,
    ) -> Result<Claim> {
        self.transact(|transaction| match shown {
            Some(shown) => claim_shown(transaction, digest, shown, run),
            None => claim_any(transaction, digest, run),
        })
    }

    /// The approval whose id begins with these digits.
    pub fn approval(&self, prefix: &ApprovalPrefix) -> Result<ApprovalRecord> {
        one(&*self.read()?, prefix)
    }

    /// Approvals with a sequence number below `before`, newest first.
    pub fn approvals(&self, before: i64, limit: usize) -> Result<Vec<ApprovalRecord>> {
        Ok(self.read()?.approvals(before, limit)?)
    }
}

/// The key in an approval's decision for the granted network.
const GRANTED_NET: &str = "granted_net";

fn with_net(decision: &str, net: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(decision).unwrap_or_default();
    if !value.is_object() {
        value = serde_json::json!({});
    }
    value[GRANTED_NET] = net.into();
    value.to_string()
}

fn one(reader: &dyn Reader, prefix: &ApprovalPrefix) -> Result<ApprovalRecord> {
    let mut found = reader.approvals_with_prefix(prefix, 100)?;
    if found.len() > 1 {
        let examples: Vec<&str> = found.iter().take(EXAMPLES_MAX).map(|one| one.id.as_str()).collect();
        let (count, examples) = (found.len(), examples.join(", "));
        return Err(VaultError::AmbiguousApproval { id: prefix.clone(), count, examples });
    }
    found.pop().ok_or_else(|| VaultError::NoApproval { id: prefix.clone() })
}

fn claim_shown(
    transaction: &mut Transaction<'_>,
    digest: &RequestDigest,
    shown: &ApprovalPrefix,
    run: &RunId,
) -> Result<Claim> {
    let now = transaction.now();
    let found = match one(transaction.view(), shown) {
        Ok(found) => Ok(found),
        Err(VaultError::NoApproval { .. } | VaultError::AmbiguousApproval { .. }) => Err(Fault::Unknown),
        Err(error) => return Err(error),
    };
    let found = found.and_then(|approval| match approval.state {
        // Check the request first: a caller with another request must learn nothing else about the approval.
        _ if approval.request_digest != *digest => Err(Fault::Mismatched),
        ApprovalState::Used => Err(Fault::Used),
        ApprovalState::Denied => Err(Fault::Denied),
        ApprovalState::Pending | ApprovalState::Approved if approval.expires_at <= now => Err(Fault::Expired),
        ApprovalState::Pending => Err(Fault::Pending),
        ApprovalState::Approved => Ok(approval),
    });
    match found {
        Ok(approval) => grant(transaction, approval, run),
        Err(fault) => {
            let detail = format!("run={run} {}", fault.code());
            let (action, subject) = ("approval.refuse", shown.as_str());
            transaction.record(&Event { action, subject, before: None, after: None, detail: &detail })?;
            Ok(Claim::Refused { shown: shown.clone(), fault })
        }
    }
}

fn claim_any(transaction: &mut Transaction<'_>, digest: &RequestDigest, run: &RunId) -> Result<Claim> {
    let now = transaction.now();
    let mut known = transaction.view().approvals_of(digest)?;
    known.retain(|approval| approval.expires_at > now);
    // The newest answer counts; a question asked again after a denial is open.
    let answered =
        known.iter().filter(|one| [ApprovalState::Approved, ApprovalState::Denied].contains(&one.state));
    let answer = answered.max_by_key(|one| one.decided_at).cloned();
    match (answer, known.first()) {
        (Some(approval), _) if approval.state == ApprovalState::Approved => grant(transaction, approval, run),
        (Some(_), Some(newest)) if newest.state == ApprovalState::Pending => Ok(Claim::Open),
        (Some(denied), _) => Ok(Claim::Denied(denied)),
        (None, _) => Ok(Claim::Open),
    }
}

fn grant(transaction: &mut Transaction<'_>, approval: ApprovalRecord, run: &RunId) -> Result<Claim> {
    let approval = ApprovalRecord { state: ApprovalState::Used, used_by: Some(run.clone()), ..approval };
    transaction.writer.put_approval(&approval)?;
    let by = format!(" approved-by={}", approval.decided_by.as_deref().unwrap_or("nobody"));
    record(transaction, "approval.use", &approval, run, &by)?;
    Ok(Claim::Granted(approval))
}

fn record(
    transaction: &mut Transaction<'_>,
    action: &'static str,
    approval: &ApprovalRecord,
    run: &RunId,
    more: &str,
) -> Result<()> {
    transaction.record(&Event {
        action,
        subject: approval.id.as_str(),
        before: None,
        after: Some(approval.request_digest.0),
        detail: &format!("run={run}{more}"),
    })
}
