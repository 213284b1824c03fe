//! Runs: `avfs-run` as a user calls it, compared with bubblewrap, an overlay mounted by hand, native execution and cp.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::commits::Unit;
use crate::peers::{copy, has, run};
use crate::{Bench, Goal, Row, generate, median, plain, program, quiet, thrice, timed};

const ROUNDS: usize = 60;
const WORK_ROUNDS: usize = 5;
const CREATE: &str = "mkdir new && cd new && i=0; while [ $i -lt 5000 ]; do echo $i > f$i; i=$((i+1)); done";
const LIST: &str = "list=$(find . -type f | sort | head -n 1000)";
const COPY_UPS: &str = "for f in $list; do echo x >> $f; done";
const SOURCES: &str = "mkdir c; i=0; while [ $i -lt 12 ]; do \
     printf '#include <stdio.h>\\n#include <stdlib.h>\\nint f%d(int n) { putchar(n); return abs(n) + %d; }\\n' $i $i > c/$i.c; \
     i=$((i+1)); done";
const BUILD: &str = "for f in c/*.c; do cc -O2 -fPIC -c -o ${f%.c}.o $f; done; cc -shared -o c/all c/*.o";
const READ: &str = "find . -type f -print0 | xargs -0 cat > /dev/null";

/// A separate workspace with its vault and caches.
pub struct Place {
    pub work: PathBuf,
    cache: PathBuf,
}

impl Place {
    pub fn new(bench: &Bench, name: &str, files: usize) -> Self {
        let dir = bench.fresh(name);
        let place = Self { work: dir.join("work"), cache: dir.join("cache") };
        std::fs::create_dir_all(&place.work).unwrap();
        generate::tree(&place.work, files);
        quiet();
        place
    }

    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(program("avfs-run"));
        command.args(options).args(["--", "sh", "-c", script]).current_dir(&self.work);
        self.around(&mut command);
        command
    }

    pub fn avfs(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("avfs"));
        command.args(words).current_dir(&self.work);
        self.around(&mut command);
        command
    }

    pub fn around(&self, command: &mut Command) {
        // Toolchains of the tester would add mounts that the peer does not have.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("XDG_CACHE_HOME", &self.cache).stdin(Stdio::null()).stderr(Stdio::null());
    }

    fn json(&self, options: &[&str], script: &str) -> Value {
        let mut all = vec!["--json"];
        all.extend(options);
        let Output { stdout, .. } = self.command(&all, script).output().unwrap();
        let envelope: Value = serde_json::from_slice(&stdout).unwrap();
        assert!(envelope["error"].is_null(), "{envelope}");
        envelope
    }

    /// The sum of some phases of one run, in milliseconds.
    fn phases(&self, options: &[&str], script: &str, names: &[&str]) -> f64 {
        let envelope = self.json(options, script);
        names.iter().map(|name| envelope["result"]["phases_ms"][name].as_f64().unwrap()).sum()
    }

    /// Runs `true` without a shell.
    pub fn run_true(&self, options: &[&str]) -> f64 {
        let mut command = Command::new(program("avfs-run"));
        command.arg("-q").args(options).args(["--", "true"]).current_dir(&self.work);
        self.around(&mut command);
        run(&mut command) * 1e3
    }
}

/// bubblewrap with the mounts of a run.
fn bubblewrap(work: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]);
    for dir in ["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib64"] {
        match std::fs::read_link(dir) {
            Ok(target) => drop(command.arg("--symlink").arg(target).arg(dir)),
            Err(_) if Path::new(dir).is_dir() => drop(command.args(["--ro-bind", dir, dir])),
            Err(_) => {}
        }
    }
    command.args(["--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/root"]);
    command.arg("--bind").arg(work).arg(work).arg("--chdir").arg(work).arg("true");
    command
}

/// The location of the upper of an overlay that is mounted by hand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upper {
    Disk,
    Memory,
}

