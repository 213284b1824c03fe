//! The tables of a vault file and the migration of older files (docs/VAULT_FORMAT.md explains each).

use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// "avfs" in ASCII, in the header of every vault file.
pub(crate) const APPLICATION_ID: i64 = 0x6176_6673;

/// True if a file starts with the header of a vault, even if the rest of it is damaged.
#[must_use]
pub fn has_vault_header(path: &std::path::Path) -> bool {
    use std::io::Read;
    // The application id is at this offset of the header of every SQLite file, big-endian.
    const ID_OFFSET: usize = 68;
    let mut header = [0; ID_OFFSET + 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let id = header[ID_OFFSET..].iter().fold(0, |id, byte| id << 8 | i64::from(*byte));
    read.is_ok() && header.starts_with(b"SQLite format 3\0") && id == APPLICATION_ID
}

/// One step for each format: `MIGRATIONS[n]` migrates format n to format n + 1.
const MIGRATIONS: &[&[&str]] =
    &[&[FORMAT_1], &[FORMAT_2], &[FORMAT_3], FORMAT_4, &[super::applications::TABLE], FORMAT_6];

/// The format this avfs writes, kept in `user_version`.
pub const FORMAT: i64 = 6;
const _: () = assert!(MIGRATIONS.len() as i64 == FORMAT);
/// The oldest format that can be read without migration, for files that cannot be written.
pub(crate) const READABLE: i64 = 1;
/// The first format with a journal; with approvals; with recordings, batches and cached results; with
/// applications.
pub(crate) const JOURNALED: i64 = 2;
pub(crate) const APPROVED: i64 = 3;
pub(crate) const RECORDED: i64 = 4;
pub(crate) const APPLIED: i64 = 5;

// A CHECK with IN and more than two values makes SQLite build an ephemeral table of them for every row written,
// which takes two thirds as long as the row itself. So the tables written by every run compare the values one by
// one.

const FORMAT_1: &str = "
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE blob (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    size   INTEGER NOT NULL CHECK (size >= 0),
    codec  INTEGER NOT NULL CHECK (codec BETWEEN 0 AND 2),
    data   BLOB NOT NULL
);

CREATE TABLE tree (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    data   BLOB NOT NULL
);

CREATE TABLE version (
    id           INTEGER PRIMARY KEY,
    digest       BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    root         BLOB NOT NULL CHECK (length(root) = 32),
    content_root BLOB NOT NULL CHECK (length(content_root) = 32),
    parents      BLOB NOT NULL CHECK (length(parents) % 32 = 0),
    run          TEXT,
    message      TEXT NOT NULL,
    author       TEXT NOT NULL,
    at           INTEGER NOT NULL,
    entries      INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    pruned_at    INTEGER
);
CREATE INDEX version_run ON version (run) WHERE run IS NOT NULL;

CREATE TABLE fork (
    name       TEXT PRIMARY KEY,
    head       BLOB NOT NULL CHECK (length(head) = 32),
    base       BLOB NOT NULL CHECK (length(base) = 32),
    parent     TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) WITHOUT ROWID;

CREATE TABLE checkpoint (
    id        INTEGER PRIMARY KEY,
    fork      TEXT NOT NULL,
    name      TEXT NOT NULL,
    version   BLOB NOT NULL CHECK (length(version) = 32),
    automatic INTEGER NOT NULL CHECK (automatic IN (0, 1)),
    message   TEXT NOT NULL,
    at        INTEGER NOT NULL,
    UNIQUE (fork, name)
);

CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    before  BLOB,
    after   BLOB,
    detail  TEXT NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 32)
);
";

/// The journal of runs.
const FORMAT_2: &str = "
CREATE TABLE run (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE CHECK (length(id) = 10),
    fork           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('completed', 'failed', 'interrupted', 'recoverable')),
    version_before BLOB CHECK (version_before IS NULL OR length(version_before) = 32),
    version_after  BLOB CHECK (version_after IS NULL OR length(version_after) = 32),
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    exit_code      INTEGER,
    signal         INTEGER,
    applied_at     INTEGER,
    discarded_at   INTEGER,
    request        TEXT NOT NULL,
    decision       TEXT NOT NULL,
    result         TEXT NOT NULL
);
CREATE INDEX run_fork ON run (fork, seq);
";

