//! The product's backend: one SQLite file, many processes.
//!
//! A commit has two steps: the transaction under the turn lock (`-lock`, a fair queue), and, after both are
//! released, one fdatasync of the write-ahead log (WAL), so that concurrent writers share a sync. Only then is the
//! commit acknowledged. A deferred commit is not synced itself; the next synced commit covers it. The WAL is never
//! checkpointed inside a commit.

mod applications;
mod approvals;
mod batches;
mod connect;
mod head;
mod log;
mod maintain;
mod memos;
mod own_lock;
mod pack;
mod placeholders;
mod read;
mod recordings;
mod reserve;
mod runs;
mod schema;
mod write;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::{Access, Conn, Stand};
pub use connect::{Mapped, OnClose, OpenOptions, sibling};
use log::Log;
pub use placeholders::Placeholders;
pub use reserve::with_reserve;
use rusqlite::backup::StepResult;
pub use schema::{FORMAT, has_vault_header};

use avfs_hostfs::lock::{FileLock, LockError, Mode};

use super::{AuditRecord, Backend, Guard, Reader, Result, Rollback, Shortage, Writer};
use crate::backend::BackendError;

/// The journal that SQLite plays back into a file. A vault is in WAL mode and never has one, except while it is created
/// under another name.
const JOURNAL: &str = "-journal";
/// The suffixes of all files next to a vault file: `vault.db` → `vault.db-wal`. They are hidden from commands, never
/// part of a version, and removed with the vault.
pub const COMPANIONS: &[&str] = &["-wal", "-shm", JOURNAL, "-head", "-lock", "-use", "-gate", "-reserve"];
/// The companions that SQLite reads, and the record of acknowledged commits in its WAL.
const LOGS: [&str; 4] = ["-wal", "-shm", JOURNAL, "-head"];

/// How long a sweep that waits for pins to end blocks new ones, how often it polls, and how long it then lets
/// others proceed.
const SWEEP_TURN: Duration = Duration::from_secs(1);
const SWEEP_LOOK: Duration = Duration::from_millis(2);
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// How long to wait until no transaction of this process keeps the file open, and how often to look.
const RELEASE_PATIENCE: Duration = Duration::from_secs(1);
const RELEASE_PAUSE: Duration = Duration::from_millis(2);

/// A vault in one SQLite file, in WAL mode. Many processes may use it; one at a time writes.
pub struct SqliteBackend {
    path: PathBuf,
    options: OpenOptions,
    access: Access,
    /// The file that was opened at `path`.
    file: (u64, u64),
    /// The disk may report that it is full with a signal, so free space is checked before each turn.
    small_blocks: bool,
    /// The format of the file; older than [`FORMAT`] only if the file cannot be written.
    format: i64,
    idle: Mutex<Vec<Conn>>,
    /// True if SQLite gave up on a lock that this process may hold itself.
    gave_up: AtomicBool,
    /// The state of the file as of the last connection that reads without locks.
    stand: Mutex<Option<Stand>>,
    log: Log,
    mover: maintain::Mover,
    head: Mutex<head::Head>,
    older_copy: Option<Rollback>,
}

impl SqliteBackend {
    /// Creates an empty store in a new file. Fails if `path` exists.
    pub fn create(path: &Path, options: OpenOptions) -> Result<Self> {
        Self::make_file(path)?;
        Self::create_in(path, options)
    }

    /// Creates only the file, for callers that use it before it becomes a vault.
    pub(crate) fn make_file(path: &Path) -> Result<File> {
        connect::make_file(path)
    }

    /// Creates a vault in a file created by [`Self::make_file`].
    pub(crate) fn create_in(path: &Path, options: OpenOptions) -> Result<Self> {
        let file = file_id(path)?;
        let conn = connect::create(path, &options)?;
        Ok(Self::with(path, file, options, (conn, None), (Access::ReadWrite, FORMAT)))
    }

