//! The rows and queries of batches.

use rusqlite::types::Type;
use rusqlite::{Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{BatchId, BatchPrefix, ListDigest, VersionId};

use super::read::{Session, limit};
use super::{runs, schema};
use crate::backend::{BatchRecord, Result, RunRecord};

/// The tables of batches and of the runs made for their items.
pub(crate) const TABLES: &str = "
CREATE TABLE batch (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE CHECK (length(id) = 10),
    list       BLOB NOT NULL CHECK (length(list) = 32),
    base       BLOB NOT NULL CHECK (length(base) = 32),
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    plan       TEXT NOT NULL
);
CREATE TABLE batch_run (
    batch TEXT NOT NULL,
    item  INTEGER NOT NULL CHECK (item >= 0),
    run   TEXT NOT NULL,
    PRIMARY KEY (batch, item, run)
) WITHOUT ROWID;
";

const COLUMNS: &str = "id, list, base, started_at, ended_at, plan";

pub(crate) const PUT: &str = "INSERT INTO batch (id, list, base, started_at, ended_at, plan) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                       ON CONFLICT (id) DO UPDATE SET list = ?2, base = ?3, started_at = ?4, ended_at = ?5, \
                       plan = ?6";
pub(crate) const PUT_RUN: &str = "INSERT OR IGNORE INTO batch_run (batch, item, run) VALUES (?1, ?2, ?3)";

/// The parameters of [`PUT`].
pub(crate) fn values(batch: &BatchRecord) -> impl Params + '_ {
    (
        batch.id.as_str(),
        batch.list.as_bytes(),
        batch.base.as_bytes(),
        batch.started_at.0,
        batch.ended_at.map(|at| at.0),
        &batch.plan,
    )
}

fn batch_from(row: &Row<'_>) -> rusqlite::Result<BatchRecord> {
    let id: String = row.get(0)?;
    let id = BatchId::parse(&id)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))?;
    Ok(BatchRecord {
        id,
        list: ListDigest(row.get(1)?),
        base: VersionId(row.get(2)?),
        started_at: Timestamp(row.get(3)?),
        ended_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        plan: row.get(5)?,
    })
}

impl Session<'_> {
    /// False for a file of an older format that could not be migrated: it has no batch tables.
    fn has_batches(&self) -> bool {
        self.backend.format >= schema::RECORDED
    }

    pub(crate) fn batches_by_prefix(&self, prefix: &BatchPrefix, at_most: usize) -> Result<Vec<BatchRecord>> {
        // Ids are hex digits, so all ids with the prefix sort between the prefix and the prefix followed by `g`.
        let (from, to) = (prefix.as_str(), format!("{prefix}g"));
        self.batches_where("WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3", (from, to, limit(at_most)))
    }

    pub(crate) fn newest_batches(&self, at_most: usize) -> Result<Vec<BatchRecord>> {
        self.batches_where("ORDER BY seq DESC LIMIT ?1", [limit(at_most)])
    }

    fn batches_where(&self, which: &str, params: impl Params) -> Result<Vec<BatchRecord>> {
        if !self.has_batches() {
            return Ok(Vec::new());
        }
        self.all(&format!("SELECT {COLUMNS} FROM batch {which}"), params, batch_from)
    }

    pub(crate) fn batch_runs_of_no_run(&self, at_most: usize) -> Result<Vec<(String, i64, String)>> {
        if !self.has_batches() {
            return Ok(Vec::new());
        }
        let sql = "SELECT batch, item, run FROM batch_run WHERE run NOT IN (SELECT id FROM run) LIMIT ?1";
        self.all(sql, [limit(at_most)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    pub(crate) fn runs_of_batch(
        &self,
        batch: &BatchId,
        (item, seq): (u64, i64),
        at_most: usize,
    ) -> Result<Vec<(u64, RunRecord)>> {
        if !self.has_batches() {
            return Ok(Vec::new());
        }
        let columns: Vec<String> = runs::COLUMNS.split(", ").map(|column| format!("run.{column}")).collect();
        let sql = format!(
            "SELECT {}, batch_run.item FROM batch_run JOIN run ON run.id = batch_run.run \
             WHERE batch_run.batch = ?1 AND batch_run.item >= ?2 AND (batch_run.item > ?2 OR run.seq > ?3) \
             ORDER BY batch_run.item, run.seq LIMIT ?4",
            columns.join(", ")
        );
        let item = i64::try_from(item).unwrap_or(i64::MAX);
        self.all(&sql, (batch.as_str(), item, seq, limit(at_most)), |row| {
            let item: i64 = row.get(columns.len())?;
            Ok((u64::try_from(item).unwrap_or(0), runs::run_from(row)?))
        })
    }
}
