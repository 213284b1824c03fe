//! The benchmark: every figure is a ratio to a peer measured in the same run (docs/BENCHMARKS.md).
//!
//! Run by `scripts/bench`, which installs the peers. Usage: `vault [--files N] [--dir DIR] [--only NAME]`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people at a terminal")]

mod commits;
mod generate;
mod large;
mod lists;
mod peers;
mod plain;
mod processes;
mod runs;
mod scale;
mod syncs;
mod trees;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use avfs_types::clock::SystemClock;
use avfs_vault::backend::sqlite::{OnClose, OpenOptions};
use avfs_vault::{Context, Vault};

/// One line of the result: a measured value and its ratio to a peer.
pub struct Row {
    pub what: String,
    pub ours: f64,
    pub unit: &'static str,
    pub peer: String,
    pub theirs: f64,
    /// The limit of the ratio, and its direction.
    pub goal: Goal,
}

#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// A figure without a peer.
    Below(f64),
}

impl Row {
    /// True if the figure does not depend on the speed of the machine.
    fn is_exact(&self) -> bool {
        ["MB", "KiB", "syncs"].contains(&self.unit)
    }

    /// Prints the row; false if its goal is missed. With `checks`, only exact figures have a result.
    fn print(&self, checks: bool) -> bool {
        let ratio = if self.theirs > 0.0 { self.ours / self.theirs } else { 0.0 };
        let (goal, held) = match self.goal {
            Goal::AtMost(limit) => (format!("≤ {limit} ×"), ratio <= limit),
            Goal::AtLeast(limit) => (format!("≥ {limit} ×"), ratio >= limit),
            Goal::Below(limit) => (format!("< {limit} {}", self.unit), self.ours < limit),
        };
        let ratio = if self.theirs > 0.0 { format!("{ratio:.2}") } else { "–".to_owned() };
        let is_judged = !checks || self.is_exact();
        let result = match (is_judged, held) {
            (false, _) => "not judged",
            (true, true) => "held",
            (true, false) => "**missed**",
        };
        println!(
            "| {} | {:.2} {} | {} {} | {} | {} | {} |",
            self.what,
            self.ours,
            self.unit,
            self.peer,
            if self.theirs > 0.0 { format!("{:.2}", self.theirs) } else { String::new() },
            ratio,
            goal,
            result
        );
        held || !is_judged
    }
}

type Part = fn(&Bench) -> Vec<Row>;

pub struct Bench {
    pub dir: PathBuf,
    pub files: usize,
    only: Option<String>,
}

impl Bench {
    /// A directory that was never used before: some file systems slow down after mass deletes.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let path = self.dir.join(format!("{name}-{}", unique()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }
}

fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A program of the release build, as installed.
pub fn program(name: &str) -> PathBuf {
    let dir = std::env::var_os("AVFS_BENCH_BIN").expect("scripts/bench sets AVFS_BENCH_BIN");
    PathBuf::from(dir).join(name)
}

pub fn context() -> Context {
    Context { clock: Arc::new(SystemClock), actor: "bench".to_owned() }
}

pub fn options() -> OpenOptions {
    OpenOptions { on_close: OnClose::LeaveLog, ..OpenOptions::default() }
}

pub fn new_vault(path: &Path) -> Vault {
    Vault::create(path, None, options(), context()).unwrap()
}

pub fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = work();
    (start.elapsed().as_secs_f64(), value)
}

/// The median of several runs.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Lets the disk catch up, so that one measurement does not pay for the previous one.
pub fn quiet() {
    // One sync may leave work behind: data written to a file system in an image file has yet to reach the disk.
    for _ in 0..10 {
        rustix::fs::sync();
        if unwritten_kib() < 4096 {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(300));
}

/// Measures several functions in alternation, because the speed of a disk varies.
pub fn in_turns<const N: usize>(
    rounds: usize,
    before_each: fn(),
    mut measured: [&mut dyn FnMut() -> f64; N],
) -> [Vec<f64>; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (times, measure) in times.iter_mut().zip(&mut measured) {
            before_each();
            times.push(measure());
        }
    }
    times
}

/// The median of three measurements, each on a quiet disk.
pub fn thrice(mut measure: impl FnMut() -> f64) -> f64 {
    median(
        (0..3)
            .map(|_| {
                quiet();
                measure()
            })
            .collect(),
    )
}

/// Kibibytes that are not yet written to disk.
fn unwritten_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    value("Dirty:") + value("Writeback:")
}

fn main() -> ExitCode {
    let mut bench = Bench { dir: std::env::temp_dir().join("avfs-bench"), files: 100_000, only: None };
    let mut checks = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--files" => bench.files = args.next().unwrap().parse().unwrap(),
            "--dir" => bench.dir = args.next().unwrap().into(),
            "--only" => bench.only = args.next(),
            "--check" => checks = true,
            "--writer" => {
                processes::writer(&args.collect::<Vec<_>>());
                return ExitCode::SUCCESS;
            }
            "--slow-commits" => {
                for row in commits::slow_commits(&bench) {
                    row.print(false);
                }
                return ExitCode::SUCCESS;
            }
            "--bench" => {}
            other => panic!("unknown argument {other}"),
        }
    }
    std::fs::create_dir_all(&bench.dir).unwrap();
    println!("| what | avfs | peer | ratio | goal | |\n|---|---|---|---|---|---|");
    let parts: [(&str, Part); 9] = [
        ("generated", trees::generated),
        ("real", trees::real),
        ("commits", commits::commits),
        ("processes", processes::processes),
        ("large", large::large),
        ("runs", runs::runs),
        ("syncs", syncs::syncs),
        ("lists", lists::lists),
        ("scale", scale::scale),
    ];
    let mut failed = 0;
    for (name, part) in parts {
        if bench.wants(name) {
            failed += part(&bench).iter().filter(|row| !row.print(checks)).count();
        }
    }
    // Set by scripts/bench to a library that makes every sync 2 ms longer.
    if bench.wants("commits")
        && let Ok(library) = std::env::var("AVFS_BENCH_SLOW_SYNC")
    {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--files", &bench.files.to_string(), "--dir"]).arg(&bench.dir).arg("--slow-commits");
        assert!(again.env("LD_PRELOAD", library).status().unwrap().success());
    }
    if checks && failed > 0 {
        println!("\n{failed} goals that do not depend on the speed of the machine are missed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
