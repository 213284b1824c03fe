//! The rows and queries of cached results.

use std::cmp::Ordering;

use rusqlite::types::Type;
use rusqlite::{Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{BlobId, MemoKey, PartDigest, RunId, VersionId};

use super::read::{Session, limit};
use super::schema;
use crate::backend::{MemoRecord, Result};

/// The table of cached results.
pub(crate) const TABLE: &str = "
CREATE TABLE memo (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    key            BLOB NOT NULL UNIQUE CHECK (length(key) = 32),
    command        BLOB NOT NULL CHECK (length(command) = 32),
    parts          TEXT NOT NULL,
    run            TEXT NOT NULL UNIQUE CHECK (length(run) = 10),
    exit_code      INTEGER NOT NULL,
    stdout         BLOB NOT NULL CHECK (length(stdout) = 32),
    stderr         BLOB NOT NULL CHECK (length(stderr) = 32),
    stdout_digest  BLOB NOT NULL CHECK (length(stdout_digest) = 32),
    stderr_digest  BLOB NOT NULL CHECK (length(stderr_digest) = 32),
    version_before BLOB CHECK (version_before IS NULL OR length(version_before) = 32),
    version_after  BLOB CHECK (version_after IS NULL OR length(version_after) = 32),
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL
);
CREATE INDEX memo_command ON memo (command, seq);
";

const COLUMNS: &str = "seq, key, command, parts, run, exit_code, stdout, stderr, stdout_digest, stderr_digest, \
                       version_before, version_after, created_at, expires_at";

/// Replaces a whole row with the same key, so that the new one has the highest `seq`.
pub(crate) const PUT: &str = "INSERT OR REPLACE INTO memo (key, command, parts, run, exit_code, stdout, stderr, \
                       stdout_digest, stderr_digest, version_before, version_after, created_at, expires_at) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

/// The parameters of [`PUT`].
pub(crate) fn values(memo: &MemoRecord) -> impl Params + '_ {
    let version = |id: &Option<VersionId>| id.map(|id| id.0.to_vec());
    (
        memo.key.as_bytes(),
        memo.command.as_bytes(),
        &memo.parts,
        memo.run.as_str(),
        memo.exit_code,
        memo.stdout.as_bytes(),
        memo.stderr.as_bytes(),
        memo.stdout_digest.as_slice(),
        memo.stderr_digest.as_slice(),
        version(&memo.version_before),
        version(&memo.version_after),
        memo.created_at.0,
        memo.expires_at.0,
    )
}

fn memo_from(row: &Row<'_>) -> rusqlite::Result<MemoRecord> {
    let run: String = row.get(4)?;
    let run = RunId::parse(&run)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, Box::new(error)))?;
    let version = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<[u8; 32]>>(column)?.map(VersionId));
    Ok(MemoRecord {
        seq: row.get(0)?,
        key: MemoKey(row.get(1)?),
        command: PartDigest(row.get(2)?),
        parts: row.get(3)?,
        run,
        exit_code: row.get(5)?,
        stdout: BlobId(row.get(6)?),
        stderr: BlobId(row.get(7)?),
        stdout_digest: row.get(8)?,
        stderr_digest: row.get(9)?,
        version_before: version(10)?,
        version_after: version(11)?,
        created_at: Timestamp(row.get(12)?),
        expires_at: Timestamp(row.get(13)?),
    })
}

impl Session<'_> {
    pub(crate) fn memo_by_key(&self, key: &MemoKey) -> Result<Option<MemoRecord>> {
        Ok(self.memos_where("WHERE key = ?1", [key.as_bytes()])?.pop())
    }

    pub(crate) fn memo_by_run(&self, run: &RunId) -> Result<Option<MemoRecord>> {
        Ok(self.memos_where("WHERE run = ?1", [run.as_str()])?.pop())
    }

    pub(crate) fn memos_by_command(&self, command: &PartDigest, at_most: usize) -> Result<Vec<MemoRecord>> {
        let params = (command.as_bytes(), limit(at_most));
        self.memos_where("WHERE command = ?1 ORDER BY seq DESC LIMIT ?2", params)
    }

    pub(crate) fn memos_before(&self, before: i64, at_most: usize) -> Result<Vec<MemoRecord>> {
        let rows = self.memos_where("WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2", (before, limit(at_most)))?;
        self.in_order(rows, before, Ordering::Less, |memo| memo.seq)
    }

    fn memos_where(&self, which: &str, params: impl Params) -> Result<Vec<MemoRecord>> {
        // A file of an older format that could not be migrated has no cached results.
        if self.backend.format < schema::RECORDED {
            return Ok(Vec::new());
        }
        self.all(&format!("SELECT {COLUMNS} FROM memo {which}"), params, memo_from)
    }
}