/// The same overlay, mounted by hand.
fn by_hand(bench: &Bench, lower: &Path, upper: Upper, before: &str, script: &str) -> f64 {
    let dir = bench.fresh("hand");
    let memory = if upper == Upper::Memory { "mount -t tmpfs tmpfs $1 && " } else { "" };
    let setup = "mkdir $1/upper $1/work $1/merged \
                 && mount -t overlay overlay -o lowerdir=$0,upperdir=$1/upper,workdir=$1/work,userxattr,volatile $1/merged \
                 && cd $1/merged && eval \"$3\" && start=$(date +%s%N) && { eval \"$2\"; } && end=$(date +%s%N) \
                 && echo $(( (end - start) / 1000 ))";
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", &format!("{memory}{setup}")])
        .arg(lower)
        .arg(&dir)
        .arg(script)
        .arg(before)
        .stderr(Stdio::null());
    let output = command.output().unwrap();
    // As a run does: on some file systems a deletion makes creating the next files slower.
    run(Command::new("sh").args(["-c", "chmod -R u+rwx $0; rm -rf $0"]).arg(&dir));
    String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().unwrap() / 1e3
}

/// Runs a script that prints how long it took, so that only the work is compared.
fn inside(place: &Place, options: &[&str], before: &str, script: &str) -> f64 {
    let timed_script = format!(
        "{before} && start=$(date +%s%N) && {{ {script}; }} && end=$(date +%s%N) && echo $(( (end - start) / 1000 ))"
    );
    let envelope = place.json(options, &timed_script);
    envelope["result"]["stdout"].as_str().unwrap().trim().parse::<f64>().unwrap() / 1e3
}

fn native(bench: &Bench, script: &str) -> f64 {
    let dir = bench.fresh("native");
    let took = run(Command::new("sh").args(["-c", script]).current_dir(&dir)) * 1e3;
    run(Command::new("rm").arg("-rf").arg(&dir));
    took
}

pub fn runs(bench: &Bench) -> Vec<Row> {
    let small = Place::new(bench, "runs-small", 10_000);
    let mut rows = Vec::new();
    let fork = ["--fork", "bench"];
    small.run_true(&fork);
    let second = small.json(&fork, "true");
    assert_eq!(second["enforcement"]["base"], "reused", "a repeated run writes no base");
    rows.extend(start_up(bench, &small, &fork));
    rows.extend(work_inside(bench, &small));
    rows.extend(captures(bench, &small));
    rows.extend(concurrent(&small, &fork));
    rows.extend(first_sight(bench));
    let size = std::fs::metadata(program("avfs-run")).unwrap().len() as f64 / 1e6;
    rows.push(figure("release binary of avfs-run", size, "MB", 12.0));
    rows
}

fn row(what: &str, ours: f64, peer: &str, theirs: f64, goal: Goal) -> Row {
    Row { what: what.to_owned(), ours, unit: "ms", peer: peer.to_owned(), theirs, goal }
}

fn figure(what: &str, ours: f64, unit: &'static str, limit: f64) -> Row {
    Row { what: what.to_owned(), ours, unit, peer: String::new(), theirs: 0.0, goal: Goal::Below(limit) }
}

/// The cost of a run that does nothing. The two are measured in alternation, so that a disturbance affects both.
fn start_up(bench: &Bench, small: &Place, fork: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    let large = Place::new(bench, "runs-large", bench.files);
    let mut times = [const { Vec::new() }; 4];
    large.run_true(fork);
    for _ in 0..ROUNDS {
        times[0].push(small.run_true(fork));
        if has("bwrap") {
            times[1].push(run(&mut bubblewrap(&small.work)) * 1e3);
        }
        times[2].push(small.phases(fork, "true", &["mount", "execute"]));
        times[3].push(large.run_true(fork));
    }
    let [ours, bwrap, sandbox, hundred] = times;
    let ours = median(ours);
    if !bwrap.is_empty() {
        let bwrap = median(bwrap);
        rows.push(row("`avfs-run --fork f -- true`, 10,000 files", ours, "bwrap", bwrap, Goal::AtMost(2.0)));
        rows.push(row(
            "of that, the sandbox alone (`sh -c true`)",
            median(sandbox),
            "bwrap",
            bwrap,
            Goal::AtMost(1.2),
        ));
    }
    let what = format!("the same on {} files", bench.files);
    rows.push(row(&what, median(hundred), "10,000 files", ours, Goal::AtMost(1.2)));
    rows
}

