//! Small commits on a large parent, in units of one durable one-row SQLite commit.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use avfs_types::clock::FileTime;
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::{BlobRecord, Life};
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::page::{FileContent, FileNode, Node};
use avfs_vault::version::full_root_of;
use avfs_vault::{Advance, Vault, When, content, diff};

use crate::generate::{Numbers, noise};
use crate::{Bench, Goal, Row, median, new_vault, plain, timed};

/// The size of each file of a commit.
const FILE_BYTES: usize = 1500;

/// The unit: one row, one transaction, one sync, on an open connection, with a new WAL that grows.
pub struct Unit(rusqlite::Connection);

impl Unit {
    pub fn new(bench: &Bench) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the peer is plain SQLite")]
        let sql = rusqlite::Connection::open(bench.fresh("unit").join("unit.db")).unwrap();
        sql.execute_batch(
            "PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (n);",
        )
        .unwrap();
        Self(sql)
    }

    pub fn commit(&self) -> f64 {
        let commit = || {
            self.0.execute_batch("BEGIN IMMEDIATE").unwrap();
            self.0.prepare_cached("INSERT INTO t VALUES (1)").unwrap().execute([]).unwrap();
            self.0.execute_batch("COMMIT").unwrap();
        };
        timed(commit).0
    }

    pub fn median(&self) -> f64 {
        median((0..ROUNDS).map(|_| self.commit()).collect())
    }
}

/// The output of a capture: small files by path.
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

/// `count` files spread over directories of 19, or all in one.
pub fn paths(count: usize, one_dir: bool) -> Vec<TreePath> {
    (0..count)
        .map(|n| {
            let dir = n / 19;
            let text = if one_dir {
                format!("all/file_{n}.rs")
            } else {
                format!("d{}/e{}/f{}/file_{n}.rs", dir % 17, dir / 17 % 19, dir / 323)
            };
            TreePath::parse(text.as_bytes()).unwrap()
        })
        .collect()
}

/// A vault with these files.
pub fn populated(path: &Path, paths: &[TreePath]) -> Vault {
    let vault = new_vault(path);
    for chunk in paths.chunks(5000) {
        let (edits, blobs) = files(chunk, 0);
        vault.commit_edits(&ForkName::main(), &edits, &blobs, &ADVANCE).unwrap();
    }
    vault.backend().settle().unwrap();
    vault
}

/// The files that a commit changes.
#[derive(Clone, Copy)]
enum Place {
    Anywhere,
    SideBySide,
}

/// A vault that receives commits, and its paths.
struct Subject {
    vault: Vault,
    paths: Vec<TreePath>,
    numbers: RefCell<Numbers>,
}

impl Subject {
    fn new(path: &Path, paths: Vec<TreePath>) -> Self {
        Self { vault: populated(path, &paths), paths, numbers: RefCell::new(Numbers::new(1)) }
    }

    /// The time of one commit of `changed` files.
    fn commit(&self, changed: usize, place: Place) -> f64 {
        // Every call makes new content, because content that is already stored costs less.
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let numbers = &mut *self.numbers.borrow_mut();
        let first = numbers.below(self.paths.len() - changed);
        let chosen: Vec<TreePath> = (0..changed)
            .map(|n| match place {
                Place::Anywhere => numbers.below(self.paths.len()),
                Place::SideBySide => first + n,
            })
            .map(|at| self.paths[at].clone())
            .collect();
        // Reading, hashing and compressing the files is the caller's part, outside the write lock.
        let (edits, blobs) = files(&chosen, call);
        timed(|| self.vault.commit_edits(&ForkName::main(), &edits, &blobs, &ADVANCE).unwrap()).0
    }

    fn commit_five(&self) -> f64 {
        self.commit(5, Place::Anywhere)
    }

    /// The rows of commits of five files, in plain SQLite.
    fn plain(&self, bench: &Bench) -> plain::Objects {
        const TRIED: u64 = 50;
        let usage = || self.vault.read().unwrap().usage().unwrap();
        let before = usage();
        for _ in 0..TRIED {
            self.commit_five();
        }
        let after = usage();
        let pages = after.trees - before.trees;
        let bytes = usize::try_from((after.tree_bytes - before.tree_bytes) / pages).unwrap();
        let tables = [
            plain::Rows { there: before.blobs, added: 5, bytes: FILE_BYTES },
            plain::Rows { there: before.trees, added: pages / TRIED, bytes },
        ];
        plain::Objects::new(&bench.fresh("plain"), tables)
    }
}

/// The medians of functions measured in alternation.
fn in_turns<const N: usize>(measured: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    crate::in_turns(ROUNDS, || (), measured).map(median)
}

const ROUNDS: usize = 300;

