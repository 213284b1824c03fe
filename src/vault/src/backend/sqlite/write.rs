//! The write transaction: one at a time, in the order requested, acknowledged when it is on disk.

use std::sync::atomic::Ordering;

use rusqlite::Params;

use avfs_hostfs::lock::FileLock;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    BatchItem, CheckpointName, DIGEST_BYTES, ForkName, MemoKey, RecordingName, RunId, TreeId, VersionId,
};
use avfs_types::pause;

use super::connect::PAGE_BYTES;
use super::read::{Session, run};
use super::{
    SqliteBackend, applications, approvals, batches, maintain, memos, pack, recordings, reserve, runs,
};
use crate::backend::{
    ApplicationRecord, ApprovalRecord, AuditRecord, Backend as _, BackendError, BatchRecord, BlobRecord,
    CheckpointRecord, Durability, ForkRecord, Life, MemoRecord, ObjectKind, Reader, RecordingRecord, Result,
    RunRecord, VersionRecord, Writer,
};

/// No transaction adds as much, as pages are kept in memory until the commit.
const AMPLE_BYTES: u64 = 4 << 30;
/// A transaction that adds at most this many pages is small: the records of a verb.
const SMALL_PAGES: i64 = 16;

const SET_META: &str =
    "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2";
// Update in place: a row keeps its number, by which a sweep knows that it is older than the rows referring to it.
const PUT_BLOB: &str = "INSERT INTO blob (digest, size, codec, data) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (digest) DO UPDATE SET size = ?2, codec = ?3, data = ?4 \
     WHERE size IS NOT ?2 OR codec IS NOT ?3 OR data IS NOT ?4";
const PUT_TREE: &str = "INSERT INTO tree (digest, data) VALUES (?1, ?2) \
     ON CONFLICT (digest) DO UPDATE SET data = ?2 WHERE data IS NOT ?2";
const PUT_VERSION: &str = "INSERT INTO version (digest, root, content_root, parents, run, message, author, at, entries, bytes) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";
const MOVE_FORK: &str = "UPDATE fork SET head = ?3 WHERE name = ?1 AND head = ?2";
const APPEND_AUDIT: &str = "INSERT INTO audit (seq, at, actor, action, subject, before, after, detail, digest) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// The statements that store a run with changes.
const OF_A_RUN: [&str; 7] = [PUT_BLOB, PUT_TREE, PUT_VERSION, MOVE_FORK, runs::PUT, APPEND_AUDIT, SET_META];

/// Prepares the statements for the commit of a run, and does everything else that a connection does before its
/// first write.
pub(crate) fn make_ready(backend: &SqliteBackend) -> Result<()> {
    let mut conn = backend.take_conn()?;
    let ready = conn
        .unmap()
        .and_then(|()| OF_A_RUN.iter().try_for_each(|sql| conn.sql.prepare_cached(sql).map(drop)));
    ready.map_err(|error| backend.translate(error))?;
    backend.give_back(conn);
    Ok(())
}

pub(crate) struct SqliteWriter<'a> {
    // Dropped before `turn`: a rollback must be complete when the next writer's turn begins.
    session: Session<'a>,
    turn: FileLock,
    /// The size of the store at the beginning, if space may run out.
    pages_before: Option<i64>,
    /// The last row of the audit log written by this transaction.
    last: Option<AuditRecord>,
}

impl<'a> SqliteWriter<'a> {
    pub(crate) fn begin(backend: &'a SqliteBackend) -> Result<Self> {
        pause::point("write");
        let turn = backend.turn()?;
        let free = reserve::free_bytes(&backend.path);
        if free.is_some_and(reserve::is_short) {
            let conn = backend.take_conn()?;
            maintain::relieve(backend, &conn);
            backend.give_back(conn);
        }
        let session = Session::begin_to_write(backend)?;
        pause::point("write-begun");
        let may_run_out = free.is_some_and(|free| free < AMPLE_BYTES);
        let pages_before = may_run_out.then(|| pages_of(&session)).transpose()?;
        Ok(Self { session, turn, pages_before, last: None })
    }

    /// Fails if the disk has no room for the new pages twice: in the log, and in the file when the log is checkpointed.
    /// Small transactions may use the rest, and the reserve.
    fn check_room(&self) -> Result<()> {
        let Some(before) = self.pages_before else { return Ok(()) };
        let pages = pages_of(&self.session)?;
        if pages.saturating_sub(before) <= SMALL_PAGES {
            return Ok(());
        }
        let path = &self.session.backend.path;
        let there = std::fs::metadata(path).map_or(0, |meta| meta.len());
        let bytes = u64::try_from(pages).unwrap_or(0).saturating_mul(PAGE_BYTES as u64);
        let needed = bytes.saturating_sub(there).saturating_mul(2);
        match reserve::free_bytes(path).is_some_and(|free| free < needed) {
            true => Err(BackendError::DiskFull { path: path.clone() }),
            false => Ok(()),
        }
    }