    /// Why [`SqliteBackend::create`] must refuse a path that is in use.
    #[must_use]
    pub(crate) fn taken(path: &Path, options: &OpenOptions) -> BackendError {
        connect::taken(path, options)
    }

    /// A value of the table `meta` of the vault at a path.
    pub(crate) fn look_up(path: &Path, key: &str, options: &OpenOptions) -> Result<Option<Vec<u8>>> {
        connect::look_up(path, key, options)
    }

    pub(crate) fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        // SQLite keeps its WAL next to the real file, even if the path is a symlink. The locks that hold off a
        // sweep must be there too, or different paths would use different locks.
        let real = std::fs::canonicalize(path).map_err(|error| BackendError::io("open", path, error))?;
        let file = file_id(&real)?;
        connect::check_locks(&real)?;
        placeholders::sweep(&sibling(&real, JOURNAL));
        let acknowledged = head::Acknowledged::read(&real);
        let log = log::open(&real).ok();
        let mut opened = connect::open(&real, &options);
        if matches!(opened, Err(BackendError::LocksUnsupported { .. })) {
            // If this process could not release a lock, it has closed the file now.
            opened = connect::open(&real, &options);
        }
        let (conn, access, format) = opened.map_err(|error| error.after(options.patience))?;
        let older_copy = check_head(&real, &conn, access, &acknowledged)?;
        let log = log.filter(log::is_named);
        if access == Access::ReadWrite && log.is_none() {
            // SQLite has created a new WAL; later syncs cover its content but not its directory entry.
            sync_dir_of(&real)?;
        }
        if access == Access::ReadWrite {
            reserve::make(&real);
        }
        let mut backend = Self::with(&real, file, options, (conn, log), (access, format));
        backend.older_copy = older_copy;
        Ok(backend)
    }

    fn with(
        path: &Path,
        file: (u64, u64),
        options: OpenOptions,
        (conn, log): (Conn, Option<File>),
        (access, format): (Access, i64),
    ) -> Self {
        Self {
            path: path.to_owned(),
            file,
            small_blocks: connect::has_small_blocks(path),
            options,
            access,
            format,
            stand: Mutex::new(conn.stand),
            idle: Mutex::new(vec![conn]),
            gave_up: AtomicBool::new(false),
            log: Log::of(path, log),
            mover: maintain::Mover::default(),
            head: Mutex::default(),
            older_copy: None,
        }
    }

    /// Copies this vault into a file created by [`Self::make_file`]: one consistent state, while others may write.
    pub(crate) fn copy_into(&self, path: &Path) -> Result<Self> {
        let options = OpenOptions { on_close: OnClose::Settle, ..self.options };
        let file = file_id(path)?;
        let mut copy = connect::open_as(path, Access::ReadWrite, &options)?;
        let source = self.take_conn()?;
        let mut pages = || -> rusqlite::Result<StepResult> {
            let backup = rusqlite::backup::Backup::new(&source.sql, &mut copy.sql)?;
            backup.step(-1)
        };
        let done = pages().map_err(|error| self.translate(error))?;
        self.give_back(source);
        if done != StepResult::Done {
            let busy = BackendError::Busy { path: self.path.clone(), waited_s: 0 };
            return Err(busy.after(self.options.patience));
        }
        Ok(Self::with(path, file, options, (copy, None), (Access::ReadWrite, self.format)))
    }

    /// Renames a finished new file to its final name, unless that exists: a vault is complete or absent.
    pub(crate) fn publish(self, to: &Path) -> Result<()> {
        self.settle()?;
        let (from, patience) = (self.path.clone(), self.options.patience);
        drop(self);
        let synced = File::open(&from).and_then(|file| file.sync_all());
        let outcome = synced
            .map_err(|error| BackendError::io("create", to, error))
            .and_then(|()| give_name(&from, to, patience));
        Self::remove_files(&from)?;
        outcome
    }

    /// Removes a vault file and its companions.
    pub(crate) fn remove_files(path: &Path) -> Result<()> {
        remove_beside(path, COMPANIONS)?;
        remove_beside(path, &[""])
    }

    /// Removes a vault that is not pinned, once no writer has the turn. The removal is atomic: the vault is renamed
    /// to `aside` before its files are removed.
    pub(crate) fn delete(path: &Path, aside: &Path, patience: Duration) -> Result<()> {
        let _turn = turn_at(path, path, patience)?;
        std::fs::rename(path, aside).map_err(|error| BackendError::io("remove", path, error))?;
        remove_beside(path, COMPANIONS)?;
        Self::remove_files(aside)
    }

    #[must_use]
    pub(crate) fn patience(&self) -> Duration {
        self.options.patience
    }

    fn take_conn(&self) -> Result<Conn> {
        self.log.unsynced.check(&self.path)?;
        if self.gave_up.swap(false, Ordering::Relaxed) && own_lock::is_mark_held(&self.path) {
            self.release_locks(own_lock::is_mark_held)?;
        }
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let conn = match idle {
                Some(conn) if conn.stand.is_some() && conn.stand != self.stand_now() => continue,
                Some(conn) => return Ok(conn),
                None => connect::open_as(&self.path, self.access, &self.options)?,
            };
            *self.stand.lock().unwrap_or_else(PoisonError::into_inner) = conn.stand;
            return Ok(conn);
        }
    }

    fn stand_now(&self) -> Option<Stand> {
        Stand::of(&self.path).ok()
    }

    /// True if the file is read without locks and has changed since, so that apparent damage may not be real.
    fn is_unsteady(&self) -> bool {
        let stood = *self.stand.lock().unwrap_or_else(PoisonError::into_inner);
        stood.is_some() && stood != self.stand_now()
    }

    /// Closes all connections that are not in use.
    fn close_idle(&self) {
        self.mover.wait();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Closes the file, which releases locks that this process could not release otherwise. Waits for transactions of
    /// other threads, but not long: they may wait for this one.
    fn release_locks(&self, are_held: impl Fn(&Path) -> bool) -> Result<()> {
        let patience = RELEASE_PATIENCE.min(self.options.patience);
        let give_up_at = Instant::now() + patience;
        loop {
            self.close_idle();
            if !are_held(&self.path) {
                return Ok(());
            }
            if Instant::now() >= give_up_at {
                return Err(BackendError::Busy { path: self.path.clone(), waited_s: 0 }.after(patience));
            }
            std::thread::sleep(RELEASE_PAUSE);
        }
    }

    fn give_back(&self, conn: Conn) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }

    fn translate(&self, error: rusqlite::Error) -> BackendError {
        self.log.unsynced.hear(&error);
        if connect::gave_up_on_a_lock(&error) {
            self.gave_up.store(true, Ordering::Relaxed);
        }
        let translated = connect::translate(&self.path, error).after(self.options.patience);
        let looks_damaged = matches!(translated, BackendError::Corrupt { .. } | BackendError::Foreign { .. });
        let steady = if looks_damaged { self.check_steady() } else { Ok(()) };
        steady.err().unwrap_or(translated)
    }

    fn turn(&self) -> Result<FileLock> {
        self.check_access()?;
        if self.small_blocks {
            connect::check_room(&self.path)?;
        }
        let turn =
            self.hold("-lock", Mode::Exclusive).map_err(|error| BackendError::lock(&self.path, error))?;
        // Deleting a vault requires the turn too: the current file stays until this turn ends.
        self.check_file()?;
        Ok(turn)
    }

    fn check_access(&self) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(BackendError::ReadOnly { path: self.path.clone() }),
            Access::Full => Err(BackendError::DiskFull { path: self.path.clone() }),
        }
    }

    /// Refuses to write to a file other than the opened one, and to a file with several hard links: each name would
    /// have a separate WAL and locks, and commits through one name would be lost to the other.
    fn check_file(&self) -> Result<()> {
        let path = || self.path.clone();
        let meta =
            std::fs::metadata(&self.path).map_err(|error| BackendError::io("open", &self.path, error))?;
        if (meta.dev(), meta.ino()) != self.file {
            return Err(BackendError::NotFound { path: path() });
        }
        if meta.nlink() > 1 { Err(BackendError::Linked { path: path() }) } else { Ok(()) }
    }

    fn hold(&self, suffix: &str, mode: Mode) -> std::result::Result<FileLock, LockError> {
        FileLock::acquire_for(&self.path, &sibling(&self.path, suffix), mode, self.options.patience)
    }

    /// Whether every commit with a row in the audit log is known to be on disk.
    fn is_synced(&self) -> Result<bool> {
        let last = read::Session::begin(self)?.last_audit()?.map_or(0, |last| last.seq);
        Ok(head::Acknowledged::read(&self.path).newest() >= Some(last))
    }

    /// Records a commit that is on disk. If that fails, a later loss of the commit goes unnoticed.
    fn note_head(&self, last: &AuditRecord) {
        let noted = self.log.open().and_then(|(log, _)| {
            self.head.lock().unwrap_or_else(PoisonError::into_inner).note(&self.path, &log, last)
        });
        if let Err(error) = noted {
            tracing::debug!(%error, "cannot record the commit in the -head file");
        }
    }
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        // Otherwise the thread would be the last to close the file, after its owner is gone.
        self.mover.wait();
        let may_write = self.access == Access::ReadWrite && self.log.unsynced.check(&self.path).is_ok();
        if self.options.on_close == OnClose::LeaveLog && may_write {
            maintain::before_close(self);
        }
    }
}

