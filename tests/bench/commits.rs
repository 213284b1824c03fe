//! Small commits on a large parent, in units of one durable one-row SQLite commit.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use avfs::backend::{BlobRecord, Life};
use avfs::hostfs::stat::FileTime;
use avfs::ids::ForkName;
use avfs::vault::edit::{Edit, Edits};
use avfs::vault::page::{FileContent, FileNode, Node};
use avfs::vault::path::TreePath;
use avfs::vault::version::{Reference, full_root_of};
use avfs::vault::{Advance, Vault, When, content, diff};

use crate::generate::{Numbers, noise};
use crate::{Bench, Goal, Row, median, new_vault, plain, timed};

/// What each file of a commit holds.
const FILE_BYTES: usize = 1500;

/// The unit: one row, one transaction, one sync, on a connection that is open.
pub fn one_row_commit(dir: &Path) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "the peer is plain SQLite")]
    let sql = rusqlite::Connection::open(dir.join("unit.db")).unwrap();
    sql.execute_batch(
        "PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (n);",
    )
    .unwrap();
    let times = (0..400)
        .map(|n| {
            timed(|| {
                sql.execute_batch("BEGIN IMMEDIATE").unwrap();
                sql.prepare_cached("INSERT INTO t VALUES (?1)").unwrap().execute([n]).unwrap();
                sql.execute_batch("COMMIT").unwrap();
            })
            .0
        })
        .collect();
    median(times)
}

/// What a capture hands over: files by path, small ones.
pub fn files(paths: &[TreePath], round: u64) -> (Edits, Vec<BlobRecord>) {
    let mut edits = Edits::new();
    let mut blobs = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        let text = noise(round << 16 | at as u64, FILE_BYTES);
        let id = content::id_of(&text);
        blobs.push(content::encode(id, text));
        let mtime = FileTime { seconds: i64::try_from(round).unwrap(), nanos: 1 };
        let content = FileContent::Whole(id);
        let file =
            FileNode { mode: 0o644, mtime, size: FILE_BYTES as u64, content, xattrs: None, link: None };
        edits.insert(path.clone(), Edit::Put(Node::File(file)));
    }
    (edits, blobs)
}

const ADVANCE: Advance<'static> =
    Advance { action: "bench", message: "bench", run: None, when: When::Always };

/// A vault with `count` files spread over directories of 19, or all in one.
fn populated(path: &Path, count: usize, one_dir: bool) -> (Vault, Vec<TreePath>) {
    let vault = new_vault(path);
    let paths: Vec<TreePath> = (0..count)
        .map(|n| {
            let dir = n / 19;
            let text = if one_dir {
                format!("all/file_{n}.rs")
            } else {
                format!("d{}/e{}/f{}/file_{n}.rs", dir % 17, dir / 17 % 19, dir / 323)
            };
            TreePath::parse(text.as_bytes()).unwrap()
        })
        .collect();
    for chunk in paths.chunks(5000) {
        let (edits, blobs) = files(chunk, 0);
        vault.commit_edits(&ForkName::main(), &edits, &blobs, &ADVANCE).unwrap();
    }
    vault.backend().settle().unwrap();
    (vault, paths)
}

/// The median time of commits of so many files: anywhere, or side by side.
fn commit_times(vault: &Vault, paths: &[TreePath], changed: usize, rounds: u64, near: bool) -> f64 {
    // Every call makes other content than all before: what is known already costs less.
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut numbers = Numbers::new(call);
    let times = (0..rounds)
        .map(|round| {
            let first = numbers.below(paths.len() - changed);
            let chosen: Vec<TreePath> = (0..changed)
                .map(|n| if near { first + n } else { numbers.below(paths.len()) })
                .map(|at| paths[at].clone())
                .collect();
            // Reading, hashing and compressing the files is the caller's part, outside the write lock.
            let (edits, blobs) = files(&chosen, call << 32 | round);
            timed(|| vault.commit_edits(&ForkName::main(), &edits, &blobs, &ADVANCE).unwrap()).0
        })
        .collect();
    median(times)
}

/// The time of commits of five files anywhere, and of the same rows in plain SQLite.
fn five_and_plain(bench: &Bench, vault: &Vault, paths: &[TreePath]) -> (f64, f64) {
    const ROUNDS: u64 = 300;
    let usage = || vault.read().unwrap().usage().unwrap();
    let before = usage();
    let ours = commit_times(vault, paths, 5, ROUNDS, false);
    let after = usage();
    let pages = after.trees - before.trees;
    let bytes = usize::try_from((after.tree_bytes - before.tree_bytes) / pages).unwrap();
    let tables = [
        plain::Rows { there: before.blobs, added: 5, bytes: FILE_BYTES },
        plain::Rows { there: before.trees, added: pages / ROUNDS, bytes },
    ];
    (ours, plain::objects(&bench.fresh("plain"), tables))
}