pub fn commits(bench: &Bench) -> Vec<Row> {
    let home = bench.fresh("commits");
    let n = bench.files;
    let spread = Subject::new(&home.join("spread.db"), paths(n, false));
    let small = Subject::new(&home.join("small.db"), paths(n / 10, false));
    let flat = Subject::new(&home.join("flat.db"), paths(n, true));
    let mut rows = Vec::new();
    let mut row = |what: &str, ours: f64, peer: &str, theirs: f64, limit: f64| {
        rows.push(Row {
            what: what.to_owned(),
            ours: ours * 1e3,
            unit: "ms",
            peer: peer.to_owned(),
            theirs: theirs * 1e3,
            goal: Goal::AtMost(limit),
        });
    };
    let (one, in_rows) = ("one-row commit", "plain rows of SQLite");
    for (files, place, what, limit) in [
        (0, Place::Anywhere, format!("commit of 0 files on {n}"), 1.5),
        (1, Place::Anywhere, format!("commit of 1 file on {n}"), 4.0),
        (5, Place::SideBySide, format!("commit of 5 neighbouring files of {n}"), 3.0),
    ] {
        let unit = Unit::new(bench);
        let [ours, theirs] = in_turns([&mut || spread.commit(files, place), &mut || unit.commit()]);
        row(&what, ours, one, theirs, limit);
    }
    let (mut plain, unit) = (spread.plain(bench), Unit::new(bench));
    let [ours, theirs, in_plain, in_small] =
        in_turns([&mut || spread.commit_five(), &mut || unit.commit(), &mut || plain.commit(), &mut || {
            small.commit_five()
        }]);
    let what = format!("commit of 5 random files of {n}");
    row(&what, ours, one, theirs, 3.0);
    row(&what, ours, in_rows, in_plain, 1.5);
    row(&what, ours, &format!("the same on {}", n / 10), in_small, 1.2);
    let (mut plain, unit) = (flat.plain(bench), Unit::new(bench));
    let [ours, theirs, in_plain] =
        in_turns([&mut || flat.commit_five(), &mut || unit.commit(), &mut || plain.commit()]);
    let what = format!("commit of 5 files in one directory of {n}");
    row(&what, ours, one, theirs, 3.0);
    row(&what, ours, in_rows, in_plain, 1.5);

    let mut forks = 0;
    let mut fork = || {
        forks += 1;
        let name = ForkName::parse(&format!("f{forks}")).unwrap();
        let from = Reference::parse("main").unwrap();
        timed(|| spread.vault.create_fork(&name, &from, Life::Persistent).unwrap()).0
    };
    let unit = Unit::new(bench);
    let [ours, theirs] = in_turns([&mut fork, &mut || unit.commit()]);
    row(&format!("fork create on {n} files"), ours, one, theirs, 2.0);

    for (name, subject) in [("spread", &spread), ("in one directory", &flat)] {
        rows.push(growth(name, subject));
        rows.push(diff_cpu(name, &subject.vault));
    }
    rows
}

/// Commits of five files with slower syncs: started as a separate process with the library that delays them.
pub fn slow_commits(bench: &Bench) -> Vec<Row> {
    let (home, n) = (bench.fresh("slow-commits"), bench.files);
    let places = [("5 random files of", false), ("5 files in one directory of", true)];
    let measure = |(which, one_dir): (&str, bool)| {
        let subject = Subject::new(&home.join(format!("{one_dir}.db")), paths(n, one_dir));
        let unit = Unit::new(bench);
        let [ours, theirs] = in_turns([&mut || subject.commit_five(), &mut || unit.commit()]);
        Row {
            what: format!("commit of {which} {n}, sync 2 ms slower"),
            ours: ours * 1e3,
            unit: "ms",
            peer: "one-row commit".to_owned(),
            theirs: theirs * 1e3,
            goal: Goal::AtMost(3.0),
        }
    };
    places.map(measure).into()
}

/// The bytes that a version of five changed files adds, without their content.
fn growth(name: &str, subject: &Subject) -> Row {
    const VERSIONS: u64 = 50;
    let used = || {
        subject.vault.backend().settle().unwrap();
        subject.vault.read().unwrap().bytes_used().unwrap()
    };
    let before = used();
    for _ in 0..VERSIONS {
        subject.commit_five();
    }
    let content = VERSIONS * 5 * FILE_BYTES as u64;
    let each = (used() - before).saturating_sub(content) as f64 / VERSIONS as f64 / 1024.0;
    let what = format!("growth per version of 5 files, {name}, without their content");
    Row { what, ours: each, unit: "KiB", peer: String::new(), theirs: 0.0, goal: Goal::Below(80.0) }
}

fn diff_cpu(name: &str, vault: &Vault) -> Row {
    let reader = vault.read().unwrap();
    let root = |text: &str| {
        let (version, _) = avfs_vault::version::resolve(&*reader, &Reference::parse(text).unwrap()).unwrap();
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
