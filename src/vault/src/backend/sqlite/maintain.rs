//! Keeps the write-ahead log (WAL) short, returns free space, and runs SQLite's integrity check.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use avfs_hostfs::threads::shielded;

use super::read::Session;
use super::{Conn, SqliteBackend, connect};
use crate::backend::{Backend, Durability, Result};

/// A process that closes the vault checkpoints the WAL if it is longer than this. A new process reads the whole WAL
/// before its first query, so it is kept short; a checkpoint waits for the disk, so it is not done for every
/// commit.
const LOG_PAGES_LEFT: i32 = 256;
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
const SHRINK_STEP_PAGES: u64 = 1000;

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

pub(crate) fn after_commit_in_turn(backend: &SqliteBackend, conn: &Conn, log_pages: i32) {
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
    if backend.log.pages() <= LOG_PAGES_LEFT {
        return;
    }
    report(backend.take_conn().and_then(|conn| {
        let no_patience = conn.sql.busy_timeout(Duration::ZERO);
        no_patience.map_err(|error| backend.translate(error))?;
        checkpoint(backend, &conn, "TRUNCATE")?;
        backend.log.sync_cut()
    }));
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
        left = free_pages;
        {
            let _turn = backend.turn()?;
            let conn = backend.take_conn()?;
            let step = || -> rusqlite::Result<()> {
                conn.order_writes(true)?;
                let mut statement =
                    conn.sql.prepare(&format!("PRAGMA incremental_vacuum({SHRINK_STEP_PAGES})"))?;
                let mut rows = statement.query([])?;
                while rows.next()?.is_some() {}
                Ok(())
            };
            let stepped = step();
            backend.give_back(conn);
            stepped.map_err(|error| backend.translate(error))?;
        }
        // Otherwise every moved page would make the WAL longer.
        settle(backend)?;
    }
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
