//! Opens connections: the only place that does, so that every one of them has the same settings.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{FlockOperation, StatVfs, fcntl_lock};
use rustix::io::Errno;

use super::schema;
use crate::backend::{BackendError, Result};

/// Bytes of a page: large enough that most small files share one, small enough that a commit writes little.
pub(crate) const PAGE_BYTES: usize = 8192;
/// Pages kept in memory: those of the index of some 100,000 objects. SQLite walks through all of them at the end of each
/// commit that has split a page. What a transaction has changed is kept beside it, however much that is: it would be
/// written into the log twice.
const CACHE_KIB: i64 = 8 * 1024;
/// Of a larger vault only the beginning is mapped: what was read of it through a map counts as memory of the process, for
/// each connection again.
const MMAP_BYTES: i64 = 16 << 20;
/// The log is cut back to this when it starts over.
const LOG_BYTES_MAX: i64 = 64 << 20;
const STATEMENTS_CACHED: usize = 64;
/// How long who may not make a log looks for one that comes and goes, and how often.
const GONE_LOG_PATIENCE: Duration = Duration::from_secs(5);
const GONE_LOG_PAUSE: Duration = Duration::from_millis(2);

/// What is left beside the vault file when the last user leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnClose {
    /// Nothing: the vault is one file again.
    Settle,
    /// The log, for the next user to read. Closing waits for the disk only if the log has grown long.
    LeaveLog,
}

/// How a vault file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// How long to wait for other processes before giving up.
    pub patience: Duration,
    /// What happens to the write-ahead log when the vault is closed.
    pub on_close: OnClose,
    /// Whether the file is mapped into memory.
    pub mapped: Mapped,
}

/// Whether the file is read through memory: faster for who reads much of it, but all that was read counts as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Mapped.
    Yes,
    /// Read with system calls.
    No,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(60), on_close: OnClose::LeaveLog, mapped: Mapped::Yes }
    }
}

/// A connection and the length of the log as its last commit saw it.
pub(crate) struct Conn {
    pub(crate) sql: Connection,
    pub(crate) log_pages: Arc<AtomicI32>,
    mapped: Mapped,
    /// Whether SQLite syncs what has to be on the disk in a certain order.
    orders_writes: Cell<bool>,
    /// Of a file that is read without locks: how it stood then.
    pub(crate) stand: Option<Stand>,
}

impl Conn {
    /// From here on the file is read without mapping it. For who may read much of it and has to stay small; and for who
    /// writes: whenever another process has committed SQLite would unmap all of it and map it again, and that within
    /// the turn, for the few pages that are not in the log.
    pub(crate) fn unmap(&mut self) -> rusqlite::Result<()> {
        if self.mapped == Mapped::Yes {
            self.sql.pragma_update(None, "mmap_size", 0)?;
            self.mapped = Mapped::No;
        }
        Ok(())
    }

