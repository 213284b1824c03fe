//! Plain SQLite: what the same bytes cost as rows of one file, the least that a vault in such a file can do.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use fastcdc::v2020::FastCDC;
use rusqlite::Connection;

use crate::generate::noise;
use crate::timed;

/// As a vault stores: chunks by content of the same sizes, transactions and a log of the same length.
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

/// Reads, hashes and compresses files and keeps them in one durable commit; milliseconds, the median of some rounds.
pub fn small_files(dir: &Path, files: &[PathBuf]) -> f64 {
    let sql = connect(dir);
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    let mut round = |number: u32| {
        sql.execute_batch("BEGIN IMMEDIATE").unwrap();
        for file in files {
            let mut content = std::fs::read(file).unwrap();
            // Other content in every round, as a command would leave it.
            content.extend_from_slice(&number.to_le_bytes());
            let packed = compressor.compress(&content).unwrap();
            let digest = blake3::hash(&content);
            sql.prepare_cached(INSERT).unwrap().execute((digest.as_bytes(), packed)).unwrap();
        }
        sql.execute_batch("COMMIT").unwrap();
    };
    crate::median((0..15).map(|number| timed(|| round(number)).0 * 1e3).collect())
}

/// Cuts and hashes a file on one thread and keeps the pieces on another, until they are in the file; milliseconds.
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

/// Rows of one table: how many are there, and how many of what length a commit adds.
pub struct Rows {
    pub there: u64,
    pub added: u64,
    pub bytes: usize,
}

/// Durable commits of blobs and of pages with random digests, into tables as large as those of a vault; seconds, the
/// median.
pub fn objects(dir: &Path, tables: [Rows; 2]) -> f64 {
    let sql = connect(dir);
    sql.execute_batch(
        "CREATE TABLE tree (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL)",
    )
    .unwrap();
    let mut made = 0;
    let mut row = |table: &Rows| {
        made += 1;
        (noise(made, 32), noise(made, table.bytes))
    };
    let store = |rows: [Vec<(Vec<u8>, Vec<u8>)>; 2]| {
        sql.execute_batch("BEGIN IMMEDIATE").unwrap();
        for (insert, rows) in [INSERT, INSERT_TREE].into_iter().zip(rows) {
            for row in rows {
                sql.prepare_cached(insert).unwrap().execute(row).unwrap();
            }
        }
        sql.execute_batch("COMMIT").unwrap();
    };
    store(tables.each_ref().map(|table| (0..table.there).map(|_| row(table)).collect()));
    let commit = |round: u32| {
        if round.is_multiple_of(20) {
            checkpoint(&sql);
        }
        let rows = tables.each_ref().map(|table| (0..table.added).map(|_| row(table)).collect());
        timed(|| store(rows)).0
    };
    crate::median((0..300).map(commit).collect())
}

fn checkpoint(sql: &Connection) {
    sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}
