//! The product's backend: one SQLite file, many processes.
//!
//! A commit holds two things in turn: the turn lock (`-lock`, a fair queue) around the transaction, and
//! after both are given back one fdatasync of the log, so that writers that come together share the disk's
//! time. Only then is the commit acknowledged. A deferred commit is not synced: the next one that is covers it. Moving the
//! log into the file never happens inside a commit.

mod applications;
mod approvals;
mod batches;
mod connect;
mod head;
mod log;
mod maintain;
mod memos;
mod pack;
mod read;
mod recordings;
mod runs;
mod schema;
mod write;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::{Access, Conn, Stand};
pub use connect::{Mapped, OnClose, OpenOptions, sibling};
use log::Log;
use rusqlite::backup::StepResult;
pub use schema::FORMAT;

use avfs_hostfs::lock::{FileLock, LockError, Mode};

use super::{AuditRecord, Backend, Guard, Reader, Result, Rollback, Writer};
use crate::backend::BackendError;

/// What lies beside a vault file while it is used: `vault.db` → `vault.db-wal`.
pub const COMPANIONS: [&str; 7] = ["-wal", "-shm", "-journal", "-head", "-lock", "-use", "-gate"];
/// Those of them that SQLite reads, and what is known of its log.
const LOGS: [&str; 4] = ["-wal", "-shm", "-journal", "-head"];

/// How long a sweep that waits for others to end first keeps more from beginning, how often it looks, and how long it
/// steps aside then.
const SWEEP_TURN: Duration = Duration::from_secs(1);
const SWEEP_LOOK: Duration = Duration::from_millis(2);
const SWEEP_PAUSE: Duration = Duration::from_millis(200);

/// A vault in one SQLite file, in WAL mode. Many processes may use it; one at a time writes.
pub struct SqliteBackend {
    path: PathBuf,
    options: OpenOptions,
    access: Access,
    /// The file that was opened at `path`.
    file: (u64, u64),
    /// The disk may run full by a signal: there is to be room before each turn.
    small_blocks: bool,
    /// That of the file; an older one only where it cannot be written.
    format: i64,
    idle: Mutex<Vec<Conn>>,
    /// As of the last connection that reads without locks.
    stand: Mutex<Option<Stand>>,
    log: Log,
    mover: maintain::Mover,
    head: Mutex<head::Head>,
    older_copy: Option<Rollback>,
}

impl SqliteBackend {
    /// Makes an empty store in a new file. Fails if there is a file at `path`.
    pub fn create(path: &Path, options: OpenOptions) -> Result<Self> {
        Self::make_file(path)?;
        Self::create_in(path, options)
    }

    /// Makes the file alone, for who does something with it before it is a vault.
    pub(crate) fn make_file(path: &Path) -> Result<()> {
        connect::make_file(path)
    }

    /// A new vault in a file that [`Self::make_file`] has made.
    pub(crate) fn create_in(path: &Path, options: OpenOptions) -> Result<Self> {
        let file = file_id(path)?;
        let conn = connect::create(path, &options)?;
        Ok(Self::with(path, file, options, (conn, None), (Access::ReadWrite, FORMAT)))
    }

    /// Why [`SqliteBackend::create`] has to refuse a path that is taken.
    #[must_use]
    pub(crate) fn taken(path: &Path, options: &OpenOptions) -> BackendError {
        connect::taken(path, options)
    }

    pub(crate) fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        // SQLite keeps its log beside the file itself: who comes by a link looks for it there, and so must the locks be
        // that keep a sweep away, or they would not meet the others.
        let real = std::fs::canonicalize(path).map_err(|error| BackendError::io("open", path, error))?;
        let file = file_id(&real)?;
        connect::check_locks(&real)?;
        let acknowledged = head::Acknowledged::read(&real);
        let log = log::open(&real).ok();
        let (conn, access, format) =
            connect::open(&real, &options).map_err(|error| error.after(options.patience))?;
        let older_copy = check_head(&real, &conn, access, &acknowledged)?;
        let log = log.filter(log::is_named);
        if access == Access::ReadWrite && log.is_none() {
            // SQLite has made a new one, and what is synced later is its content alone.
            sync_dir_of(&real)?;
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
            log: Log::of(path, log),
            mover: maintain::Mover::default(),
            head: Mutex::default(),
            older_copy: None,
        }
    }

    /// A copy of this vault in a file that [`Self::make_file`] has made: one consistent state of it, others may write.
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

    /// Gives a finished new file its name, unless the name is taken: a vault is complete or absent.
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

    /// Removes a vault file and what lies beside it.
    pub(crate) fn remove_files(path: &Path) -> Result<()> {
        remove_beside(path, &COMPANIONS)?;
        remove_beside(path, &[""])
    }

    /// Removes a vault that nobody has pinned, once it is nobody's turn to write. It is there or gone: `aside` is what it
    /// is called until its files are removed too.
    pub(crate) fn delete(path: &Path, aside: &Path, patience: Duration) -> Result<()> {
        let _turn = turn_at(path, path, patience)?;
        std::fs::rename(path, aside).map_err(|error| BackendError::io("remove", path, error))?;
        remove_beside(path, &COMPANIONS)?;
        Self::remove_files(aside)
    }

    #[must_use]
    pub(crate) fn patience(&self) -> Duration {
        self.options.patience
    }

    fn take_conn(&self) -> Result<Conn> {
        self.log.unsynced.check(&self.path)?;
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

    /// True if the file is read without locks, and is not what it was: then what looks like damage may be none.
    fn is_unsteady(&self) -> bool {
        let stood = *self.stand.lock().unwrap_or_else(PoisonError::into_inner);
        stood.is_some() && stood != self.stand_now()
    }

    fn give_back(&self, conn: Conn) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }

    fn translate(&self, error: rusqlite::Error) -> BackendError {
        self.log.unsynced.hear(&error);
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
        // Who deletes a vault has the turn too: what is there now stays until this turn ends.
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

    /// Refuses to write to another file than was opened, and to one with several names: each of them would have a log
    /// and locks of its own, and commits by one name be lost to the other.
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

    /// Whether every commit with a row in the audit log is known to be on the disk.
    fn is_synced(&self) -> Result<bool> {
        let last = read::Session::begin(self)?.last_audit()?.map_or(0, |last| last.seq);
        Ok(head::Acknowledged::read(&self.path).newest() >= Some(last))
    }

    /// Notes a commit that is on the disk. What cannot be noted is not missed later.
    fn note_head(&self, last: &AuditRecord) {
        let noted = self.log.open().and_then(|(log, _)| {
            self.head.lock().unwrap_or_else(PoisonError::into_inner).note(&self.path, &log, last)
        });
        if let Err(error) = noted {
            tracing::debug!(%error, "the commit is not noted beside the log");
        }
    }
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        // A thread that still has the file open would be the last to close it, after its owner is gone.
        self.mover.wait();
        let may_write = self.access == Access::ReadWrite && self.log.unsynced.check(&self.path).is_ok();
        if self.options.on_close == OnClose::LeaveLog && may_write {
            maintain::before_close(self);
        }
    }
}