    /// Whether SQLite syncs by itself: the header of a log that it overwrites from the start, before the first frame, and
    /// everything that a checkpoint moves. Only a transaction that begins an empty log can do without: nothing in
    /// it could be taken for a part of the new log, and the one sync of the commit covers header and frames.
    pub(crate) fn order_writes(&self, orders: bool) -> rusqlite::Result<()> {
        if self.orders_writes.get() != orders {
            let level = if orders { "NORMAL" } else { "OFF" };
            self.sql.pragma_update(None, "synchronous", level)?;
            self.orders_writes.set(orders);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    /// The file or its directory cannot be written.
    ReadOnly,
    /// The disk has no room for a log: the file is read as if it could not be written.
    Full,
}

/// A sibling of the vault file: `vault.db` → `vault.db-wal`.
pub fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the empty file that [`create`] makes a vault of; the caller has made sure that there is none.
pub(crate) fn make_file(path: &Path) -> Result<()> {
    // Content of files that only their owner may read is in it. SQLite gives what lies beside it the same mode.
    let mut only_owner = std::fs::OpenOptions::new();
    only_owner.write(true).create_new(true).mode(0o600);
    only_owner.open(path).map(drop).map_err(|error| BackendError::io("create", path, error))
}

/// Makes an empty vault of an empty file.
pub(crate) fn create(path: &Path, options: &OpenOptions) -> Result<Conn> {
    // Nobody has a lock on it yet that would be lost.
    check_locks_of(path, path)?;
    let conn = open_raw(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    let settle = || -> rusqlite::Result<()> {
        conn.sql.pragma_update(None, "page_size", PAGE_BYTES as i64)?;
        conn.sql.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        conn.sql.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
        conn.sql.pragma_update(None, "journal_mode", "WAL")?;
        schema::migrate(&conn.sql, 0)
    };
    settle().map_err(|error| translate(path, error))?;
    Ok(conn)
}

/// Opens a vault file that exists, after checking that it is one this avfs can use; gives its format too.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<(Conn, Access, i64)> {
    let meta = std::fs::metadata(path).map_err(|error| BackendError::io("open", path, error))?;
    if !meta.is_file() {
        return Err(BackendError::Foreign { path: path.to_owned() });
    }
    // Asked, not tried: closing another descriptor of the file would drop this process's locks on it.
    rustix::fs::access(path, rustix::fs::Access::READ_OK)
        .map_err(|errno| BackendError::io("open", path, errno.into()))?;
    let opened = |access| {
        let conn = open_as(path, access, options)?;
        let format = check_header(path, &conn, access)?;
        Ok((conn, access, format))
    };
    if !writable(path) {
        return opened(Access::ReadOnly);
    }
    match check_room(path).and_then(|()| opened(Access::ReadWrite)) {
        // What is there can be read, and saved to another disk. Where that fails too, this is still why.
        Err(full @ BackendError::DiskFull { .. }) => opened(Access::Full).map_err(|_| full),
        opened => {
            share_log(path, &meta);
            opened
        }
    }
}

/// Gives the log the group of the vault file, as SQLite itself does for root alone: who shares the one by its group uses
/// the other too, also after this process.
fn share_log(path: &Path, vault: &Metadata) {
    let group = rustix::fs::Gid::from_raw(vault.gid());
    if group == rustix::process::getegid() {
        return;
    }
    for suffix in ["-wal", "-shm", "-head"] {
        let file = sibling(path, suffix);
        let own = |meta: Metadata| meta.is_file() && meta.nlink() == 1 && meta.gid() != vault.gid();
        if file.symlink_metadata().is_ok_and(own) {
            // It is somebody else's, or this user may not give it away: then it is not shared, as before.
            let _ = rustix::fs::chownat(
                rustix::fs::CWD,
                &file,
                None,
                Some(group),
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            );
        }
    }
}

/// Why no vault can be made at a path that is taken: there is one, or what else is there. Changes nothing of it.
pub(crate) fn taken(path: &Path, options: &OpenOptions) -> BackendError {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    if !is_file {
        // A link that leads nowhere, too.
        return BackendError::Foreign { path: path.to_owned() };
    }
    let looked = open_as(path, Access::ReadOnly, options)
        .and_then(|conn| check_header(path, &conn, Access::ReadOnly).map(|_| ()));
    match looked {
        // One that is so old that it has to be written before it can be read.
        Ok(()) | Err(BackendError::ReadOnly { .. }) => BackendError::Exists { path: path.to_owned() },
        Err(error) => error,
    }
}

/// Another connection to a vault whose header was checked.
pub(crate) fn open_as(path: &Path, access: Access, options: &OpenOptions) -> Result<Conn> {
    match access {
        Access::ReadWrite => open_raw(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options),
        Access::ReadOnly | Access::Full => open_read_only(path, options),
    }
}

fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn is_on_read_only(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK) == Err(rustix::io::Errno::ROFS)
}

fn writable(path: &Path) -> bool {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let may = rustix::fs::Access::WRITE_OK;
    rustix::fs::access(path, may).is_ok() && rustix::fs::access(dir, may).is_ok()
}

/// A vault file as it stands, for who reads it without any locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    inode: u64,
    bytes: u64,
    written: (i64, i64),
    has_log: bool,
}