    fn execute(&mut self, sql: &str, params: impl Params) -> Result<usize> {
        let connection = &self.session.conn()?.sql;
        let run = || connection.prepare_cached(sql)?.execute(params);
        run().map_err(|error| self.session.backend.translate(error))
    }

    /// The number of the last inserted row.
    fn last_row(&mut self) -> Result<i64> {
        Ok(self.session.conn()?.sql.last_insert_rowid())
    }
}

/// The pages of the store, including those that the transaction has added.
fn pages_of(session: &Session<'_>) -> Result<i64> {
    let count = session.conn()?.sql.pragma_query_value(None, "page_count", |row| row.get(0));
    count.map_err(|error| session.backend.translate(error))
}

fn integer(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Writer for SqliteWriter<'_> {
    fn view(&self) -> &dyn Reader {
        &self.session
    }

    fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.execute(SET_META, (key, value)).map(drop)
    }

    fn put_blobs(&mut self, blobs: &[BlobRecord]) -> Result<()> {
        let connection = &self.session.conn()?.sql;
        let put = || -> rusqlite::Result<()> {
            let mut statement = connection.prepare_cached(PUT_BLOB)?;
            for blob in pack::order(blobs) {
                let values = (blob.id.as_bytes(), integer(blob.size), blob.codec.number(), &blob.data);
                statement.execute(values)?;
            }
            Ok(())
        };
        put().map_err(|error| self.session.backend.translate(error))
    }

    fn put_trees(&mut self, trees: &[(TreeId, Vec<u8>)]) -> Result<()> {
        let connection = &self.session.conn()?.sql;
        let put = || -> rusqlite::Result<()> {
            let mut statement = connection.prepare_cached(PUT_TREE)?;
            for (id, data) in trees {
                statement.execute((id.as_bytes(), data))?;
            }
            Ok(())
        };
        put().map_err(|error| self.session.backend.translate(error))
    }

    fn delete_objects(&mut self, objects: &[(ObjectKind, [u8; DIGEST_BYTES])]) -> Result<()> {
        for (kind, digest) in objects {
            let sql = match kind {
                ObjectKind::Tree => "DELETE FROM tree WHERE digest = ?1",
                ObjectKind::Blob => "DELETE FROM blob WHERE digest = ?1",
            };
            self.execute(sql, [digest.as_slice()])?;
        }
        Ok(())
    }

    fn put_version(&mut self, version: &VersionRecord) -> Result<()> {
        let parents: Vec<u8> = version.marked_parents().flat_map(|parent| parent.0).collect();
        self.execute(
            PUT_VERSION,
            (
                version.id.as_bytes(),
                version.root.as_bytes(),
                version.content.as_bytes(),
                parents,
                &version.run,
                &version.message,
                &version.author,
                version.at.0,
                integer(version.entries),
                integer(version.bytes),
            ),
        )
        .map(drop)
    }

    fn mark_pruned(&mut self, id: &VersionId, at: Timestamp) -> Result<()> {
        self.execute("UPDATE version SET pruned_at = ?2 WHERE digest = ?1", (id.as_bytes(), at.0)).map(drop)
    }

    fn delete_version(&mut self, id: &VersionId) -> Result<()> {
        self.execute("DELETE FROM version WHERE digest = ?1", [id.as_bytes()]).map(drop)
    }

    fn insert_fork(&mut self, fork: &ForkRecord) -> Result<()> {
        let expires_at = match fork.life {
            Life::Persistent => None,
            Life::Ephemeral { expires_at } => Some(expires_at.0),
        };
        self.execute(
            "INSERT INTO fork (name, head, base, parent, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                fork.name.as_str(),
                fork.head.as_bytes(),
                fork.base.as_bytes(),
                fork.parent.as_ref().map(ForkName::as_str),
                fork.created_at.0,
                expires_at,
            ),
        )
        .map(drop)
    }

    fn move_fork(&mut self, name: &ForkName, from: &VersionId, to: &VersionId) -> Result<bool> {
        let moved = self.execute(MOVE_FORK, (name.as_str(), from.as_bytes(), to.as_bytes()))?;
        Ok(moved == 1)
    }

    fn delete_fork(&mut self, name: &ForkName) -> Result<()> {
        self.execute("DELETE FROM checkpoint WHERE fork = ?1", [name.as_str()])?;
        self.execute("DELETE FROM fork WHERE name = ?1", [name.as_str()]).map(drop)
    }

    fn insert_checkpoint(&mut self, checkpoint: &CheckpointRecord) -> Result<()> {
        self.execute(
            "INSERT INTO checkpoint (fork, name, version, automatic, message, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                checkpoint.fork.as_str(),
                checkpoint.name.as_str(),
                checkpoint.version.as_bytes(),
                checkpoint.automatic,
                &checkpoint.message,
                checkpoint.at.0,
            ),
        )
        .map(drop)
    }

    fn delete_checkpoint(&mut self, fork: &ForkName, name: &CheckpointName) -> Result<()> {
        let sql = "DELETE FROM checkpoint WHERE fork = ?1 AND name = ?2";
        self.execute(sql, (fork.as_str(), name.as_str())).map(drop)
    }

    fn put_run(&mut self, run: &RunRecord) -> Result<()> {
        self.execute(runs::PUT, runs::values(run)).map(drop)
    }

    fn put_approval(&mut self, approval: &ApprovalRecord) -> Result<()> {
        self.execute(approvals::PUT, approvals::values(approval)).map(drop)
    }

    fn put_batch(&mut self, batch: &BatchRecord) -> Result<()> {
        self.execute(batches::PUT, batches::values(batch)).map(drop)
    }

    fn put_batch_run(&mut self, item: &BatchItem, run: &RunId) -> Result<()> {
        let number = i64::try_from(item.number).unwrap_or(i64::MAX);
        self.execute(batches::PUT_RUN, (item.batch.as_str(), number, run.as_str())).map(drop)
    }

    fn put_application(&mut self, application: &ApplicationRecord) -> Result<i64> {
        let mut values = applications::values(application);
        if application.seq == 0 {
            self.execute(applications::INSERT, rusqlite::params_from_iter(values))?;
            return self.last_row();
        }
        values.push(application.seq.into());
        self.execute(applications::UPDATE, rusqlite::params_from_iter(values))?;
        Ok(application.seq)
    }

    fn put_recording(&mut self, recording: &RecordingRecord) -> Result<()> {
        self.execute(recordings::PUT, recordings::values(recording)).map(drop)
    }

    fn delete_recording(&mut self, name: &RecordingName) -> Result<()> {
        self.execute(recordings::DELETE, [name.as_str()]).map(drop)
    }

    fn put_memo(&mut self, memo: &MemoRecord) -> Result<()> {
        self.execute(memos::PUT, memos::values(memo)).map(drop)
    }

    fn delete_memo(&mut self, key: &MemoKey) -> Result<()> {
        self.execute("DELETE FROM memo WHERE key = ?1", [key.as_bytes()]).map(drop)
    }

    fn append_audit(&mut self, record: &AuditRecord) -> Result<()> {
        self.execute(
            APPEND_AUDIT,
            (
                record.seq,
                record.at.0,
                &record.actor,
                &record.action,
                &record.subject,
                record.before.as_ref().map(<[u8; DIGEST_BYTES]>::as_slice),
                record.after.as_ref().map(<[u8; DIGEST_BYTES]>::as_slice),
                &record.detail,
                record.digest.as_bytes(),
            ),
        )
        .map(drop)?;
        self.last = Some(record.clone());
        Ok(())
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        self.check_room()?;
        let Self { session, turn, last, .. } = *self;
        let backend = session.backend;
        let conn = session.conn()?;
        pause::point("commit");
        // Only a commit that writes something sets this again.
        conn.log_pages.store(0, Ordering::Relaxed);
        if let Err(error) = run(&conn.sql, "COMMIT").map_err(|error| backend.translate(error)) {
            maintain::after_failed_commit(backend, conn, &error);
            return Err(error);
        }
        pause::point("committed");
        let log_pages = conn.log_pages.load(Ordering::Relaxed);
        maintain::after_commit_in_turn(backend, conn, log_pages);
        drop(turn);
        drop(session);
        match (durability, log_pages) {
            (Durability::Deferred | Durability::Grouped, _) => {}
            // Nothing was written, but the state that this commit is based on may not be on disk yet.
            (Durability::Synced, 0) => {
                if !backend.is_synced()? {
                    backend.flush()?;
                }
            }
            (Durability::Synced, _) => {
                // A disk error seen by the background checkpoint fails this commit too.
                backend.mover.wait();
                backend.log.sync()?;
                if let Some(last) = &last {
                    backend.note_head(last);
                }
            }
        }
        if log_pages > 0 {
            maintain::after_commit(backend, log_pages, durability);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sqlite::OpenOptions;

    #[test]
    fn writers_do_not_map_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let backend = SqliteBackend::create(&dir.path().join("vault.db"), OpenOptions::default()).unwrap();
        let mapped = |session: &Session<'_>| {
            let sql = &session.conn().unwrap().sql;
            sql.pragma_query_value(None, "mmap_size", |row| row.get::<_, i64>(0)).unwrap() > 0
        };
        assert!(mapped(&Session::begin(&backend).unwrap()));
        assert!(!mapped(&SqliteWriter::begin(&backend).unwrap().session));
    }

    #[test]
    fn storing_a_run_needs_no_ephemeral_table() {
        let dir = tempfile::tempdir().unwrap();
        let backend = SqliteBackend::create(&dir.path().join("vault.db"), OpenOptions::default()).unwrap();
        let conn = backend.take_conn().unwrap();
        for sql in OF_A_RUN {
            let mut explained = conn.sql.prepare(&format!("EXPLAIN {sql}")).unwrap();
            let steps = explained.raw_query().mapped(|row| row.get::<_, String>("opcode"));
            let steps: Vec<String> = steps.map(|step| step.unwrap()).collect();
            assert!(steps.iter().any(|step| step == "Insert" || step == "IdxInsert"), "{sql}: {steps:?}");
            assert!(!steps.iter().any(|step| step == "OpenEphemeral"), "{sql}");
        }
    }
}
