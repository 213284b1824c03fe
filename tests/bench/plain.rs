//! Plain SQLite: the cost of the same bytes as rows of one file, a lower bound for a vault in such a file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use fastcdc::v2020::FastCDC;
use rusqlite::Connection;

use crate::generate::noise;
use crate::timed;

/// As in a vault: content-defined chunks of the same sizes, and transactions and a WAL of the same length.
const CHUNK_BYTES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
const TRANSACTION_BYTES: usize = 8 << 20;
const LOG_BYTES: usize = 48 << 20;
const READ_BYTES: usize = 16 << 20;
const INSERT_TREE: &str = "INSERT INTO tree (digest, data) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
const INSERT: &str = "INSERT INTO blob (digest, data) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

fn connect(dir: &Path) -> Connection {
    #[expect(clippy::disallowed_methods, reason = "the peer is plain SQLite")]
    let sql = Connection::open(dir.join("plain.db")).unwrap();
    sql.execute_batch(
        "PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; \
         CREATE TABLE blob (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL);",
    )
    .unwrap();
    sql
}

/// Reads, hashes, compresses and stores files in one durable commit. Milliseconds, the median of several rounds.
pub fn small_files(dir: &Path, files: &[PathBuf]) -> f64 {
    let sql = connect(dir);
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    let mut round = |number: u32| {
        sql.execute_batch("BEGIN IMMEDIATE").unwrap();
        for file in files {
            let mut content = std::fs::read(file).unwrap();
            // Different content in every round, as a command would leave it.
            content.extend_from_slice(&number.to_le_bytes());
            let packed = compressor.compress(&content).unwrap();
            let digest = blake3::hash(&content);
            sql.prepare_cached(INSERT).unwrap().execute((digest.as_bytes(), packed)).unwrap();
        }
        sql.execute_batch("COMMIT").unwrap();
    };
    crate::median((0..15).map(|number| timed(|| round(number)).0 * 1e3).collect())
}

/// Cuts and hashes a file on one thread and stores the chunks on another, until they are durable. Milliseconds.
pub fn large_file(dir: &Path, file: &Path) -> f64 {
    let sql = connect(dir);
    let (send, receive) = mpsc::sync_channel::<Vec<(blake3::Hash, Vec<u8>)>>(4);
    let cut = || {
        let mut file = File::open(file).unwrap();
        loop {
            let mut window = Vec::with_capacity(READ_BYTES);
            Read::by_ref(&mut file).take(READ_BYTES as u64).read_to_end(&mut window).unwrap();
            if window.is_empty() {
                break;
            }
            let [min, mean, max] = CHUNK_BYTES;
            let pieces = FastCDC::new(&window, min, mean, max).map(|chunk| {
                let bytes = window[chunk.offset..chunk.offset + chunk.length].to_vec();
                (blake3::hash(&bytes), bytes)
            });
            send.send(pieces.collect()).unwrap();
        }
        drop(send);
    };
    let keep = || {
        let (mut held, mut logged) = (0, 0);
        sql.execute_batch("PRAGMA synchronous=NORMAL; BEGIN IMMEDIATE").unwrap();
        for (digest, bytes) in receive.into_iter().flatten() {
            held += bytes.len();
            sql.prepare_cached(INSERT).unwrap().execute((digest.as_bytes(), bytes)).unwrap();
            if held >= TRANSACTION_BYTES {
                sql.execute_batch("COMMIT").unwrap();
                logged += std::mem::take(&mut held);
                if logged >= LOG_BYTES {
                    logged = 0;
                    checkpoint(&sql);
                }
                sql.execute_batch("BEGIN IMMEDIATE").unwrap();
            }
        }
        sql.execute_batch("COMMIT").unwrap();
        checkpoint(&sql);
    };
    let both = || {
        std::thread::scope(|scope| {
            scope.spawn(cut);
            keep();
        });
    };
    timed(both).0 * 1e3
}

/// Rows of one table: the existing rows, and the number and length of the rows that a commit adds.
pub struct Rows {
    pub there: u64,
    pub added: u64,
    pub bytes: usize,
}

/// Blobs and pages with random digests in tables as large as those of a vault.
pub struct Objects {
    sql: Connection,
    tables: [Rows; 2],
    made: u64,
    rounds: u32,
}

impl Objects {
    pub fn new(dir: &Path, tables: [Rows; 2]) -> Self {
        let sql = connect(dir);
        sql.execute_batch(
            "CREATE TABLE tree (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL)",
        )
        .unwrap();
        let mut objects = Self { sql, tables, made: 0, rounds: 0 };
        let there = objects.rows(|table| table.there);
        objects.store(there);
        objects
    }

    fn rows(&mut self, count: impl Fn(&Rows) -> u64) -> [Vec<(Vec<u8>, Vec<u8>)>; 2] {
        let made = &mut self.made;
        let mut row = |table: &Rows| {
            *made += 1;
            (noise(*made, 32), noise(*made, table.bytes))
        };
        self.tables.each_ref().map(|table| (0..count(table)).map(|_| row(table)).collect())
    }

    fn store(&self, rows: [Vec<(Vec<u8>, Vec<u8>)>; 2]) {
        self.sql.execute_batch("BEGIN IMMEDIATE").unwrap();
        for (insert, rows) in [INSERT, INSERT_TREE].into_iter().zip(rows) {
            for row in rows {
                self.sql.prepare_cached(insert).unwrap().execute(row).unwrap();
            }
        }
        self.sql.execute_batch("COMMIT").unwrap();
    }

    /// The time of one durable commit, in seconds.
    pub fn commit(&mut self) -> f64 {
        if self.rounds.is_multiple_of(20) {
            checkpoint(&self.sql);
        }
        self.rounds += 1;
        let rows = self.rows(|table| table.added);
        timed(|| self.store(rows)).0
    }
}

fn checkpoint(sql: &Connection) {
    sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}