impl Stand {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let meta = std::fs::metadata(path).map_err(|error| BackendError::io("open", path, error))?;
        let has_log = std::fs::metadata(sibling(path, "-wal")).is_ok_and(|log| log.len() > 0);
        let written = (meta.mtime(), meta.mtime_nsec());
        Ok(Self { inode: meta.ino(), bytes: meta.len(), written, has_log })
    }

    /// True if nothing was written to the file since, whatever there may be in a log.
    pub(crate) fn is_unwritten(&self, now: &Self) -> bool {
        Self { has_log: now.has_log, ..*self } == *now
    }
}

/// A log needs files beside the vault. Where they cannot be made and there is no log, the file is read as it stands.
///
/// An empty log is none: SQLite would give it the mode of the file, which the owner may change back.
fn open_read_only(path: &Path, options: &OpenOptions) -> Result<Conn> {
    let give_up_at = Instant::now() + options.patience.min(GONE_LOG_PATIENCE);
    let stand = loop {
        let stand = Stand::of(path)?;
        if !stand.has_log {
            break stand;
        }
        match open_raw(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options) {
            // The last who wrote has removed the log since it was seen, and SQLite would have to make one. Where
            // nobody can write there is nobody to wait for.
            Err(BackendError::ReadOnly { .. }) if Instant::now() < give_up_at && !is_on_read_only(path) => {
                std::thread::sleep(GONE_LOG_PAUSE);
            }
            opened => return opened,
        }
    };
    let absolute = std::path::absolute(path).map_err(|error| BackendError::io("open", path, error))?;
    let mut uri = OsString::from("file:");
    uri.push(percent_encode(&absolute));
    uri.push("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    // Nobody is kept from cutting the file shorter, and who reads beyond its end in a map is killed.
    let options = OpenOptions { mapped: Mapped::No, ..*options };
    let conn = open_named(Path::new(&uri), path, flags, &options)?;
    Ok(Conn { stand: Some(stand), ..conn })
}

fn percent_encode(path: &Path) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-".contains(&b);
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().map(|b| if plain(*b) { char::from(*b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn open_raw(path: &Path, flags: OpenFlags, options: &OpenOptions) -> Result<Conn> {
    open_named(path, path, flags, options)
}

/// Opens what SQLite knows as `uri` and people as `path`.
#[expect(clippy::disallowed_methods, reason = "this is the one place that opens connections")]
fn open_named(uri: &Path, path: &Path, flags: OpenFlags, options: &OpenOptions) -> Result<Conn> {
    let log_pages = Arc::new(AtomicI32::new(0));
    let configure = || -> rusqlite::Result<Connection> {
        let mut sql = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        sql.busy_timeout(options.patience)?;
        sql.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        let keep_log = options.on_close != OnClose::Settle;
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep_log)?;
        // A vault may be anybody's: nothing that it brings along is run.
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        // A misspelled column is an error, not a string.
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        let mapped = match options.mapped {
            Mapped::Yes => MMAP_BYTES,
            Mapped::No => 0,
        };
        sql.execute_batch(&format!(
            "PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY; \
             PRAGMA cache_size=-{CACHE_KIB}; PRAGMA cache_spill=OFF; PRAGMA mmap_size={mapped}; \
             PRAGMA journal_size_limit={LOG_BYTES_MAX};"
        ))?;
        let seen = Arc::clone(&log_pages);
        // Taking the hook also turns SQLite's own checkpoints off: they would run inside a commit, under the lock.
        sql.wal_hook(Some(move |_: &mut Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(sql)
    };
    let sql = configure().map_err(|error| translate(path, error))?;
    let orders_writes = Cell::new(true);
    Ok(Conn { sql, log_pages, mapped: options.mapped, orders_writes, stand: None })
}

/// The format of the file, brought up to this avfs's where the file can be written.
fn check_header(path: &Path, conn: &Conn, access: Access) -> Result<i64> {
    let pragma = |name| {
        conn.sql.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(|e| translate(path, e))
    };
    if pragma("application_id")? != schema::APPLICATION_ID {
        return Err(BackendError::Foreign { path: path.to_owned() });
    }
    let readable = |found| {
        let known = schema::FORMAT;
        match found {
            // Every vault is of a format from the moment it is there.
            ..=0 => Err(not_of_its_format(path, found)),
            found if found > known => Err(BackendError::Newer { path: path.to_owned(), found, known }),
            found => Ok(found),
        }
    };
    let found = readable(pragma("user_version")?)?;
    if let Some(name) = schema::foreign_object(&conn.sql).map_err(|error| translate(path, error))? {
        return Err(BackendError::ForeignObject { path: path.to_owned(), name });
    }
    match access {
        Access::ReadWrite if found < schema::FORMAT => {
            schema::migrate(&conn.sql, found).map_err(|error| match other_tables(&error) {
                Some(_) => not_of_its_format(path, found),
                None => translate(path, error),
            })?;
            // Somebody with a newer avfs may have been faster.
            readable(pragma("user_version")?)
        }
        Access::ReadOnly | Access::Full if found < schema::READABLE => {
            Err(BackendError::ReadOnly { path: path.to_owned() })
        }
        Access::ReadWrite | Access::ReadOnly | Access::Full => Ok(found),
    }
}

fn not_of_its_format(path: &Path, said: i64) -> BackendError {
    let detail = format!("its header says format {said}, and its tables are not of that format");
    BackendError::Corrupt { path: path.to_owned(), detail }
}

/// What a statement met that the tables of a vault do not have, or have already. Every statement is avfs's own, so that
/// they were changed from outside. SQLite has no code for it: only some are told with the place in the statement.
fn other_tables(error: &rusqlite::Error) -> Option<String> {
    if let rusqlite::Error::SqlInputError { msg, .. } = error {
        return Some(msg.clone());
    }
    let rusqlite::Error::SqliteFailure(_, Some(message)) = error else { return None };
    // The last one is of a number in the header, which tells in which way tables are written.
    let misses = ["no such table: ", "no such column: ", "unsupported file format"]
        .iter()
        .any(|start| message.starts_with(start));
    misses.then(|| message.clone())
}

/// What has to be free for the index of the log where [`check_room`] looks.
const ROOM_BYTES: u64 = 128 * 1024;
const PAGE_OF_MEMORY: u64 = 4096;

/// True if a page of memory has several blocks on the disk of this file. SQLite makes room for the index of its log by a
/// byte in each page; the kernel asks for the other blocks when they are written, and tells that there are none by a
/// signal.
pub(crate) fn has_small_blocks(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| is_of_small_blocks(&disk))
}

fn is_of_small_blocks(disk: &StatVfs) -> bool {
    // A file system that tells nothing of blocks has none to run out of.
    disk.f_blocks > 0 && disk.f_frsize < PAGE_OF_MEMORY
}

/// Refuses a full disk where [`has_small_blocks`] says that it would be a signal.
pub(crate) fn check_room(path: &Path) -> Result<()> {
    // For root too: what is free beyond that may be kept for the file system itself.
    let full = |disk: &StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize) < ROOM_BYTES;
    if rustix::fs::statvfs(path).is_ok_and(|disk| is_of_small_blocks(&disk) && full(&disk)) {
        return Err(BackendError::DiskFull { path: path.to_owned() });
    }
    Ok(())
}

/// Refuses a file system without locks, where SQLite would take every lock for held by somebody else.
pub(crate) fn check_locks(path: &Path) -> Result<()> {
    // Not on the vault itself: whoever closes a file gives up all locks of the process on it, SQLite's too.
    check_locks_of(&sibling(path, "-lock"), path)
}

/// Takes and gives back a lock on a file beside the vault, or on one that is not a vault yet.
fn check_locks_of(file: &Path, vault: &Path) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    // Whatever is called so is not waited for.
    options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let Ok(file) = options.open(file) else { return Ok(()) };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) | Err(Errno::AGAIN | Errno::ACCESS | Errno::INTR) => Ok(()),
        Err(_) => Err(BackendError::LocksUnsupported { path: vault.to_owned() }),
    }
}

