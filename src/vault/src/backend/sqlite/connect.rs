//! Opens connections. Nothing else does, so every connection has the same settings.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use rustix::fs::{FlockOperation, StatVfs, fcntl_lock};
use rustix::io::Errno;

use avfs_hostfs::owner::{self, OwnersKept};

use super::{placeholders, schema};
use crate::backend::{BackendError, Result};

/// The page size in bytes: large enough that most small files share a page, small enough that a commit writes
/// little.
pub(crate) const PAGE_BYTES: usize = 8192;
/// The page cache: enough for the index of some 100,000 objects. SQLite scans the whole cache at the end of each
/// commit that split a page. Pages changed by a transaction are kept in addition, regardless of their number:
/// spilling would write them to the WAL twice.
const CACHE_KIB: i64 = 8 * 1024;
/// Only the beginning of a larger vault is mapped: pages read through the mapping count as memory of the process,
/// for each connection again.
const MMAP_BYTES: i64 = 16 << 20;
/// The WAL file is truncated to this size when it is restarted.
const LOG_BYTES_MAX: i64 = 64 << 20;
const STATEMENTS_CACHED: usize = 64;
/// How long a reader without write permission waits for a WAL that appears and disappears, and how often it checks.
const GONE_LOG_PATIENCE: Duration = Duration::from_secs(5);
const GONE_LOG_PAUSE: Duration = Duration::from_millis(2);

/// The state of the vault's files after the last process closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnClose {
    /// The vault is a single file: the write-ahead log is checkpointed and removed.
    Settle,
    /// The write-ahead log stays, for the next process to read. Closing waits for the disk only if the log is long.
    LeaveLog,
}

/// Options for opening a vault file.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// How long to wait for other processes before giving up.
    pub patience: Duration,
    /// What happens to the write-ahead log when the vault is closed.
    pub on_close: OnClose,
    /// Whether the file is mapped into memory.
    pub mapped: Mapped,
}

/// Whether the file is memory-mapped: faster for large reads, but all pages read count as used memory.
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

/// A connection, and the length of the WAL after its last commit.
pub(crate) struct Conn {
    pub(crate) sql: Connection,
    pub(crate) log_pages: Arc<AtomicI32>,
    mapped: Mapped,
    /// Whether SQLite syncs writes whose order on disk matters.
    orders_writes: Cell<bool>,
    /// For a file that is read without locks: its state when it was opened.
    pub(crate) stand: Option<Stand>,
}

impl Conn {
    /// Stops mapping the file. For callers that may read much of it and must keep their memory use low; and for
    /// writers: after a commit of another process SQLite would unmap and remap the whole file, during the turn, for
    /// the few pages that are not in the WAL.
    pub(crate) fn unmap(&mut self) -> rusqlite::Result<()> {
        if self.mapped == Mapped::Yes {
            self.sql.pragma_update(None, "mmap_size", 0)?;
            self.mapped = Mapped::No;
        }
        Ok(())
    }

    /// Whether SQLite itself syncs: the header of a WAL that it overwrites from the start, before the first frame,
    /// and all pages moved by a checkpoint. Only a transaction that starts an empty WAL can do without: the file
    /// contains nothing that could be mistaken for a part of the new WAL, and the single sync of the commit covers
    /// header and frames.
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
    /// The disk has no room for a WAL: the file is opened as if it were read-only.
    Full,
}

/// The path of a file next to the vault file: `vault.db` → `vault.db-wal`.
pub fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

/// Creates the empty file that [`create`] turns into a vault; the caller has checked that the path is free.
pub(crate) fn make_file(path: &Path) -> Result<File> {
    // The vault contains data of files that only their owner can read. SQLite gives its companion files the same
    // mode.
    let mut only_owner = std::fs::OpenOptions::new();
    only_owner.write(true).create_new(true).mode(0o600);
    only_owner.open(path).map_err(|error| BackendError::io("create", path, error))
}

/// Creates an empty vault in an empty file.
pub(crate) fn create(path: &Path, options: &OpenOptions) -> Result<Conn> {
    // No lock on the file exists yet that closing the descriptor could drop.
    check_locks_of(path, path)?;
    let _kept = owners_kept(path)?;
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

/// Opens an existing vault file after checking that this avfs can use it; also returns its format.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<(Conn, Access, i64)> {
    let meta = std::fs::metadata(path).map_err(|error| BackendError::io("open", path, error))?;
    if !meta.is_file() {
        return Err(BackendError::Foreign { path: path.to_owned() });
    }
    // Use access(2) instead of opening: closing another descriptor of the file would drop this process's locks on
    // it.
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
    match check_room(path).and_then(|()| {
        make_log(path, &meta);
        opened(Access::ReadWrite)
    }) {
        // The vault can still be read, and saved to another disk. If that fails too, report the full disk.
        Err(full @ BackendError::DiskFull { .. }) => opened(Access::Full).map_err(|_| full),
        opened => opened,
    }
}