/// Compares a vault that was just opened with what had been acknowledged before: fails if its log is damaged, and gives
/// what an older copy lacks.
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
        // Closing must not move what is left of the log into the file and remove it.
        let kept = conn.sql.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        kept.map_err(|error| connect::translate(path, error))?;
        return Err(BackendError::RolledBack { path: path.to_owned(), rollback: Box::new(rollback) });
    }
    if access == Access::ReadWrite {
        head::forget(path).map_err(|error| BackendError::io("remove", path, error))?;
    }
    Ok(Some(rollback))
}

/// Which file is there.
fn file_id(path: &Path) -> Result<(u64, u64)> {
    let meta = std::fs::metadata(path).map_err(|error| BackendError::io("open", path, error))?;
    Ok((meta.dev(), meta.ino()))
}

/// The turn to write at `path`, whatever vault is there; its lock, where it has none, is one like `guarded`.
fn turn_at(guarded: &Path, path: &Path, patience: Duration) -> Result<FileLock> {
    let lock = sibling(path, "-lock");
    let give_up_at = Instant::now() + patience;
    loop {
        let left = give_up_at.saturating_duration_since(Instant::now());
        let turn = FileLock::acquire_for(guarded, &lock, Mode::Exclusive, left)
            .map_err(|error| BackendError::lock(path, error))?;
        // Not that of a vault which was deleted meanwhile.
        if turn.is_at(&lock).unwrap_or(false) {
            return Ok(turn);
        }
    }
}

/// Gives a vault its name. What lies beside that is of one that is gone, and SQLite would take its log for the new one's:
/// a vault appears only in its turn, so that nobody can be using it.
fn give_name(from: &Path, to: &Path, patience: Duration) -> Result<()> {
    avfs_types::pause::point("publish");
    let _turn = turn_at(from, to, patience)?;
    if to.symlink_metadata().is_ok() {
        return Err(BackendError::Exists { path: to.to_owned() });
    }
    remove_beside(to, &LOGS)?;
    // Renamed, not linked: a vault has one name at every moment.
    let noreplace = rustix::fs::RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, noreplace) {
        // A file system that does not know that. Nobody makes one here out of turn.
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
        // Through the gate: a sweep that waits there lets nobody past it, or steady pins would starve it. One at a time:
        // the kernel lets shared locks past an exclusive one that waits, so that many pins would always overlap. Who may
        // not write may not be able to lock alone either.
        let alone = if self.access == Access::ReadWrite { Mode::Exclusive } else { Mode::Shared };
        let pinned = self.hold("-gate", alone).and_then(|_gate| self.hold("-use", Mode::Shared));
        match pinned {
            Ok(lock) => Ok(Guard(vec![lock])),
            // Whoever can sweep it may do so; where locks cannot even be opened there is no keeping them from it.
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
            // Somebody needs long: whoever wants to begin meanwhile is let past. The next turn is longer, or steady
            // work of others would never leave a moment.
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
        // Read first: what is committed meanwhile may not be on the disk.
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

    /// Whoever is the last to close removes the log; a backend that lives on without a connection must not sync that.
    #[test]
    fn the_log_that_is_synced_is_the_one_that_is_there() {
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

    /// The kernel tells of a failed sync once: the next one succeeds and proves nothing.
    #[test]
    fn nothing_is_done_after_a_sync_that_failed() {
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
    fn who_reads_without_locks_notices_that_somebody_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault.db");
        let backend = SqliteBackend::create(&path, OpenOptions::default()).unwrap();
        backend.settle().unwrap();
        assert!(backend.check_steady().is_ok(), "who has locks need not care");
        *backend.stand.lock().unwrap() = backend.stand_now();
        assert!(backend.check_steady().is_ok());
        backend.write().unwrap().commit(crate::backend::Durability::Synced).unwrap();
        let mut writer = backend.write().unwrap();
        writer.set_meta("key", b"value").unwrap();
        writer.commit(crate::backend::Durability::Synced).unwrap();
        assert!(matches!(backend.check_steady(), Err(BackendError::Unsteady { .. })));
    }
}