/// Compares a newly opened vault with the commits acknowledged before: fails if the WAL is damaged, and returns the
/// commits that an older copy lacks.
fn check_head(
    path: &Path,
    conn: &Conn,
    access: Access,
    acknowledged: &head::Acknowledged,
) -> Result<Option<Rollback>> {
    let Some(newest) = acknowledged.newest() else { return Ok(None) };
    let last = conn.sql.query_row("SELECT coalesce(max(seq), 0) FROM audit", [], |row| row.get::<_, i64>(0));
    let last = last.map_err(|error| connect::translate(path, error))?;
    if last >= newest {
        return Ok(None);
    }
    let Some(rollback) = acknowledged.compare(path, last) else { return Ok(None) };
    if rollback.is_damaged {
        // Closing must not checkpoint and remove the rest of the WAL.
        let kept = conn.sql.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        kept.map_err(|error| connect::translate(path, error))?;
        return Err(BackendError::RolledBack { path: path.to_owned(), rollback: Box::new(rollback) });
    }
    if access == Access::ReadWrite {
        head::forget(path).map_err(|error| BackendError::io("remove", path, error))?;
    }
    Ok(Some(rollback))
}

/// The device and inode of the file.
fn file_id(path: &Path) -> Result<(u64, u64)> {
    let meta = std::fs::metadata(path).map_err(|error| BackendError::io("open", path, error))?;
    Ok((meta.dev(), meta.ino()))
}