/// The best of several rounds of each, in alternation: disturbances are not part of the cost.
fn in_turns<const N: usize>(measured: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    crate::in_turns(WORK_ROUNDS, quiet, measured).map(|times| times.into_iter().fold(f64::INFINITY, f64::min))
}

fn work_inside(bench: &Bench, small: &Place) -> Vec<Row> {
    let on_disk =
        |before: &str, script: &str| inside(small, &["--discard", "--scratch", "disk"], before, script);
    let in_memory =
        |before: &str, script: &str| inside(small, &["--discard", "--scratch", "memory"], before, script);
    let hand = |upper, before: &str, script: &str| by_hand(bench, &small.work, upper, before, script);
    let limit = Goal::AtMost(1.05);
    let mut rows = Vec::new();

    let [ours, theirs] = in_turns([&mut || on_disk("true", READ), &mut || hand(Upper::Disk, "true", READ)]);
    rows.push(row("reading 10,000 files, scratch on disk", ours, "overlay by hand", theirs, limit));

    if has("cc") {
        let [ours, theirs] =
            in_turns([&mut || on_disk(SOURCES, BUILD), &mut || hand(Upper::Disk, SOURCES, BUILD)]);
        rows.push(row("compiling 12 C files, scratch on disk", ours, "overlay by hand", theirs, limit));
    }

    let [disk, disk_hand, memory, memory_hand, natively] = in_turns([
        &mut || on_disk("true", CREATE),
        &mut || hand(Upper::Disk, "true", CREATE),
        &mut || in_memory("true", CREATE),
        &mut || hand(Upper::Memory, "true", CREATE),
        &mut || native(bench, CREATE),
    ]);
    let what = "creating 5,000 files, scratch in memory";
    rows.push(row("creating 5,000 files, scratch on disk", disk, "overlay by hand", disk_hand, limit));
    rows.push(row(what, memory, "overlay by hand, in memory", memory_hand, limit));
    rows.push(row(what, memory, "native", natively, Goal::AtMost(0.5)));

    let [disk, disk_hand, memory, memory_hand] = in_turns([
        &mut || on_disk(LIST, COPY_UPS),
        &mut || hand(Upper::Disk, LIST, COPY_UPS),
        &mut || in_memory(LIST, COPY_UPS),
        &mut || hand(Upper::Memory, LIST, COPY_UPS),
    ]);
    let what = "1,000 copy-ups, scratch in memory";
    rows.push(row("1,000 copy-ups, scratch on disk", disk, "overlay by hand", disk_hand, limit));
    rows.push(row(what, memory, "overlay by hand, in memory", memory_hand, limit));
    rows.push(row(what, memory, "scratch on disk", disk, Goal::AtMost(0.15)));
    rows
}

/// Reading and hashing files, and one durable commit: the minimum work of a capture.
fn hash_and_commit(bench: &Bench, files: &[PathBuf]) -> f64 {
    let hashed = || {
        for file in files {
            std::hint::black_box(blake3::hash(&std::fs::read(file).unwrap()));
        }
    };
    let hashing = median((0..20).map(|_| timed(hashed).0).collect());
    (hashing + Unit::new(bench).median()) * 1e3
}