/// Creates the files of the WAL with the owner, group and mode of the vault, if SQLite would give them others: users
/// who share the vault also need its WAL, even after this process has ended. Existing files stay unchanged.
fn make_log(path: &Path, vault: &Metadata) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if (vault.uid(), vault.gid()) == (user.as_raw(), group.as_raw()) {
        return;
    }
    for suffix in ["-wal", "-shm"] {
        // If that fails, SQLite creates the file, or reports why it cannot.
        let _ = owner::create_like(&sibling(path, suffix), vault, 0o666);
    }
}

/// Keeps SQLite from giving away a file that another user has put at the name of one of its files.
fn owners_kept(path: &Path) -> Result<OwnersKept> {
    OwnersKept::begin().map_err(|error| BackendError::io("open", path, error))
}

/// Why no vault can be created at a path in use: a vault or something else exists there. Changes nothing.
pub(crate) fn taken(path: &Path, options: &OpenOptions) -> BackendError {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    if !is_file {
        // This includes a dangling symlink.
        return BackendError::Foreign { path: path.to_owned() };
    }
    let looked = open_as(path, Access::ReadOnly, options)
        .and_then(|conn| check_header(path, &conn, Access::ReadOnly).map(|_| ()));
    match looked {
        // A vault so old that it must be written before it can be read.
        Ok(()) | Err(BackendError::ReadOnly { .. }) => BackendError::Exists { path: path.to_owned() },
        Err(error) => error,
    }
}

/// A value of the table `meta` of a vault that is not in use here. Changes nothing.
pub(crate) fn look_up(path: &Path, key: &str, options: &OpenOptions) -> Result<Option<Vec<u8>>> {
    let conn = open_as(path, Access::ReadOnly, options)?;
    check_header(path, &conn, Access::ReadOnly)?;
    let value = conn.sql.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0));
    value.optional().map_err(|error| translate(path, error))
}

/// Opens another connection to a vault whose header was checked.
pub(crate) fn open_as(path: &Path, access: Access, options: &OpenOptions) -> Result<Conn> {
    // SQLite would play back the journal, regardless of its author.
    placeholders::check_journal(path)?;
    match access {
        Access::ReadWrite => {
            let _kept = owners_kept(path)?;
            let conn = open_raw(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
            // SQLite opens the WAL with the first read.
            let read = conn.sql.query_row("PRAGMA schema_version", [], |_| Ok(()));
            read.map_err(|error| translate(path, error)).map(|()| conn)
        }
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

/// The state of a vault file, for readers that use no locks.
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

    /// True if the file itself was not written since, regardless of the WAL.
    pub(crate) fn is_unwritten(&self, now: &Self) -> bool {
        Self { has_log: now.has_log, ..*self } == *now
    }
}

/// Opens a vault that cannot be written. A WAL needs files next to the vault; if they cannot be created and no WAL
/// exists, the file is read alone.
///
/// An empty WAL counts as missing: SQLite would give it the mode of the file, which the owner may change back.
fn open_read_only(path: &Path, options: &OpenOptions) -> Result<Conn> {
    let give_up_at = Instant::now() + options.patience.min(GONE_LOG_PATIENCE);
    let stand = loop {
        let stand = Stand::of(path)?;
        if !stand.has_log {
            break stand;
        }
        match open_raw(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options) {
            // The last writer has removed the WAL since the check, and SQLite would have to create one. On a
            // read-only file system there is no writer to wait for.
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
    // Another process may truncate the file, and reading a mapping past the end of the file is fatal (SIGBUS).
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

/// Opens the database that SQLite knows as `uri` and users as `path`.
#[expect(clippy::disallowed_methods, reason = "the only place that opens connections")]
fn open_named(uri: &Path, path: &Path, flags: OpenFlags, options: &OpenOptions) -> Result<Conn> {
    let log_pages = Arc::new(AtomicI32::new(0));
    let configure = || -> rusqlite::Result<Connection> {
        let mut sql = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        sql.busy_timeout(options.patience)?;
        sql.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        let keep_log = options.on_close != OnClose::Settle;
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep_log)?;
        // A vault may come from an untrusted source: run no code that it contains.
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
        // Setting the hook also disables SQLite's automatic checkpoints: they would run inside a commit, under the
        // lock.
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

/// Checks the header and returns the format of the file, migrating it first if the file can be written.
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
            // Every vault has a format from its creation on.
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
            // A newer avfs may have migrated the file in the meantime.
            readable(pragma("user_version")?)
        }
        Access::ReadOnly | Access::Full if found < schema::READABLE => {
            Err(BackendError::ReadOnly { path: path.to_owned() })
        }
        Access::ReadWrite | Access::ReadOnly | Access::Full => Ok(found),
    }
}

fn not_of_its_format(path: &Path, said: i64) -> BackendError {
    let detail = format!("the header says format {said}, but the tables do not match it");
    BackendError::Corrupt { path: path.to_owned(), detail }
}

/// SQLite's message if a statement does not match the tables: something is missing or already exists. All
/// statements are avfs's own, so the tables were changed by another program. SQLite has no error code for it, and
/// only some of these errors carry an offset into the statement.
fn other_tables(error: &rusqlite::Error) -> Option<String> {
    if let rusqlite::Error::SqlInputError { msg, .. } = error {
        return Some(msg.clone());
    }
    let rusqlite::Error::SqliteFailure(_, Some(message)) = error else { return None };
    // The last message is about the schema format number in the header.
    let misses = ["no such table: ", "no such column: ", "unsupported file format"]
        .iter()
        .any(|start| message.starts_with(start));
    misses.then(|| message.clone())
}

/// Bytes that must be free for the index of the WAL (`-shm`).
const ROOM_BYTES: u64 = 128 * 1024;
const PAGE_OF_MEMORY: u64 = 4096;

/// True if a memory page spans several blocks of the file's disk. SQLite allocates the index of the WAL by writing
/// one byte in each page; the kernel allocates the other blocks when they are written, and reports a full disk with
/// a signal (SIGBUS).
pub(crate) fn has_small_blocks(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| is_of_small_blocks(&disk))
}

fn is_of_small_blocks(disk: &StatVfs) -> bool {
    // A file system that reports no blocks cannot run out of them.
    disk.f_blocks > 0 && disk.f_frsize < PAGE_OF_MEMORY
}

fn lacks_room(disk: &StatVfs) -> bool {
    // For root too: the remaining free blocks may be reserved for the file system itself.
    disk.f_bavail.saturating_mul(disk.f_frsize) < ROOM_BYTES
}

/// Refuses a full disk on which [`has_small_blocks`] predicts a signal.
pub(crate) fn check_room(path: &Path) -> Result<()> {
    if rustix::fs::statvfs(path).is_ok_and(|disk| is_of_small_blocks(&disk) && lacks_room(&disk)) {
        return Err(BackendError::DiskFull { path: path.to_owned() });
    }
    Ok(())
}

/// Refuses a file system without locks, where SQLite would treat every lock as held by another process.
pub(crate) fn check_locks(path: &Path) -> Result<()> {
    // Not on the vault itself: closing any descriptor of a file drops all locks of the process on it, SQLite's too.
    check_locks_of(&sibling(path, "-lock"), path)
}

/// Acquires and releases a lock on a file next to the vault, or on a file that is not a vault yet.
fn check_locks_of(file: &Path, vault: &Path) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    // Do not block on a FIFO.
    options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let Ok(file) = options.open(file) else { return Ok(()) };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) | Err(Errno::AGAIN | Errno::ACCESS | Errno::INTR) => Ok(()),
        Err(_) => Err(BackendError::LocksUnsupported { path: vault.to_owned() }),
    }
}