/// Takes the turn to write at `path`, for any vault there. A lock file that does not exist is created with the
/// mode of `guarded`.
fn turn_at(guarded: &Path, path: &Path, patience: Duration) -> Result<FileLock> {
    let lock = sibling(path, "-lock");
    let give_up_at = Instant::now() + patience;
    loop {
        let left = give_up_at.saturating_duration_since(Instant::now());
        let turn = FileLock::acquire_for(guarded, &lock, Mode::Exclusive, left)
            .map_err(|error| BackendError::lock(path, error))?;
        // The lock file may belong to a vault that was deleted in the meantime.
        if turn.is_at(&lock).unwrap_or(false) {
            return Ok(turn);
        }
    }
}

/// Renames a vault to its final name. Companion files of that name belong to a deleted vault, and SQLite would use
/// their WAL for the new one. A vault appears only under the turn lock, so no process can be using them.
fn give_name(from: &Path, to: &Path, patience: Duration) -> Result<()> {
    avfs_types::pause::point("publish");
    let _turn = turn_at(from, to, patience)?;
    if to.symlink_metadata().is_ok() {
        return Err(BackendError::Exists { path: to.to_owned() });
    }
    remove_beside(to, &LOGS)?;
    // Renamed, not linked: a vault never has two names.
    let noreplace = rustix::fs::RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, noreplace) {
        // The file system does not support the flag. Without the turn no vault is created here.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => std::fs::rename(from, to),
        renamed => renamed.map_err(std::io::Error::from),
    }
    .map_err(|error| BackendError::io("create", to, error))?;
    sync_dir_of(to)
}

