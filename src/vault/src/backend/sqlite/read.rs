//! Transactions and their queries.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Params, Row};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    ApprovalPrefix, AuditDigest, BatchId, BatchPrefix, BlobId, CheckpointName, ContentId, DIGEST_BYTES,
    ForkName, MemoKey, PartDigest, RequestDigest, RunId, RunPrefix, TreeId, VersionId, from_hex,
};

use super::{Conn, SqliteBackend, connect, own_lock};
use crate::backend::{
    ApplicationRecord, ApprovalRecord, AuditRecord, BackendError, BatchRecord, BlobRecord, CheckpointRecord,
    Codec, ForkRecord, Life, MemoRecord, ObjectKind, Reader, RecordingRecord, Result, RunRecord, Usage,
    VersionRecord,
};

/// A connection inside a transaction: reading, or the reading half of a writer.
pub(crate) struct Session<'a> {
    pub(crate) backend: &'a SqliteBackend,
    conn: Option<Conn>,
}

impl<'a> Session<'a> {
    pub(crate) fn begin(backend: &'a SqliteBackend) -> Result<Self> {
        Self::of(backend, SqliteBackend::take_conn, "BEGIN")
    }

    pub(crate) fn begin_unmapped(backend: &'a SqliteBackend) -> Result<Self> {
        let unmapped = |backend: &SqliteBackend| {
            let mut conn = backend.take_conn()?;
            conn.unmap().map_err(|error| backend.translate(error))?;
            Ok(conn)
        };
        Self::of(backend, unmapped, "BEGIN")
    }

    /// Begins a write transaction; the caller must hold the turn to write.
    pub(crate) fn begin_to_write(backend: &'a SqliteBackend) -> Result<Self> {
        // The turn keeps other writers away, so this rarely has to wait.
        let at_once = |sql: &Connection| {
            sql.busy_timeout(Duration::ZERO)?;
            let begun = run(sql, "BEGIN IMMEDIATE");
            sql.busy_timeout(backend.patience())?;
            begun
        };
        match Self::try_begin(backend, Self::conn_to_write, at_once)? {
            Ok(session) => Ok(session),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                if own_lock::is_held(&backend.path) {
                    backend.release_locks(own_lock::is_held)?;
                }
                Self::of(backend, Self::conn_to_write, "BEGIN IMMEDIATE")
            }
            Err(error) => Err(backend.translate(error)),
        }
    }

    fn conn_to_write(backend: &SqliteBackend) -> Result<Conn> {
        let mut conn = backend.take_conn()?;
        let orders_writes = !backend.log.is_empty();
        conn.unmap()
            .and_then(|()| conn.order_writes(orders_writes))
            .map_err(|error| backend.translate(error))?;
        Ok(conn)
    }

    fn of(
        backend: &'a SqliteBackend,
        conn: impl Fn(&SqliteBackend) -> Result<Conn>,
        begin: &str,
    ) -> Result<Self> {
        Self::try_begin(backend, conn, |sql| run(sql, begin))?.map_err(|error| backend.translate(error))
    }

    /// Begins a transaction. If this process could not release the lock of a read mark, SQLite waits for it for ten
    /// seconds, as if another connection had it, and gives up; the second attempt is made without that lock. A read
    /// transaction takes its lock with its first query: that query fails, and the next transaction works.
    fn try_begin(
        backend: &'a SqliteBackend,
        conn: impl Fn(&SqliteBackend) -> Result<Conn>,
        begin: impl Fn(&Connection) -> rusqlite::Result<()>,
    ) -> Result<rusqlite::Result<Self>> {
        let mut conn_in_use = conn(backend)?;
        let mut begun = begin(&conn_in_use.sql);
        if begun.as_ref().is_err_and(connect::gave_up_on_a_lock) && own_lock::is_mark_held(&backend.path) {
            drop(conn_in_use);
            backend.release_locks(own_lock::is_mark_held)?;
            conn_in_use = conn(backend)?;
            begun = begin(&conn_in_use.sql);
        }
        let conn = conn_in_use;
        Ok(match begun {
            Ok(()) => Ok(Self { backend, conn: Some(conn) }),
            Err(error) => {
                // After another error its transaction may be unfinished.
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && conn.sql.is_autocommit() {
                    backend.give_back(conn);
                }
                Err(error)
            }
        })
    }

    pub(crate) fn conn(&self) -> Result<&Conn> {
        self.conn.as_ref().ok_or_else(|| self.damaged("a finished transaction was used"))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // A connection whose transaction cannot be ended must not be reused, and one that gave up on a lock keeps it.
        if let Some(conn) = self.conn.take()
            && !self.backend.gave_up.load(Relaxed)
            && (conn.sql.is_autocommit() || run(&conn.sql, "ROLLBACK").is_ok())
        {
            self.backend.give_back(conn);
        }
    }
}

