//! Keeps the write-ahead log (WAL) short, returns free space, and runs SQLite's integrity check.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use avfs_hostfs::threads::shielded;

use super::read::{Session, run};
use super::{Conn, SqliteBackend, connect};
use crate::backend::{Backend, BackendError, Durability, Result, next_rows};

/// A process that closes the vault checkpoints the WAL if it is longer than this. A new process reads the whole WAL
/// before its first query, so it is kept short; a checkpoint waits for the disk, so it is not done for every
/// commit.
const LOG_PAGES_LEFT: i32 = 256;
/// The same if the WAL has more pages than this that are new in the file: on a full disk the reserve has to suffice for
/// the checkpoint.
const NEW_PAGES_LEFT: i64 = 64;
/// The WAL is checkpointed after a commit each time it grows by this many pages, concurrently with other writers.
const LOG_PAGES_EASY: i32 = 512;
/// A small commit is shorter than this, so one of many writers notices that such a multiple was passed.
const COMMIT_PAGES: i32 = 16;
/// Above this length a separate thread checkpoints the WAL while bulk work continues to write.
const LOG_PAGES_BULK: i32 = 2048;
/// Above this length the writer checkpoints during its turn: concurrently with steady writers a checkpoint would
/// never finish.
const LOG_PAGES_MAX: i32 = 6144;
/// How long `settle` waits for readers of the old WAL.
const SETTLE_PATIENCE: Duration = Duration::from_millis(100);
/// Pages freed in one step; each step is a short transaction.
const SHRINK_STEP_PAGES: usize = 1000;
/// Pages freed in the first step on a disk that is short of space: the log has to fit.
const SHRINK_STEP_PAGES_FIRST: usize = 16;

/// The thread that checkpoints the WAL in the background, if one is running.
#[derive(Default)]
pub(crate) struct Mover(Mutex<Option<JoinHandle<()>>>);

impl Mover {
    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a background checkpoint, unless one is running.
    fn start(&self, backend: &SqliteBackend) {
        let mut running = self.lock();
        if running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (path, access, options) = (backend.path.clone(), backend.access, backend.options);
        let unsynced = backend.log.unsynced.clone();
        let work = move || {
            let moved = connect::open_as(&path, access, &options).and_then(|conn| {
                move_log(&conn, "PASSIVE").map_err(|error| {
                    unsynced.hear(&error);
                    connect::translate(&path, error)
                })
            });
            report(moved);
        };
        let thread = shielded(|| std::thread::Builder::new().spawn(work));
        // If no thread can be created, the writer itself checkpoints a little later.
        *running = thread.ok();
    }

    /// Waits for the background checkpoint to end.
    pub(crate) fn wait(&self) {
        if let Some(thread) = self.lock().take() {
            // The thread reports its own failures; pages it did not move are moved later.
            let _ = thread.join();
        }
    }
}

/// Logs a failed checkpoint. The commit is not affected: pages that could not be moved stay in the WAL, intact. If
/// the disk refused them, commits that are not acknowledged yet fail (`Unsynced`).
fn report(moved: Result<()>) {
    if let Err(error) = moved {
        tracing::warn!(%error, "cannot checkpoint the write-ahead log into the vault file");
    }
}

/// Checkpoints and truncates the WAL on a disk that is short of space. The caller holds the turn, so that the WAL is
/// empty when the next transaction starts: a checkpoint adds new pages to the file, and on a full disk a WAL with new
/// pages could neither be checkpointed nor freed.
pub(crate) fn relieve(backend: &SqliteBackend, conn: &Conn) {
    if backend.log.is_empty() {
        return;
    }
    backend.mover.wait();
    let patience = |patience| conn.sql.busy_timeout(patience).map_err(|error| backend.translate(error));
    let emptied = patience(Duration::ZERO)
        .and_then(|()| checkpoint(backend, conn, "TRUNCATE"))
        .and_then(|()| backend.log.sync_cut());
    report(emptied.and_then(|()| patience(backend.patience())));
}

/// Ends a commit that failed. What it has added to the WAL would take up the rest of a full disk.
pub(crate) fn after_failed_commit(backend: &SqliteBackend, conn: &Conn, error: &BackendError) {
    let is_over = conn.sql.is_autocommit() || run(&conn.sql, "ROLLBACK").is_ok();
    if is_over && matches!(error, BackendError::DiskFull { .. }) {
        relieve(backend, conn);
    }
}

pub(crate) fn after_commit_in_turn(backend: &SqliteBackend, conn: &Conn, log_pages: i32) {
    if backend.shortage().is_some() {
        relieve(backend, conn);
    }
    if log_pages > LOG_PAGES_MAX {
        backend.mover.wait();
        report(checkpoint(backend, conn, "PASSIVE"));
    }
}

pub(crate) fn after_commit(backend: &SqliteBackend, log_pages: i32, durability: Durability) {
    backend.log.set_pages(log_pages);
    let wants_move = match durability {
        Durability::Deferred => log_pages > LOG_PAGES_BULK,
        Durability::Grouped => false,
        Durability::Synced => log_pages > LOG_PAGES_EASY && log_pages % LOG_PAGES_EASY < COMMIT_PAGES,
    };
    if wants_move && log_pages <= LOG_PAGES_MAX {
        backend.mover.start(backend);
    }
}