/// True if the lock operation itself failed, not if another process holds the lock.
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

/// True if the index of the WAL cannot grow because the disk is full. SQLite has one code for this and for other
/// errors of the disk.
fn is_full(path: &Path, error: &rusqlite::Error) -> bool {
    let cannot_grow = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    error.sqlite_error().is_some_and(|error| error.extended_code == cannot_grow)
        && rustix::fs::statvfs(path).is_ok_and(|disk| lacks_room(&disk))
}

/// Converts an error of SQLite.
pub(crate) fn translate(path: &Path, error: rusqlite::Error) -> BackendError {
    let path = path.to_owned();
    // avfs never writes a value of this type or length, so the column was edited by another program.
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
        Some(ErrorCode::SystemIoFailure) if is_full(&path, &error) => BackendError::DiskFull { path },
        _ if gave_up_on_a_lock(&error) => BackendError::LocksUnsupported { path },
        Some(ErrorCode::SystemIoFailure) if is_of_locks(&error) => BackendError::LocksUnsupported { path },
        _ => BackendError::Sqlite { path, source: error },
    }
}

/// True if SQLite did not get a lock within ten seconds that no process holds for longer than a moment.
pub(super) fn gave_up_on_a_lock(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::FileLockingProtocolFailed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wal_index_that_cannot_grow_is_an_error_of_the_disk_if_there_is_room() {
        let translated_at = |path: &str, code| {
            translate(Path::new(path), rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None))
        };
        let translated = |code| translated_at("/", code);
        assert!(matches!(translated(rusqlite::ffi::SQLITE_IOERR_SHMSIZE), BackendError::Sqlite { .. }));
        assert!(matches!(translated(rusqlite::ffi::SQLITE_IOERR_READ), BackendError::Sqlite { .. }));
        let of_gone = translated_at("/there/is/none", rusqlite::ffi::SQLITE_IOERR_FSTAT);
        assert!(matches!(of_gone, BackendError::NotFound { .. }), "{of_gone:?}");
    }

    /// None of this depends on SQLite's build flags.
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