/// Runs a cached prepared statement.
pub(crate) fn run(sql: &Connection, statement: &str) -> rusqlite::Result<()> {
    sql.prepare_cached(statement)?.execute([]).map(|_| ())
}

const VERSION_COLUMNS: &str =
    "digest, root, content_root, parents, run, message, author, at, entries, bytes, pruned_at";
const FORK_COLUMNS: &str = "name, head, base, parent, created_at, expires_at";
const AUDIT_COLUMNS: &str = "seq, at, actor, action, subject, before, after, detail, digest";
const CHECKPOINT_COLUMNS: &str = "fork, name, version, automatic, message, at";

impl Session<'_> {
    pub(crate) fn damaged(&self, detail: impl Into<String>) -> BackendError {
        BackendError::Corrupt { path: self.backend.path.clone(), detail: detail.into() }
    }

    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let sql_conn = &self.conn()?.sql;
        let query = || sql_conn.prepare_cached(sql)?.query_row(params, read).optional();
        let found = query().map_err(|error| self.backend.translate(error))?;
        self.check_steady()?;
        Ok(found)
    }

    /// Fails if the file was read without locks and changed since: the data read may be inconsistent.
    fn check_steady(&self) -> Result<()> {
        let Some(stood) = self.conn()?.stand else { return Ok(()) };
        if self.backend.stand_now().is_some_and(|now| stood.is_unwritten(&now)) {
            return Ok(());
        }
        Err(BackendError::Unsteady { path: self.backend.path.clone() })
    }

    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let sql_conn = &self.conn()?.sql;
        let query =
            || sql_conn.prepare_cached(sql)?.query_map(params, read)?.collect::<rusqlite::Result<_>>();
        let found = query().map_err(|error| self.backend.translate(error))?;
        self.check_steady()?;
        Ok(found)
    }

    pub(crate) fn number(&self, sql: &str) -> Result<u64> {
        let number = self.one(sql, [], |row| row.get::<_, i64>(0))?.unwrap_or(0);
        u64::try_from(number).map_err(|_| self.damaged(format!("{sql} gives {number}")))
    }

    /// The last row of the audit log.
    pub(crate) fn last_audit(&self) -> Result<Option<AuditRecord>> {
        let last = self.one("SELECT max(seq) FROM audit", [], |row| row.get::<_, Option<i64>>(0))?.flatten();
        let Some(last) = last else { return Ok(None) };
        Ok(self.audit_after(last - 1, 1)?.pop())
    }

    fn version_from(row: &Row<'_>) -> rusqlite::Result<VersionRecord> {
        let parents: Vec<u8> = row.get(3)?;
        let parents = parents.chunks(DIGEST_BYTES).filter_map(VersionId::from_slice).collect();
        let (parents, extent) = VersionRecord::unmark(parents);
        Ok(VersionRecord {
            id: VersionId(row.get(0)?),
            root: TreeId(row.get(1)?),
            content: ContentId(row.get(2)?),
            parents,
            extent,
            run: row.get(4)?,
            message: row.get(5)?,
            author: row.get(6)?,
            at: Timestamp(row.get(7)?),
            entries: u64::try_from(row.get::<_, i64>(8)?).unwrap_or(0),
            bytes: u64::try_from(row.get::<_, i64>(9)?).unwrap_or(0),
            pruned_at: row.get::<_, Option<i64>>(10)?.map(Timestamp),
        })
    }

    fn fork_from(row: &Row<'_>) -> rusqlite::Result<ForkRecord> {
        let expires_at: Option<i64> = row.get(5)?;
        Ok(ForkRecord {
            name: named(row, 0, ForkName::parse)?,
            head: VersionId(row.get(1)?),
            base: VersionId(row.get(2)?),
            parent: match row.get::<_, Option<String>>(3)? {
                Some(_) => Some(named(row, 3, ForkName::parse)?),
                None => None,
            },
            created_at: Timestamp(row.get(4)?),
            life: expires_at.map_or(Life::Persistent, |at| Life::Ephemeral { expires_at: Timestamp(at) }),
        })
    }

    fn checkpoint_from(row: &Row<'_>) -> rusqlite::Result<CheckpointRecord> {
        Ok(CheckpointRecord {
            fork: named(row, 0, ForkName::parse)?,
            name: named(row, 1, CheckpointName::parse)?,
            version: VersionId(row.get(2)?),
            automatic: row.get(3)?,
            message: row.get(4)?,
            at: Timestamp(row.get(5)?),
        })
    }
}