/// Checkpoints a long WAL, unless other connections use it: then the last of them does it.
///
/// The WAL is truncated, not only checkpointed: a process that opens it reads all of it, checkpointed or not. The
/// writer that starts a new WAL relies on the file being empty on disk too.
pub(crate) fn before_close(backend: &SqliteBackend) {
    let pages = backend.log.pages();
    if i64::from(pages) <= NEW_PAGES_LEFT {
        return;
    }
    report(backend.take_conn().and_then(|conn| {
        if pages <= LOG_PAGES_LEFT && new_pages(backend, &conn)? <= NEW_PAGES_LEFT {
            return Ok(());
        }
        let no_patience = conn.sql.busy_timeout(Duration::ZERO);
        no_patience.map_err(|error| backend.translate(error))?;
        checkpoint(backend, &conn, "TRUNCATE")?;
        backend.log.sync_cut()
    }));
}

/// The pages in the WAL for which a checkpoint has to extend the file.
fn new_pages(backend: &SqliteBackend, conn: &Conn) -> Result<i64> {
    let count = conn.sql.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0));
    let count = count.map_err(|error| backend.translate(error))?;
    let there = std::fs::metadata(&backend.path).map_or(0, |meta| meta.len()) / connect::PAGE_BYTES as u64;
    Ok(count.saturating_sub(i64::try_from(there).unwrap_or(i64::MAX)))
}

/// Checkpoints as much of the WAL as possible; a reader that prevents it is not a failure.
fn checkpoint(backend: &SqliteBackend, conn: &Conn, mode: &str) -> Result<()> {
    move_log(conn, mode).map_err(|error| backend.translate(error))
}

fn move_log(conn: &Conn, mode: &str) -> rusqlite::Result<()> {
    conn.order_writes(true)?;
    conn.sql.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
}

pub(crate) fn settle(backend: &SqliteBackend) -> Result<()> {
    let _turn = backend.turn()?;
    avfs_types::pause::point("settle");
    backend.mover.wait();
    let conn = backend.take_conn()?;
    // Do not wait long for readers: every writer queues behind this turn, and the WAL can be truncated later.
    let patience = |patience| conn.sql.busy_timeout(patience).map_err(|error| backend.translate(error));
    patience(SETTLE_PATIENCE.min(backend.patience()))?;
    let settled = checkpoint(backend, &conn, "TRUNCATE").and_then(|()| backend.log.sync_cut());
    patience(backend.patience())?;
    backend.give_back(conn);
    settled
}

pub(crate) fn shrink(backend: &SqliteBackend, progress: &dyn Fn(u64)) -> Result<()> {
    let mut step = if backend.shortage().is_some() { SHRINK_STEP_PAGES_FIRST } else { SHRINK_STEP_PAGES };
    let mut left = u64::MAX;
    loop {
        avfs_types::pause::point("shrink");
        let (free_pages, page_bytes) = {
            let session = Session::begin(backend)?;
            let pragma = |name| {
                let number = session.conn()?.sql.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
                number.map(|n| u64::try_from(n).unwrap_or(0)).map_err(|error| backend.translate(error))
            };
            (pragma("freelist_count")?, pragma("page_size")?)
        };
        progress(free_pages * page_bytes);
        // A file with incremental vacuum turned off frees nothing this way.
        if free_pages == 0 || free_pages >= left {
            return settle(backend);
        }
        match shrink_by(backend, step) {
            Ok(log_pages) => {
                left = free_pages;
                backend.log.set_pages(log_pages);
                step = next_rows(backend, step, SHRINK_STEP_PAGES);
            }
            // The log has no room for that many pages.
            Err(BackendError::DiskFull { .. }) if step > 1 => {
                step = (step / 4).max(1);
                continue;
            }
            Err(error) => return Err(error),
        }
        // Otherwise every moved page would make the WAL longer.
        match settle(backend) {
            // The log has pages for which the file would have to grow; the next step may remove them.
            Err(BackendError::DiskFull { .. }) => {}
            settled => settled?,
        }
    }
}

/// Moves pages from the end of the file to unused ones, and shortens the file.
/// Returns the pages that this took in the WAL.
fn shrink_by(backend: &SqliteBackend, pages: usize) -> Result<i32> {
    let _turn = backend.turn()?;
    let conn = backend.take_conn()?;
    conn.log_pages.store(0, Ordering::Relaxed);
    let step = || -> rusqlite::Result<()> {
        conn.order_writes(true)?;
        let mut statement = conn.sql.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    };
    let stepped = step().map_err(|error| backend.translate(error));
    if let Err(error) = &stepped {
        after_failed_commit(backend, &conn, error);
    }
    let log_pages = conn.log_pages.load(Ordering::Relaxed);
    backend.give_back(conn);
    stepped.map(|()| log_pages)
}

pub(crate) fn integrity(backend: &SqliteBackend) -> Result<Vec<String>> {
    let session = Session::begin(backend)?;
    let ask = || -> rusqlite::Result<Vec<String>> {
        let sql = &session.conn().map_err(|_| rusqlite::Error::InvalidQuery)?.sql;
        let mut statement = sql.prepare("PRAGMA integrity_check")?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let lines = ask().map_err(|error| backend.translate(error))?;
    backend.check_steady()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}
