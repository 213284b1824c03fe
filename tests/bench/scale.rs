//! Scale: a tree of many small files, and a vault with a long history. Time and memory of each verb, compared with git
//! and cp.
//!
//! The short form has `--files` files and 10,000 runs; the long form, with AVFS_BENCH_LONG, has 1,000,000 files and
//! 100,000 runs.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, RunId};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::Vault;
use avfs_vault::backend::{Durability, Life, RunRecord, RunState};

use crate::peers::{copy, git_import, git_status};
use crate::runs::Place;
use crate::{Bench, Goal, Row, context, median, options, program, quiet, timed};

const DIR_FILES: usize = 100;
const FORKS: usize = 1_000;
/// The limit on the resident memory of every verb, in megabytes.
const MEMORY_MB_MAX: f64 = 128.0;
/// The time within which a list must print its first line, in milliseconds.
const FIRST_LINE_MS_MAX: f64 = 50.0;
const RUN_ROUNDS: usize = 15;

/// The resources that a command used.
struct Cost {
    seconds: f64,
    /// Peak resident memory.
    memory_mb: f64,
    /// Data written to disk.
    written_mb: f64,
}

pub fn scale(bench: &Bench) -> Vec<Row> {
    let is_long = std::env::var_os("AVFS_BENCH_LONG").is_some();
    let (files, runs) = if is_long { (1_000_000, 100_000) } else { (bench.files, 10_000) };
    let tenth = Place::new(bench, "scale-tenth", 0);
    small_files(&tenth.work, files / 10);
    let place = Place::new(bench, "scale", 0);
    small_files(&place.work, files);
    let mut rows = imports(bench, &tenth, &place, files);
    rows.extend(verbs(bench, &place, files));
    rows.extend(history(bench, &place, runs));
    rows
}

/// Files of 10 to 80 bytes, each with different content.
fn small_files(dir: &Path, files: usize) {
    for number in 0..files.div_ceil(DIR_FILES) {
        let dir = dir.join(format!("t{:04}/d{:03}", number / 100, number % 100));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..DIR_FILES {
            let text = format!("{number:08}-{file:03} ").repeat(7);
            let length = 13 + (number * 7 + file * 13) % 68;
            std::fs::write(dir.join(format!("file{file:03}.txt")), &text[..length]).unwrap();
        }
    }
}

fn imports(bench: &Bench, tenth: &Place, place: &Place, files: usize) -> Vec<Row> {
    cost(tenth.avfs(&["init"]));
    cost(place.avfs(&["init"]));
    quiet();
    let small = cost(tenth.avfs(&["import"]));
    quiet();
    let ours = cost(place.avfs(&["import"]));
    let vault_mb = std::fs::metadata(place.work.join(".avfs/vault.db")).unwrap().len() as f64 / 1e6;
    let repository = bench.fresh("scale-git");
    quiet();
    let git = git_import(&repository, &place.work);
    quiet();
    let status = git_status(&repository, &place.work);
    let dir = cost(place.run(&[]));
    let seen = cost(place.avfs(&["status"]));
    let what = format!("first import, {files} small files");
    let mut rows = vec![
        row(&what, ours.seconds, "s", "git add -A && git commit", git, Goal::AtMost(0.25)),
        row(&what, ours.seconds, "s", "a tenth of the files", small.seconds, Goal::AtMost(12.0)),
        row("written by the import", ours.written_mb, "MB", "the vault", vault_mb, Goal::AtMost(4.0)),
        memory("import", &ours),
    ];
    for (name, cost) in [("`avfs-run -- true` over the directory", dir), ("status", seen)] {
        rows.push(row(name, cost.seconds, "s", "git status", status, Goal::AtMost(1.3)));
        rows.push(memory(name, &cost));
    }
    rows
}

fn verbs(bench: &Bench, place: &Place, files: usize) -> Vec<Row> {
    let (out, copied) = (bench.fresh("scale-out"), bench.fresh("scale-copy"));
    quiet();
    let export = cost(place.avfs(&["export", "main", out.join("all").to_str().unwrap()]));
    quiet();
    let cp = copy(&place.work, &copied);
    let mut rows = vec![
        row(&format!("export, {files} small files"), export.seconds, "s", "cp -a", cp, Goal::AtMost(1.0)),
        memory("export", &export),
    ];
    let forked = ["--fork", "cached", "--from", "main", "--base", "cached"];
    let mut removal = Command::new(program("avfs-run"));
    let remove = ["-q", "--fork", "removed", "--from", "main", "--", "sh", "-c", "rm -r t*"];
    place.around(removal.args(remove).current_dir(&place.work));
    let words: [(&str, Command); 7] = [
        ("first run on a fork (materialize)", place.run(&forked)),
        ("grep", place.avfs(&["grep", "main", "00000000-000"])),
        ("a run that removes everything", removal),
        ("diff of a tree that was removed", place.avfs(&["diff", "main", "removed"])),
        ("apply --dry-run of the removal", place.avfs(&["apply", "removed", "--dry-run"])),
        ("fsck", place.avfs(&["fsck"])),
        ("gc", place.avfs(&["gc"])),
    ];
    for (name, command) in words {
        quiet();
        let cost = cost(command);
        rows.push(row(name, cost.seconds, "s", "cp -a", cp, Goal::AtMost(1.0)));
        rows.push(memory(name, &cost));
    }
    rows
}

