//! The journal's rows and queries.

use std::cmp::Ordering;

use rusqlite::types::Type;
use rusqlite::{Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, RunId, RunPrefix, VersionId};

use super::read::{Session, ahead, behind, limit, named};
use super::schema;
use crate::backend::{Result, RunRecord, RunState};

pub(crate) const COLUMNS: &str = "seq, id, fork, state, version_before, version_after, started_at, ended_at, exit_code, \
                       signal, applied_at, discarded_at, request, decision, result";

pub(crate) const PUT: &str = "INSERT INTO run (id, fork, state, version_before, version_after, started_at, ended_at, \
                       exit_code, signal, applied_at, discarded_at, request, decision, result) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
                       ON CONFLICT (id) DO UPDATE SET fork = ?2, state = ?3, version_before = ?4, \
                       version_after = ?5, started_at = ?6, ended_at = ?7, exit_code = ?8, signal = ?9, \
                       applied_at = ?10, discarded_at = ?11, request = ?12, decision = ?13, result = ?14";

/// The parameters of [`PUT`].
pub(crate) fn values(run: &RunRecord) -> impl Params + '_ {
    let version = |id: &Option<VersionId>| id.map(|id| id.0.to_vec());
    let time = |at: Option<Timestamp>| at.map(|at| at.0);
    (
        run.id.as_str(),
        run.fork.as_str(),
        run.state.word(),
        version(&run.version_before),
        version(&run.version_after),
        run.started_at.0,
        time(run.ended_at),
        run.exit_code,
        run.signal,
        time(run.applied_at),
        time(run.discarded_at),
        &run.request,
        &run.decision,
        &run.result,
    )
}

pub(crate) fn run_from(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    let id: String = row.get(1)?;
    let id = RunId::parse(&id)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, Box::new(error)))?;
    let state: String = row.get(3)?;
    let state = RunState::from_word(&state).ok_or_else(|| {
        let detail = format!("invalid run state {state:?}");
        rusqlite::Error::FromSqlConversionFailure(3, Type::Text, detail.into())
    })?;
    let version = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<[u8; 32]>>(column)?.map(VersionId));
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp));
    Ok(RunRecord {
        seq: row.get(0)?,
        id,
        fork: named(row, 2, ForkName::parse)?,
        state,
        version_before: version(4)?,
        version_after: version(5)?,
        started_at: Timestamp(row.get(6)?),
        ended_at: time(7)?,
        exit_code: row.get(8)?,
        signal: row.get(9)?,
        applied_at: time(10)?,
        discarded_at: time(11)?,
        request: row.get(12)?,
        decision: row.get(13)?,
        result: row.get(14)?,
    })
}

impl Session<'_> {
    /// False for a file of an older format that could not be migrated: it has no journal.
    fn has_journal(&self) -> bool {
        self.backend.format >= schema::JOURNALED
    }

    pub(crate) fn run_by_id(&self, id: &RunId) -> Result<Option<RunRecord>> {
        if !self.has_journal() {
            return Ok(None);
        }
        self.one(&format!("SELECT {COLUMNS} FROM run WHERE id = ?1"), [id.as_str()], run_from)
    }

    pub(crate) fn runs_by_prefix(&self, prefix: &RunPrefix, at_most: usize) -> Result<Vec<RunRecord>> {
        // Ids are hex digits, so all ids with the prefix sort between the prefix and the prefix followed by `g`.
        let (from, to) = (prefix.as_str(), format!("{prefix}g"));
        self.journal("WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3", (from, to, limit(at_most)))
    }

    pub(crate) fn runs_before(&self, before: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        let rows = self.journal(
            &format!("WHERE seq {} ?1 ORDER BY seq DESC LIMIT ?2", ahead(before)),
            (before, limit(at_most)),
        )?;
        self.in_order(rows, before, Ordering::Less, |run| run.seq)
    }

    pub(crate) fn runs_of(&self, fork: &ForkName, before: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        let params = (fork.as_str(), before, limit(at_most));
        let rows = self.journal("WHERE fork = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3", params)?;
        self.in_order(rows, before, Ordering::Less, |run| run.seq)
    }

    pub(crate) fn runs_since(&self, after: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        let rows = self.journal(
            &format!("WHERE seq {} ?1 ORDER BY seq LIMIT ?2", behind(after)),
            (after, limit(at_most)),
        )?;
        self.in_order(rows, after, Ordering::Greater, |run| run.seq)
    }

    pub(crate) fn runs_of_since(
        &self,
        fork: &ForkName,
        after: i64,
        at_most: usize,
    ) -> Result<Vec<RunRecord>> {
        let params = (fork.as_str(), after, limit(at_most));
        let rows = self.journal("WHERE fork = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3", params)?;
        self.in_order(rows, after, Ordering::Greater, |run| run.seq)
    }

    fn journal(&self, which: &str, params: impl Params) -> Result<Vec<RunRecord>> {
        if !self.has_journal() {
            return Ok(Vec::new());
        }
        self.all(&format!("SELECT {COLUMNS} FROM run {which}"), params, run_from)
    }

    pub(crate) fn runs_kept(&self) -> Result<u64> {
        if self.has_journal() { self.number("SELECT count(*) FROM run") } else { Ok(0) }
    }
}