fn remove_beside(path: &Path, suffixes: &[&str]) -> Result<()> {
    for suffix in suffixes {
        let file = sibling(path, suffix);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(BackendError::io("remove", &file, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn sync_dir_of(path: &Path) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| BackendError::io("sync", dir, error))
}

impl Backend for SqliteBackend {
    fn read(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(read::Session::begin(self)?))
    }

    fn read_unmapped(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(read::Session::begin_unmapped(self)?))
    }

    fn write(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(write::SqliteWriter::begin(self)?))
    }

    fn pin(&self) -> Result<Guard> {
        // Pass through the gate: a waiting sweep holds it, or a steady stream of pins would starve the sweep. Take
        // it exclusively: the kernel grants shared locks ahead of a waiting exclusive one, so many pins would
        // always overlap. A user without write permission may not be able to take an exclusive lock.
        let alone = if self.access == Access::ReadWrite { Mode::Exclusive } else { Mode::Shared };
        let pinned = self.hold("-gate", alone).and_then(|_gate| self.hold("-use", Mode::Shared));
        match pinned {
            Ok(lock) => Ok(Guard(vec![lock])),
            // Without permission to open the lock files, a sweep by another user cannot be prevented.
            Err(LockError::Open { .. }) if self.access != Access::ReadWrite => Ok(Guard(Vec::new())),
            Err(error) => Err(BackendError::lock(&self.path, error)),
        }
    }

    fn sweep_guard(&self) -> Result<Guard> {
        let fail = |error| BackendError::lock(&self.path, error);
        let in_use = sibling(&self.path, "-use");
        let give_up_at = Instant::now() + self.options.patience;
        let mut turn = SWEEP_TURN;
        loop {
            let gate = self.hold("-gate", Mode::Exclusive).map_err(fail)?;
            avfs_types::pause::point("sweep-gate");
            let turn_ends = give_up_at.min(Instant::now() + turn);
            loop {
                let taken = FileLock::try_acquire_for(&self.path, &in_use, Mode::Exclusive);
                if let Some(lock) = taken.map_err(fail)? {
                    return Ok(Guard(vec![gate, lock]));
                }
                if Instant::now() >= turn_ends {
                    break;
                }
                std::thread::sleep(SWEEP_LOOK);
            }
            // A pin is held for long: let waiting pins proceed. The next turn is longer, or steady work of others
            // would starve the sweep.
            drop(gate);
            turn = turn.saturating_mul(2);
            if Instant::now() >= give_up_at {
                return Err(fail(LockError::TimedOut(self.options.patience)));
            }
            std::thread::sleep(SWEEP_PAUSE);
        }
    }

    fn shrink(&self, progress: &dyn Fn(u64)) -> Result<()> {
        maintain::shrink(self, progress)
    }

    fn flush(&self) -> Result<()> {
        // Read first: a commit made in the meantime may not be on disk.
        let last = read::Session::begin(self)?.last_audit()?;
        self.mover.wait();
        self.log.sync()?;
        if let Some(last) = &last {
            self.note_head(last);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        maintain::settle(self)
    }

    fn format(&self) -> Option<i64> {
        Some(self.format)
    }

    fn older_copy(&self) -> Option<&Rollback> {
        self.older_copy.as_ref()
    }

    fn check_writable(&self) -> Result<()> {
        self.check_access().and_then(|()| self.check_file())
    }

    fn check_room(&self) -> Result<()> {
        match reserve::is_full(&self.path) {
            true => Err(BackendError::DiskFull { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    fn shortage(&self) -> Option<Shortage> {
        let free_bytes = reserve::free_bytes(&self.path).filter(|free| reserve::is_short(*free))?;
        // On such a disk the log is empty when a transaction starts.
        let pages = u64::try_from(self.log.pages()).unwrap_or(0);
        Some(Shortage { free_bytes, logged_bytes: pages * connect::PAGE_BYTES as u64 })
    }

    fn make_ready(&self) -> Result<()> {
        write::make_ready(self)
    }

    fn check_steady(&self) -> Result<()> {
        if self.is_unsteady() { Err(BackendError::Unsteady { path: self.path.clone() }) } else { Ok(()) }
    }

    fn integrity(&self) -> Result<Vec<String>> {
        maintain::integrity(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last process to close removes the WAL; a backend without an open connection must not sync the removed
    /// file.
    #[test]
    fn sync_uses_the_current_wal_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault.db");
        let backend = SqliteBackend::create(&path, OpenOptions::default()).unwrap();
        let log = sibling(&path, "-wal");
        let inode = |file: &File| file.metadata().unwrap().ino();
        let first = inode(&backend.log.open().unwrap().0);
        assert_eq!(inode(&backend.log.open().unwrap().0), first);
        let kept = dir.path().join("kept");
        std::fs::rename(&log, &kept).unwrap();
        std::fs::write(&log, "another").unwrap();
        std::fs::remove_file(&kept).unwrap();
        let (now, bytes) = backend.log.open().unwrap();
        assert_eq!((inode(&now), bytes), (inode(&File::open(&log).unwrap()), 7));
        assert_ne!(inode(&now), first);
    }

    /// The kernel reports a failed sync once: the next sync succeeds and proves nothing.
    #[test]
    fn everything_fails_after_a_failed_sync() {
        let dir = tempfile::tempdir().unwrap();
        let backend = SqliteBackend::create(&dir.path().join("vault.db"), OpenOptions::default()).unwrap();
        let begun = backend.write().unwrap();
        let failed = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        backend.log.unsynced.hear(&failed(rusqlite::ffi::SQLITE_IOERR_READ));
        assert!(backend.log.unsynced.check(&backend.path).is_ok());
        backend.log.unsynced.hear(&failed(rusqlite::ffi::SQLITE_IOERR_FSYNC));
        let refused =
            |outcome: Result<()>| matches!(outcome, Err(BackendError::Io { operation: "sync", .. }));
        assert!(refused(begun.commit(crate::backend::Durability::Synced)));
        assert!(refused(backend.read().map(drop)) && refused(backend.write().map(drop)));
    }

    #[test]
    fn lockless_reader_detects_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault.db");
        let backend = SqliteBackend::create(&path, OpenOptions::default()).unwrap();
        backend.settle().unwrap();
        assert!(backend.check_steady().is_ok(), "a reader with locks is not affected");
        *backend.stand.lock().unwrap() = backend.stand_now();
        assert!(backend.check_steady().is_ok());
        backend.write().unwrap().commit(crate::backend::Durability::Synced).unwrap();
        let mut writer = backend.write().unwrap();
        writer.set_meta("key", b"value").unwrap();
        writer.commit(crate::backend::Durability::Synced).unwrap();
        assert!(matches!(backend.check_steady(), Err(BackendError::Unsteady { .. })));
    }
}