/// Parses a name column. A name that does not parse means that the row was edited by another program.
pub(crate) fn named<T>(
    row: &Row<'_>,
    column: usize,
    parse: impl Fn(&str) -> std::result::Result<T, avfs_types::ids::NameError>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    let as_conversion = |error: avfs_types::ids::NameError| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    };
    parse(&text).map_err(as_conversion)
}

pub(crate) fn limit(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Reader for Session<'_> {
    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.one("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
    }

    fn blob(&self, id: &BlobId) -> Result<Option<BlobRecord>> {
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get(2)?));
        let found =
            self.one("SELECT size, codec, data FROM blob WHERE digest = ?1", [id.as_bytes()], read)?;
        let Some((size, codec, data)) = found else { return Ok(None) };
        let codec = Codec::from_number(codec)
            .ok_or_else(|| self.damaged(format!("blob {} has unknown codec {codec}", id.short())))?;
        let size =
            u64::try_from(size).map_err(|_| self.damaged(format!("blob {} has size {size}", id.short())))?;
        Ok(Some(BlobRecord { id: *id, size, codec, data }))
    }

    fn has_blob(&self, id: &BlobId) -> Result<bool> {
        Ok(self.one("SELECT 1 FROM blob WHERE digest = ?1", [id.as_bytes()], |_| Ok(()))?.is_some())
    }

    fn tree(&self, id: &TreeId) -> Result<Option<Vec<u8>>> {
        self.one("SELECT data FROM tree WHERE digest = ?1", [id.as_bytes()], |row| row.get(0))
    }

    fn has_tree(&self, id: &TreeId) -> Result<bool> {
        Ok(self.one("SELECT 1 FROM tree WHERE digest = ?1", [id.as_bytes()], |_| Ok(()))?.is_some())
    }

    fn version(&self, id: &VersionId) -> Result<Option<VersionRecord>> {
        let sql = format!("SELECT {VERSION_COLUMNS} FROM version WHERE digest = ?1");
        self.one(&sql, [id.as_bytes()], Self::version_from)
    }

    fn versions_with_prefix(&self, hex: &str, at_most: usize) -> Result<Vec<VersionId>> {
        let padded = |digit: char| {
            let text: String = hex.chars().chain(std::iter::repeat(digit)).take(2 * DIGEST_BYTES).collect();
            from_hex(&text).unwrap_or_default()
        };
        self.all(
            "SELECT digest FROM version WHERE digest BETWEEN ?1 AND ?2 LIMIT ?3",
            (padded('0'), padded('f'), limit(at_most)),
            |row| Ok(VersionId(row.get(0)?)),
        )
    }

    fn version_of_run(&self, run: &str) -> Result<Option<VersionId>> {
        let sql = "SELECT digest FROM version WHERE run = ?1 ORDER BY id DESC LIMIT 1";
        self.one(sql, [run], |row| Ok(VersionId(row.get(0)?)))
    }

    fn version_ids(&self) -> Result<Vec<VersionId>> {
        self.all("SELECT digest FROM version ORDER BY id", [], |row| Ok(VersionId(row.get(0)?)))
    }

    fn versions_kept(&self) -> Result<u64> {
        self.number("SELECT count(*) FROM version WHERE pruned_at IS NULL")
    }

    fn fork(&self, name: &ForkName) -> Result<Option<ForkRecord>> {
        let sql = format!("SELECT {FORK_COLUMNS} FROM fork WHERE name = ?1");
        self.one(&sql, [name.as_str()], Self::fork_from)
    }

    fn forks(&self) -> Result<Vec<ForkRecord>> {
        let sql = format!("SELECT {FORK_COLUMNS} FROM fork ORDER BY created_at, name");
        self.all(&sql, [], Self::fork_from)
    }

    fn forks_expired(&self, now: Timestamp) -> Result<Vec<ForkRecord>> {
        let sql = format!("SELECT {FORK_COLUMNS} FROM fork WHERE expires_at <= ?1 ORDER BY name");
        self.all(&sql, [now.0], Self::fork_from)
    }

    fn checkpoint(&self, fork: &ForkName, name: &CheckpointName) -> Result<Option<CheckpointRecord>> {
        let sql = format!("SELECT {CHECKPOINT_COLUMNS} FROM checkpoint WHERE fork = ?1 AND name = ?2");
        self.one(&sql, (fork.as_str(), name.as_str()), Self::checkpoint_from)
    }

    fn checkpoints(&self) -> Result<Vec<CheckpointRecord>> {
        let sql = format!("SELECT {CHECKPOINT_COLUMNS} FROM checkpoint ORDER BY id");
        self.all(&sql, [], Self::checkpoint_from)
    }

    fn checkpoints_of_fork(&self, fork: &ForkName) -> Result<Vec<CheckpointRecord>> {
        let sql = format!("SELECT {CHECKPOINT_COLUMNS} FROM checkpoint WHERE fork = ?1 ORDER BY id");
        self.all(&sql, [fork.as_str()], Self::checkpoint_from)
    }

    fn run(&self, id: &RunId) -> Result<Option<RunRecord>> {
        self.run_by_id(id)
    }

    fn runs_with_prefix(&self, prefix: &RunPrefix, at_most: usize) -> Result<Vec<RunRecord>> {
        self.runs_by_prefix(prefix, at_most)
    }

    fn runs(&self, before: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        self.runs_before(before, at_most)
    }

    fn runs_of_fork(&self, fork: &ForkName, before: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        self.runs_of(fork, before, at_most)
    }

    fn batches_with_prefix(&self, prefix: &BatchPrefix, at_most: usize) -> Result<Vec<BatchRecord>> {
        self.batches_by_prefix(prefix, at_most)
    }

    fn batches(&self, at_most: usize) -> Result<Vec<BatchRecord>> {
        self.newest_batches(at_most)
    }

    fn batch_runs(
        &self,
        batch: &BatchId,
        after: (u64, i64),
        at_most: usize,
    ) -> Result<Vec<(u64, RunRecord)>> {
        self.runs_of_batch(batch, after, at_most)
    }

    fn batch_runs_astray(&self, at_most: usize) -> Result<Vec<(String, i64, String)>> {
        self.batch_runs_of_no_run(at_most)
    }

    fn runs_after(&self, after: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        self.runs_since(after, at_most)
    }

    fn runs_of_fork_after(&self, fork: &ForkName, after: i64, at_most: usize) -> Result<Vec<RunRecord>> {
        self.runs_of_since(fork, after, at_most)
    }

    fn applications_of_fork(&self, fork: &ForkName) -> Result<Vec<ApplicationRecord>> {
        self.applications_of(fork)
    }

    fn applications_after(&self, at: Timestamp) -> Result<Vec<ApplicationRecord>> {
        self.applications_since(at)
    }

    fn recordings(&self) -> Result<Vec<RecordingRecord>> {
        self.recordings_all()
    }

    fn approvals_with_prefix(&self, prefix: &ApprovalPrefix, at_most: usize) -> Result<Vec<ApprovalRecord>> {
        self.approvals_by_prefix(prefix, at_most)
    }

    fn approvals_of(&self, digest: &RequestDigest) -> Result<Vec<ApprovalRecord>> {
        self.approvals_for(digest)
    }

    fn approvals(&self, before: i64, at_most: usize) -> Result<Vec<ApprovalRecord>> {
        self.approvals_before(before, at_most)
    }

    fn memo(&self, key: &MemoKey) -> Result<Option<MemoRecord>> {
        self.memo_by_key(key)
    }

    fn memo_of_run(&self, run: &RunId) -> Result<Option<MemoRecord>> {
        self.memo_by_run(run)
    }

    fn memos_of_command(&self, command: &PartDigest, at_most: usize) -> Result<Vec<MemoRecord>> {
        self.memos_by_command(command, at_most)
    }

    fn memos(&self, before: i64, at_most: usize) -> Result<Vec<MemoRecord>> {
        self.memos_before(before, at_most)
    }

    fn audit_after(&self, after: i64, at_most: usize) -> Result<Vec<AuditRecord>> {
        let sql =
            format!("SELECT {AUDIT_COLUMNS} FROM audit WHERE seq {} ?1 ORDER BY seq LIMIT ?2", behind(after));
        let rows = self.all(&sql, (after, limit(at_most)), audit_from)?;
        self.in_order(rows, after, Ordering::Greater, |row| row.seq)
    }

    fn audit_before(&self, before: i64, at_most: usize) -> Result<Vec<AuditRecord>> {
        let sql = format!(
            "SELECT {AUDIT_COLUMNS} FROM audit WHERE seq {} ?1 ORDER BY seq DESC LIMIT ?2",
            ahead(before)
        );
        let rows = self.all(&sql, (before, limit(at_most)), audit_from)?;
        self.in_order(rows, before, Ordering::Less, |row| row.seq)
    }

    fn usage(&self) -> Result<Usage> {
        let file_bytes = self.file_bytes()?;
        Ok(Usage {
            file_bytes,
            free_bytes: file_bytes.saturating_sub(self.bytes_used()?),
            blobs: self.number("SELECT count(*) FROM blob")?,
            blob_stored_bytes: self.number("SELECT coalesce(sum(length(data)), 0) FROM blob")?,
            blob_content_bytes: self.number("SELECT coalesce(sum(size), 0) FROM blob WHERE codec <> 2")?,
            trees: self.number("SELECT count(*) FROM tree")?,
            tree_bytes: self.number("SELECT coalesce(sum(length(data)), 0) FROM tree")?,
            versions: self.number("SELECT count(*) FROM version")?,
            audit_rows: self.number("SELECT count(*) FROM audit")?,
            runs: self.runs_kept()?,
        })
    }

    fn file_bytes(&self) -> Result<u64> {
        let bytes = self.pragma::<i64>("page_count")? * self.pragma::<i64>("page_size")?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    fn bytes_used(&self) -> Result<u64> {
        let used = self.pragma::<i64>("page_count")? - self.pragma::<i64>("freelist_count")?;
        Ok(u64::try_from(used * self.pragma::<i64>("page_size")?).unwrap_or(0))
    }

    fn objects_before(
        &self,
        kind: ObjectKind,
        before: i64,
        at_most: usize,
    ) -> Result<Vec<(i64, [u8; DIGEST_BYTES])>> {
        let sql = match kind {
            ObjectKind::Tree => "SELECT id, digest FROM tree WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
            ObjectKind::Blob => "SELECT id, digest FROM blob WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
        };
        let rows = self.all(sql, (before, limit(at_most)), |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.in_order(rows, before, Ordering::Less, |(row, _)| *row)
    }
}

fn audit_from(row: &Row<'_>) -> rusqlite::Result<AuditRecord> {
    Ok(AuditRecord {
        seq: row.get(0)?,
        at: Timestamp(row.get(1)?),
        actor: row.get(2)?,
        action: row.get(3)?,
        subject: row.get(4)?,
        before: row.get(5)?,
        after: row.get(6)?,
        detail: row.get(7)?,
        digest: AuditDigest(row.get(8)?),
    })
}

/// The operator for selecting rows before a position. At the end of the range it includes the end itself, where
/// avfs never stores a row: a row stored there by someone else is then reported as out of order instead of being
/// skipped.
pub(crate) fn ahead(of: i64) -> &'static str {
    if of == i64::MAX { "<=" } else { "<" }
}

/// Like [`ahead`], for the rows after a position.
pub(crate) fn behind(of: i64) -> &'static str {
    if of == i64::MIN { ">=" } else { ">" }
}

impl Session<'_> {
    /// Checks that each row is on the given side of the previous one, and the first row of `from`. In a damaged
    /// table they may not be, and paging from the last row would never end.
    pub(crate) fn in_order<T>(
        &self,
        rows: Vec<T>,
        from: i64,
        side: Ordering,
        place: impl Fn(&T) -> i64,
    ) -> Result<Vec<T>> {
        let mut last = from;
        for here in rows.iter().map(place) {
            if here.cmp(&last) != side {
                return Err(self.damaged(format!("row {here} of a table is out of order")));
            }
            last = here;
        }
        Ok(rows)
    }

    fn pragma<T: FromSql>(&self, name: &str) -> Result<T> {
        let sql = &self.conn()?.sql;
        sql.pragma_query_value(None, name, |row| row.get(0)).map_err(|error| self.backend.translate(error))
    }
}