fn captures(bench: &Bench, small: &Place) -> Vec<Row> {
    let mut rows = Vec::new();
    let hundred = "for f in $(find . -type f -size -8k | sort | head -n 100); do echo $$ >> $f; done";
    let ours = median((0..15).map(|_| small.phases(&[], hundred, &["capture", "commit"])).collect());
    let mut list = Command::new("sh");
    list.args(["-c", "find . -type f -size -8k | sort | head -n 100"]).current_dir(&small.work);
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let files: Vec<PathBuf> = listed.lines().map(|line| small.work.join(line)).collect();
    let what = "capture of 100 changed small files";
    rows.push(row(what, ours, "hashing and one commit", hash_and_commit(bench, &files), Goal::AtMost(3.0)));
    let rows_of_sqlite = plain::small_files(&bench.fresh("plain"), &files);
    rows.push(row(what, ours, "plain rows of SQLite", rows_of_sqlite, Goal::AtMost(3.0)));

    let many = "mkdir many && cd many && for d in $(seq 100); do mkdir $d; for f in $(seq 100); do echo $d $f $$ > $d/$f; done; done";
    let ours = thrice(|| small.phases(&["--scratch", "disk"], many, &["capture", "commit"]));
    let from = bench.fresh("many");
    run(Command::new("sh").args(["-c", many]).current_dir(&from));
    let theirs = thrice(|| copy(&from, &bench.fresh("many-copy")) * 1e3);
    rows.push(row("capture of 10,000 new files", ours, "cp -a", theirs, Goal::AtMost(1.5)));

    let big = "head -c 500000000 /dev/urandom > big";
    let ours = thrice(|| small.phases(&["--scratch", "disk"], big, &["capture", "commit"]));
    let from = bench.fresh("big");
    run(Command::new("sh").args(["-c", big]).current_dir(&from));
    let theirs = thrice(|| copy(&from, &bench.fresh("big-copy")) * 1e3);
    let what = "capture of a new file of 500 MB";
    rows.push(row(what, ours, "cp", theirs, Goal::AtMost(4.0)));
    let rows_of_sqlite = thrice(|| plain::large_file(&bench.fresh("plain"), &from.join("big")));
    rows.push(row(what, ours, "plain rows of SQLite", rows_of_sqlite, Goal::AtMost(1.5)));
    rows
}

fn concurrent(small: &Place, fork: &[&str]) -> Vec<Row> {
    const RUNS: usize = 80;
    let (alone, _) = timed(|| (0..RUNS).map(|_| small.run_true(fork)).sum::<f64>());
    let (together, ()) = timed(|| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..RUNS / 8).map(|_| small.run_true(fork)).sum::<f64>());
            }
        });
    });
    let rate = |seconds: f64| RUNS as f64 / seconds;
    vec![Row {
        what: "8 runs at a time on one vault".to_owned(),
        ours: rate(together),
        unit: "runs/s",
        peer: "one at a time".to_owned(),
        theirs: rate(alone),
        goal: Goal::AtLeast(1.6),
    }]
}

/// A directory that avfs has not seen before.
fn first_sight(bench: &Bench) -> Vec<Row> {
    #[expect(clippy::disallowed_methods, reason = "compared with what date prints")]
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as f64;
    let mut rows = Vec::new();
    let place = Place::new(bench, "runs-new", bench.files);
    let began = now();
    let output = place.command(&["-q"], "date +%s%N").output().unwrap();
    let first = String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().unwrap();
    let what = format!("first instruction in a new directory of {} files", bench.files);
    rows.push(figure(&what, (first - began) / 1e6, "ms", 300.0));

    let [mut whole, mut import] = [const { Vec::new() }; 2];
    for _ in 0..3 {
        let place = Place::new(bench, "runs-new", bench.files);
        import.push(crate::trees::Home::new(bench).import(&place.work) * 1e3);
        quiet();
        whole.push(place.run_true(&[]));
    }
    let (whole, import) = (median(whole), median(import));
    rows.push(row("the whole run of `true` in it", whole, "the import alone", import, Goal::AtMost(1.1)));

    let place = Place::new(bench, "runs-new", bench.files);
    rows.push(figure("with --discard", place.run_true(&["--discard"]), "ms", 1000.0));
    rows
}
