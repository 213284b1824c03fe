//! The rows and queries of approvals.

use std::cmp::Ordering;

use rusqlite::types::Type;
use rusqlite::{Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ApprovalId, ApprovalPrefix, RequestDigest, RunId};

use super::read::{Session, ahead, limit};
use super::schema;
use crate::backend::{ApprovalRecord, ApprovalState, Result};

const COLUMNS: &str = "seq, id, request_digest, state, asked_by, reason, request, decision, created_at, \
                       expires_at, decided_at, decided_by, used_by";

pub(crate) const PUT: &str = "INSERT INTO approval (id, request_digest, state, asked_by, reason, request, decision, \
                       created_at, expires_at, decided_at, decided_by, used_by) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
                       ON CONFLICT (id) DO UPDATE SET request_digest = ?2, state = ?3, asked_by = ?4, \
                       reason = ?5, request = ?6, decision = ?7, created_at = ?8, expires_at = ?9, \
                       decided_at = ?10, decided_by = ?11, used_by = ?12";

/// The parameters of [`PUT`].
pub(crate) fn values(approval: &ApprovalRecord) -> impl Params + '_ {
    (
        approval.id.as_str(),
        approval.request_digest.as_bytes(),
        approval.state.word(),
        approval.asked_by.as_str(),
        &approval.reason,
        &approval.request,
        &approval.decision,
        approval.created_at.0,
        approval.expires_at.0,
        approval.decided_at.map(|at| at.0),
        &approval.decided_by,
        approval.used_by.as_ref().map(RunId::as_str),
    )
}

fn bad(
    column: usize,
    error: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

fn approval_from(row: &Row<'_>) -> rusqlite::Result<ApprovalRecord> {
    let text = |column| row.get::<_, String>(column);
    let state = text(3)?;
    let state = ApprovalState::from_word(&state)
        .ok_or_else(|| bad(3, format!("invalid approval state {state:?}")))?;
    let used_by: Option<String> = row.get(12)?;
    let used_by = used_by.map(|id| RunId::parse(&id)).transpose().map_err(|error| bad(12, error))?;
    Ok(ApprovalRecord {
        seq: row.get(0)?,
        id: ApprovalId::parse(&text(1)?).map_err(|error| bad(1, error))?,
        request_digest: RequestDigest(row.get(2)?),
        state,
        asked_by: RunId::parse(&text(4)?).map_err(|error| bad(4, error))?,
        reason: row.get(5)?,
        request: row.get(6)?,
        decision: row.get(7)?,
        created_at: Timestamp(row.get(8)?),
        expires_at: Timestamp(row.get(9)?),
        decided_at: row.get::<_, Option<i64>>(10)?.map(Timestamp),
        decided_by: row.get(11)?,
        used_by,
    })
}

impl Session<'_> {
    pub(crate) fn approvals_by_prefix(
        &self,
        prefix: &ApprovalPrefix,
        at_most: usize,
    ) -> Result<Vec<ApprovalRecord>> {
        // Ids are hex digits, so all ids with the prefix sort between the prefix and the prefix followed by `g`.
        let (from, to) = (prefix.as_str(), format!("{prefix}g"));
        self.approvals_where("WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3", (from, to, limit(at_most)))
    }

    pub(crate) fn approvals_for(&self, digest: &RequestDigest) -> Result<Vec<ApprovalRecord>> {
        self.approvals_where("WHERE request_digest = ?1 ORDER BY seq DESC", [digest.as_bytes()])
    }

    pub(crate) fn approvals_before(&self, before: i64, at_most: usize) -> Result<Vec<ApprovalRecord>> {
        let which = format!("WHERE seq {} ?1 ORDER BY seq DESC LIMIT ?2", ahead(before));
        let rows = self.approvals_where(&which, (before, limit(at_most)))?;
        self.in_order(rows, before, Ordering::Less, |approval| approval.seq)
    }

    fn approvals_where(&self, which: &str, params: impl Params) -> Result<Vec<ApprovalRecord>> {
        // A file of an older format that could not be migrated has no approvals.
        if self.backend.format < schema::APPROVED {
            return Ok(Vec::new());
        }
        self.all(&format!("SELECT {COLUMNS} FROM approval {which}"), params, approval_from)
    }
}