/// SQLite failed at a lock itself, not at who holds it.
fn is_of_locks(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{
        SQLITE_IOERR_CHECKRESERVEDLOCK, SQLITE_IOERR_LOCK, SQLITE_IOERR_RDLOCK, SQLITE_IOERR_SHMLOCK,
        SQLITE_IOERR_UNLOCK,
    };
    let codes = [
        SQLITE_IOERR_CHECKRESERVEDLOCK,
        SQLITE_IOERR_LOCK,
        SQLITE_IOERR_RDLOCK,
        SQLITE_IOERR_SHMLOCK,
        SQLITE_IOERR_UNLOCK,
    ];
    error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code))
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// SQLite's error in the words of a vault.
pub(crate) fn translate(path: &Path, error: rusqlite::Error) -> BackendError {
    let path = path.to_owned();
    // A column that holds another type or length than avfs ever writes was edited from outside.
    if let rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) = &error {
        return BackendError::Corrupt { path, detail: error.to_string() };
    }
    if let Some(detail) = other_tables(&error) {
        return BackendError::Corrupt { path, detail };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_gone(&path) => {
            BackendError::NotFound { path }
        }
        Some(ErrorCode::NotADatabase) => BackendError::Foreign { path },
        Some(ErrorCode::DatabaseCorrupt) => BackendError::Corrupt { path, detail: error.to_string() },
        Some(ErrorCode::ReadOnly) => BackendError::ReadOnly { path },
        Some(ErrorCode::PermissionDenied) => BackendError::NoPermission { path },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => BackendError::Busy { path, waited_s: 0 },
        Some(ErrorCode::DiskFull) => BackendError::DiskFull { path },
        Some(ErrorCode::CannotOpen) if is_on_read_only(&path) => BackendError::ReadOnly { path },
        Some(ErrorCode::CannotOpen) if !writable(&path) => BackendError::NoPermission { path },
        // The index of the log cannot grow: SQLite tells it apart from a file that cannot.
        Some(ErrorCode::SystemIoFailure) if is_full(&error) => BackendError::DiskFull { path },
        Some(ErrorCode::FileLockingProtocolFailed) => BackendError::LocksUnsupported { path },
        Some(ErrorCode::SystemIoFailure) if is_of_locks(&error) => BackendError::LocksUnsupported { path },
        _ => BackendError::Sqlite { path, source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_cannot_grow_is_a_full_disk() {
        let told_of = |path: &str, code| {
            translate(Path::new(path), rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None))
        };
        let told = |code| told_of("/", code);
        assert!(matches!(told(rusqlite::ffi::SQLITE_IOERR_SHMSIZE), BackendError::DiskFull { .. }));
        assert!(matches!(told(rusqlite::ffi::SQLITE_IOERR_READ), BackendError::Sqlite { .. }));
        let of_gone = told_of("/there/is/none", rusqlite::ffi::SQLITE_IOERR_FSTAT);
        assert!(matches!(of_gone, BackendError::NotFound { .. }), "{of_gone:?}");
    }

    /// None of this depends on the flags that SQLite was built with.
    #[test]
    fn connections_refuse_strings_in_double_quotes_and_extensions() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = open_raw(&dir.path().join("x.db"), flags, &OpenOptions::default()).unwrap();
        for refused in ["SELECT \"x\"", "CREATE TABLE t (a DEFAULT (\"x\"))", "SELECT load_extension('x')"] {
            assert!(conn.sql.execute_batch(refused).is_err(), "{refused}");
        }
    }
}
