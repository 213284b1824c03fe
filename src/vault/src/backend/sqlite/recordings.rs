//! The rows and queries of recordings.

use rusqlite::{Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, RecordingName};

use super::read::{Session, named};
use super::schema;
use crate::backend::{RecordingRecord, Result};

/// The table of recordings, new in format 4.
pub(crate) const TABLE: &str = "
CREATE TABLE recording (
    seq        INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    fork       TEXT,
    after_run  INTEGER NOT NULL CHECK (after_run >= 0),
    last_run   INTEGER CHECK (last_run IS NULL OR last_run >= after_run),
    started_at INTEGER NOT NULL,
    stopped_at INTEGER,
    CHECK ((last_run IS NULL) = (stopped_at IS NULL))
);
";

pub(crate) const PUT: &str = "INSERT INTO recording (name, fork, after_run, last_run, started_at, stopped_at) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                       ON CONFLICT (name) DO UPDATE SET fork = ?2, after_run = ?3, last_run = ?4, \
                       started_at = ?5, stopped_at = ?6";

pub(crate) const DELETE: &str = "DELETE FROM recording WHERE name = ?1";

/// The parameters of [`PUT`].
pub(crate) fn values(recording: &RecordingRecord) -> impl Params + '_ {
    (
        recording.name.as_str(),
        recording.fork.as_ref().map(ForkName::as_str),
        recording.after_run,
        recording.last_run,
        recording.started_at.0,
        recording.stopped_at.map(|at| at.0),
    )
}

fn recording_from(row: &Row<'_>) -> rusqlite::Result<RecordingRecord> {
    let fork: Option<String> = row.get(2)?;
    Ok(RecordingRecord {
        seq: row.get(0)?,
        name: named(row, 1, RecordingName::parse)?,
        fork: fork.map(|_| named(row, 2, ForkName::parse)).transpose()?,
        after_run: row.get(3)?,
        last_run: row.get(4)?,
        started_at: Timestamp(row.get(5)?),
        stopped_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
    })
}

impl Session<'_> {
    pub(crate) fn recordings_all(&self) -> Result<Vec<RecordingRecord>> {
        // A file of an older format that could not be migrated has no recordings.
        if self.backend.format < schema::RECORDED {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT seq, name, fork, after_run, last_run, started_at, stopped_at FROM recording ORDER BY seq";
        self.all(sql, [], recording_from)
    }
}