pub fn commits(bench: &Bench) -> Vec<Row> {
    let home = bench.fresh("commits");
    let unit = one_row_commit(&home);
    let (vault, paths) = populated(&home.join("spread.db"), bench.files, false);
    let (small, small_paths) = populated(&home.join("small.db"), bench.files / 10, false);
    let (flat, flat_paths) = populated(&home.join("flat.db"), bench.files, true);
    let ms = 1e3;
    let mut rows = Vec::new();
    let mut row = |what: String, ours: f64, peer: &str, theirs: f64, goal: Goal| {
        rows.push(Row {
            what,
            ours: ours * ms,
            unit: "ms",
            peer: peer.to_owned(),
            theirs: theirs * ms,
            goal,
        });
    };
    let n = bench.files;
    let one = "one-row commit";
    row(
        format!("commit of 0 files on {n}"),
        commit_times(&vault, &paths, 0, 300, false),
        one,
        unit,
        Goal::AtMost(1.5),
    );
    row(
        format!("commit of 1 file on {n}"),
        commit_times(&vault, &paths, 1, 300, false),
        one,
        unit,
        Goal::AtMost(4.0),
    );
    let (five, five_plain) = five_and_plain(bench, &vault, &paths);
    let five_small = commit_times(&small, &small_paths, 5, 300, false);
    let near = commit_times(&vault, &paths, 5, 300, true);
    row(format!("commit of 5 neighbouring files of {n}"), near, one, unit, Goal::AtMost(3.0));
    row(format!("commit of 5 random files of {n}"), five, one, unit, Goal::AtMost(3.0));
    let in_rows = "plain rows of SQLite";
    row(format!("commit of 5 random files of {n}"), five, in_rows, five_plain, Goal::AtMost(1.5));
    let peer = format!("the same on {}", n / 10);
    row(format!("commit of 5 random files of {n}"), five, &peer, five_small, Goal::AtMost(1.2));
    let (flat_five, flat_plain) = five_and_plain(bench, &flat, &flat_paths);
    let what = format!("commit of 5 files in one directory of {n}");
    row(what.clone(), flat_five, one, unit, Goal::AtMost(3.0));
    row(what, flat_five, in_rows, flat_plain, Goal::AtMost(1.5));

    let forks: Vec<f64> = (0..200)
        .map(|k| {
            let name = ForkName::parse(&format!("f{k}")).unwrap();
            let from = Reference::parse("main").unwrap();
            timed(|| vault.create_fork(&name, &from, Life::Persistent).unwrap()).0
        })
        .collect();
    row(format!("fork create on {n} files"), median(forks), one, unit, Goal::AtMost(2.0));

    for (name, vault, paths) in [("spread", &vault, &paths), ("in one directory", &flat, &flat_paths)] {
        rows.push(growth(name, vault, paths));
        rows.push(diff_cpu(name, vault));
    }
    rows
}

/// What a version of five changed files adds beside their content.
fn growth(name: &str, vault: &Vault, paths: &[TreePath]) -> Row {
    const VERSIONS: u64 = 50;
    let used = || {
        vault.backend().settle().unwrap();
        vault.read().unwrap().bytes_used().unwrap()
    };
    let before = used();
    commit_times(vault, paths, 5, VERSIONS, false);
    let content = VERSIONS * 5 * FILE_BYTES as u64;
    let each = (used() - before).saturating_sub(content) as f64 / VERSIONS as f64 / 1024.0;
    let what = format!("growth of a version of 5 files, {name}, beside their content");
    Row { what, ours: each, unit: "KiB", peer: String::new(), theirs: 0.0, goal: Goal::Below(80.0) }
}

fn diff_cpu(name: &str, vault: &Vault) -> Row {
    let reader = vault.read().unwrap();
    let root = |text: &str| {
        let (version, _) = Reference::parse(text).unwrap().resolve(&*reader).unwrap();
        full_root_of(&*reader, &version).unwrap()
    };
    let (new, old) = (root("main"), root("main~1"));
    let view = &*reader;
    let cpu = || {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6
    };
    let times = (0..50)
        .map(|_| {
            let start = cpu();
            assert_eq!(diff::diff(&view, &old, &new).unwrap().len(), 5);
            cpu() - start
        })
        .collect();
    let what = format!("diff of two versions that differ in 5 files, {name}, CPU");
    Row { what, ours: median(times), unit: "ms", peer: String::new(), theirs: 0.0, goal: Goal::Below(2.0) }
}
