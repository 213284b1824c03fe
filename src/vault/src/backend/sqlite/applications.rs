//! The rows and queries of applications: changes written to the bound directory.

use rusqlite::types::Type;
use rusqlite::{Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, RunId, VersionId, from_hex, to_hex};
use avfs_types::path::TreePath;

use super::read::{Session, named};
use super::schema;
use crate::backend::{ApplicationRecord, Result};

/// The table of applications, new in format 5.
pub(crate) const TABLE: &str = "
CREATE TABLE application (
    seq        INTEGER PRIMARY KEY,
    fork       TEXT NOT NULL,
    runs       TEXT NOT NULL,
    base       BLOB NOT NULL CHECK (length(base) = 32),
    changed    BLOB NOT NULL CHECK (length(changed) = 32),
    choice     TEXT NOT NULL,
    already    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    undone_at  INTEGER,
    expires_at INTEGER NOT NULL
);
CREATE INDEX application_fork ON application (fork, seq);
CREATE INDEX application_expires ON application (expires_at);
";

pub(crate) const INSERT: &str = "INSERT INTO application (fork, runs, base, changed, choice, already, \
                          started_at, ended_at, undone_at, expires_at) \
                          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

pub(crate) const UPDATE: &str = "UPDATE application SET fork = ?1, runs = ?2, base = ?3, changed = ?4, choice = ?5, \
                          already = ?6, started_at = ?7, ended_at = ?8, undone_at = ?9, expires_at = ?10 \
                          WHERE seq = ?11";

const COLUMNS: &str =
    "seq, fork, runs, base, changed, choice, already, started_at, ended_at, undone_at, expires_at";

/// The parameters of [`INSERT`]; [`UPDATE`] also takes the sequence number.
pub(crate) fn values(of: &ApplicationRecord) -> Vec<rusqlite::types::Value> {
    let runs: Vec<&str> = of.runs.iter().map(RunId::as_str).collect();
    let already: Vec<String> = of.already.iter().map(|path| to_hex(path.as_bytes())).collect();
    let time = |at: Option<Timestamp>| at.map_or(rusqlite::types::Value::Null, |at| at.0.into());
    vec![
        of.fork.as_str().to_owned().into(),
        runs.join(" ").into(),
        of.before.0.to_vec().into(),
        of.after.0.to_vec().into(),
        of.choice.clone().into(),
        already.join(" ").into(),
        of.started_at.0.into(),
        time(of.ended_at),
        time(of.undone_at),
        of.expires_at.0.into(),
    ]
}

fn application_from(row: &Row<'_>) -> rusqlite::Result<ApplicationRecord> {
    let runs: String = row.get(2)?;
    let runs =
        runs.split(' ').filter(|id| !id.is_empty()).map(RunId::parse).collect::<std::result::Result<_, _>>();
    let already: String = row.get(6)?;
    let already = already.split(' ').filter(|hex| !hex.is_empty());
    let already = already.map(|hex| TreePath::parse(&from_hex(hex)?).ok()).collect::<Option<Vec<_>>>();
    let unreadable = |column, error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error);
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp));
    Ok(ApplicationRecord {
        seq: row.get(0)?,
        fork: named(row, 1, ForkName::parse)?,
        runs: runs.map_err(|error| unreadable(2, Box::new(error)))?,
        before: VersionId(row.get(3)?),
        after: VersionId(row.get(4)?),
        choice: row.get(5)?,
        already: already.ok_or_else(|| unreadable(6, "invalid path".into()))?,
        started_at: Timestamp(row.get(7)?),
        ended_at: time(8)?,
        undone_at: time(9)?,
        expires_at: Timestamp(row.get(10)?),
    })
}

impl Session<'_> {
    fn applications(&self, rest: &str, params: impl Params) -> Result<Vec<ApplicationRecord>> {
        // A file of an older format that could not be migrated has no applications.
        if self.backend.format < schema::APPLIED {
            return Ok(Vec::new());
        }
        self.all(&format!("SELECT {COLUMNS} FROM application {rest}"), params, application_from)
    }

    pub(crate) fn applications_of(&self, fork: &ForkName) -> Result<Vec<ApplicationRecord>> {
        self.applications("WHERE fork = ?1 ORDER BY seq DESC", [fork.as_str()])
    }

    pub(crate) fn applications_since(&self, at: Timestamp) -> Result<Vec<ApplicationRecord>> {
        self.applications("WHERE expires_at > ?1 ORDER BY seq DESC", [at.0])
    }
}