/// Denied runs, and approvals. A CHECK cannot be changed in place, so the journal is copied to a new table.
const FORMAT_3: &str = "
ALTER TABLE run RENAME TO run_format_2;
CREATE TABLE run (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE CHECK (length(id) = 10),
    fork           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state = 'completed' OR state = 'failed' OR state = 'interrupted' OR
                                        state = 'recoverable' OR state = 'denied' OR state = 'approval_required'),
    version_before BLOB CHECK (version_before IS NULL OR length(version_before) = 32),
    version_after  BLOB CHECK (version_after IS NULL OR length(version_after) = 32),
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    exit_code      INTEGER,
    signal         INTEGER,
    applied_at     INTEGER,
    discarded_at   INTEGER,
    request        TEXT NOT NULL,
    decision       TEXT NOT NULL,
    result         TEXT NOT NULL
);
INSERT INTO run SELECT seq, id, fork, state, version_before, version_after, started_at, ended_at, exit_code,
                       signal, applied_at, discarded_at, request, decision, result
                FROM run_format_2 ORDER BY seq;
DROP TABLE run_format_2;
CREATE INDEX run_fork ON run (fork, seq);

CREATE TABLE approval (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE CHECK (length(id) = 10),
    request_digest BLOB NOT NULL CHECK (length(request_digest) = 32),
    state          TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'used')),
    asked_by       TEXT NOT NULL,
    reason         TEXT NOT NULL,
    request        TEXT NOT NULL,
    decision       TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    decided_at     INTEGER,
    decided_by     TEXT,
    used_by        TEXT
);
CREATE INDEX approval_request ON approval (request_digest, seq);
";

/// Recordings, batches and cached results.
const FORMAT_4: &[&str] = &[super::recordings::TABLE, super::batches::TABLES, super::memos::TABLE];

/// Partial versions: no table changes, but an avfs that does not know their mark would treat them as full versions.
const FORMAT_6: &[&str] = &[];

/// The tables that SQLite itself adds: for AUTOINCREMENT, and for ANALYZE.
const MADE_BY_SQLITE: [&str; 2] =
    ["CREATE TABLE sqlite_sequence(name,seq)", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"];

/// CHECK expressions as written above, and as earlier versions of avfs wrote them into files that still exist.
const WRITTEN_EARLIER: [(&str, &str); 2] = [
    ("codec BETWEEN 0 AND 2", "codec IN (0, 1, 2)"),
    (
        "state = 'completed' OR state = 'failed' OR state = 'interrupted' OR
                                        state = 'recoverable' OR state = 'denied' OR state = 'approval_required')",
        "state IN ('completed', 'failed', 'interrupted', 'recoverable', 'denied',
                                                  'approval_required'))",
    ),
];

/// The name of an object in the file that avfs never created: a trigger, a view, a virtual table, or a changed
/// table.
///
/// A vault may come from an untrusted source, and such an object would run as part of avfs's own statements. A
/// missing table counts as damage and is reported by the statement that needs it.
pub(crate) fn foreign_object(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let statements: Vec<&str> = MIGRATIONS
        .iter()
        .copied()
        .flatten()
        .flat_map(|text| text.split(';'))
        .map(str::trim)
        .chain(MADE_BY_SQLITE)
        .collect();
    let made_earlier = |sql: &str| {
        let rewritten =
            |(now, earlier): &(&str, &str)| statements.contains(&sql.replace(earlier, now).as_str());
        WRITTEN_EARLIER.iter().any(rewritten)
    };
    let mut select = connection.prepare("SELECT type, name, sql FROM sqlite_schema")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, sql) = (row.get_ref(0)?, row.get_ref(2)?);
        let ours = match sql {
            // The index of a UNIQUE or a PRIMARY KEY has no SQL statement.
            ValueRef::Null => kind.as_bytes_or_null() == Ok(Some(b"index")),
            ValueRef::Text(sql) => {
                std::str::from_utf8(sql).is_ok_and(|sql| statements.contains(&sql) || made_earlier(sql))
            }
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => false,
        };
        if !ours {
            let name = row.get_ref(1)?;
            let name = name.as_bytes_or_null().ok().flatten().unwrap_or_default();
            return Ok(Some(String::from_utf8_lossy(name).into_owned()));
        }
    }
    Ok(None)
}

/// Migrates a file of format `from` to [`FORMAT`], in one transaction.
pub(crate) fn migrate(connection: &Connection, from: i64) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = (|| {
        // Another process may have migrated the file while this one waited for the lock.
        let now: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let done = usize::try_from(now.max(from)).unwrap_or(0);
        for step in MIGRATIONS.iter().skip(done).copied().flatten() {
            connection.execute_batch(step)?;
        }
        connection.pragma_update(None, "user_version", FORMAT.max(now))?;
        connection.execute_batch("COMMIT")
    })();
    if migrated.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    migrated
}