/// Runs, versions and forks as after a year of work, written by the library: sandboxes would take hours.
fn make_history(vault: &Vault, runs: usize) {
    let fork = |number: usize| ForkName::parse(&format!("task-{number:04}")).unwrap();
    let main = Reference::parse("main").unwrap();
    for number in 0..FORKS {
        vault.create_fork(&fork(number), &main, Life::Persistent).unwrap();
    }
    let path = TreePath::parse(b"t0000/d000/made").unwrap();
    let mut landed = Vec::new();
    for number in 0..runs {
        let name = fork(number % FORKS);
        let text = format!("made by run {number}\n");
        let written = vault.write_file(&name, &path, text.as_bytes(), None, "run: make").unwrap();
        let at = Timestamp(1_700_000_000_000_000_000 + number as i64 * 1_000_000_000);
        landed.push(RunRecord {
            seq: 0,
            id: RunId::parse(&format!("{number:010x}")).unwrap(),
            fork: name,
            state: RunState::Completed,
            version_before: Some(written.previous),
            version_after: Some(written.version.id),
            started_at: at,
            ended_at: Some(at),
            exit_code: Some(0),
            signal: None,
            applied_at: None,
            discarded_at: None,
            request: r#"{"command":{"argv":["make"]}}"#.to_owned(),
            decision: "{}".to_owned(),
            result: "{}".to_owned(),
        });
        if landed.len() == 1000 || number + 1 == runs {
            let mut writer = vault.backend().write().unwrap();
            landed.drain(..).for_each(|run| writer.put_run(&run).unwrap());
            writer.commit(Durability::Synced).unwrap();
        }
    }
}

fn history(bench: &Bench, place: &Place, runs: usize) -> Vec<Row> {
    let empty = Place::new(bench, "scale-empty", 0);
    small_files(&empty.work, DIR_FILES);
    for place in [&empty, place] {
        cost(place.avfs(&["import"]));
        cost(place.run(&["--fork", "bench"]));
    }
    let vault = Vault::open(&place.work.join(".avfs/vault.db"), options(), context()).unwrap();
    make_history(&vault, runs);
    vault.backend().settle().unwrap();
    drop(vault);
    let all = runs.to_string();
    let lists: [&[&str]; 6] = [
        &["runs", "list"],
        &["runs", "list", "--limit", &all],
        &["log", "task-0000"],
        &["fork", "list"],
        &["approvals", "list"],
        &["audit", "list"],
    ];
    let mut rows = Vec::new();
    for words in lists {
        let first = median((0..5).map(|_| first_line(place.avfs(words)) * 1e3).collect());
        let what = format!("first line of `avfs {}`, {runs} runs", words.join(" "));
        rows.push(row(&what, first, "ms", "", 0.0, Goal::Below(FIRST_LINE_MS_MAX)));
        rows.push(memory(&format!("`avfs {}`", words.join(" ")), &cost(place.avfs(words))));
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUN_ROUNDS {
        theirs.push(empty.run_true(&["--fork", "bench"]));
        ours.push(place.run_true(&["--fork", "bench"]));
    }
    let what = format!("`avfs-run --fork f -- true`, {FORKS} forks, {runs} runs");
    rows.push(row(&what, median(ours), "ms", "an empty vault", median(theirs), Goal::AtMost(1.1)));
    // Counts every reference, because no counts are left.
    cost(place.avfs(&["clean"]));
    let full = cost(place.avfs(&["gc"]));
    rows.push(memory("gc that counts everything", &full));
    cost(place.avfs(&["fork", "delete", "task-0007", "--force"]));
    let gc = cost(place.avfs(&["gc"]));
    let peer = "gc that counts everything";
    rows.push(row("gc after one fork was deleted", gc.seconds, "s", peer, full.seconds, Goal::AtMost(0.5)));
    rows.push(memory("gc after one fork was deleted", &gc));
    rows
}

fn row(what: &str, ours: f64, unit: &'static str, peer: &str, theirs: f64, goal: Goal) -> Row {
    Row { what: what.to_owned(), ours, unit, peer: peer.to_owned(), theirs, goal }
}

fn memory(what: &str, cost: &Cost) -> Row {
    row(&format!("{what}: memory"), cost.memory_mb, "MB", "", 0.0, Goal::Below(MEMORY_MB_MAX))
}

/// Runs a command to its end. Exit status 1 (nothing found) is not a failure.
fn cost(mut command: Command) -> Cost {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let (mut memory_mb, mut written_mb) = (0.0_f64, 0.0_f64);
    let status = loop {
        memory_mb = memory_mb.max(value_of(&child, "status", "VmHWM:") / 1e3);
        written_mb = written_mb.max(value_of(&child, "io", "write_bytes:") / 1e6);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.code().is_some_and(|code| code <= 1), "{command:?}: {status}");
    Cost { seconds: start.elapsed().as_secs_f64(), memory_mb, written_mb }
}

/// A value from the files of a process in /proc.
fn value_of(child: &Child, file: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Seconds until a command has written its first byte, or ended.
fn first_line(mut command: Command) -> f64 {
    let (time, mut child) = timed(|| {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let _ = child.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap();
        child
    });
    // The command can no longer write its output.
    drop(child.stdout.take());
    child.wait().unwrap();
    time
}

impl Place {
    /// A run of `true`, to be measured.
    fn run(&self, options: &[&str]) -> Command {
        let mut command = Command::new(program("avfs-run"));
        command.arg("-q").args(options).args(["--", "true"]).current_dir(&self.work);
        self.around(&mut command);
        command
    }
}
