//! The other processes of a test: this test binary, started again for one task until it is killed or done.
//!
//! A worker prints `ack …` on its standard output only after the acknowledged operation has returned.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use avfs_changes::ApplyError;
use avfs_hostfs::beneath;
use avfs_types::clock::{SteppingClock, Timestamp};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::RunId;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::backend::{Life, RunRecord};
use avfs_vault::capture::{CaptureOptions, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::fork::Deletion;
use avfs_vault::import::OnTrouble;
use avfs_vault::materialize::{BaseCache, Trust};
use avfs_vault::meter::Meter;
use avfs_vault::quota::Quota;
use avfs_vault::run::Landing;
use avfs_vault::set_ids::SetIds;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::write_out::FreshPages;
use avfs_vault::{Advance, Context, Vault, When};

use crate::runs::Changes;
use crate::support::pause::Pauses;
use crate::support::{Scratch, wait};
use crate::{runs, support};

const ROLE: &str = "AVFS_TEST_WORKER";
/// The boot id of workers.
pub const BOOT: &str = "boot-1";
/// Longer than any expected wait of a worker.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running worker; dropping it kills it.
pub struct Worker {
    pub child: Child,
    lines: mpsc::Receiver<String>,
}

/// The output of a worker.
#[derive(Debug)]
pub struct Said(Vec<String>);

impl Said {
    fn all(&self, word: &str) -> Vec<String> {
        self.0.iter().filter_map(|line| Some(line.strip_prefix(word)?.trim_start().to_owned())).collect()
    }

    pub fn acks(&self) -> Vec<String> {
        self.all("ack")
    }

    /// Failed operations: the code, then the message.
    pub fn refused(&self) -> Vec<String> {
        self.all("refused")
    }

    /// Paths that an import reported, each with the reason.
    pub fn troubles(&self) -> Vec<String> {
        self.all("trouble")
    }
}

impl Worker {
    /// Starts a worker; it waits for [`Worker::go`].
    pub fn start(role: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_as(Command::new(std::env::current_exe().unwrap()), role, settings)
    }

    /// Starts a worker that stops at these pause points; it starts immediately.
    pub fn paused(pauses: &Pauses, role: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        pauses.set(&mut command);
        let mut worker = Self::start_as(command, role, settings);
        worker.go();
        worker
    }

    /// Like [`Worker::start`]; `command` ends with this test binary and may start with another program.
    pub fn start_as(mut command: Command, role: &str, settings: &[(&str, &str)]) -> Self {
        command.args(["--exact", "worker::worker", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in settings {
            command.env(format!("AVFS_TEST_W_{name}"), value);
        }
        let mut child = command.spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // An incomplete line does not count: the worker died while writing it.
            while stdout.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                let _ = send.send(line.trim_end().to_owned());
                line.clear();
            }
        });
        Self { child, lines }
    }

    /// Waits until the worker has opened its vault.
    pub fn wait_ready(&mut self) {
        self.wait_for("ready");
    }

    /// Waits until the worker prints a line.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str) {
        // The channel ends when the worker does.
        if !self.lines.iter().any(|line| line == what) {
            panic!("the worker ended without {what}: {}", self.stderr());
        }
    }

    /// Lets the worker start.
    pub fn go(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Whether a `flock` of this process waits for another process.
    pub fn waits_for_lock(&self) -> bool {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let id = self.child.id().to_string();
        locks.lines().any(|line| line.contains("->") && line.split(' ').any(|word| word == id))
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Kills the worker with SIGKILL; fails if it has already ended.
    #[track_caller]
    pub fn kill(mut self) -> Said {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the worker was not killed: {status}, {}", self.stderr());
        Said(self.lines.iter().collect())
    }

    /// Waits for the end of the worker, regardless of its status.
    pub fn end(mut self) -> (std::process::ExitStatus, Said) {
        let lines = self.lines.iter().collect();
        (self.child.wait().unwrap(), Said(lines))
    }

    /// Waits for the end of the worker; fails if the worker failed.
    #[track_caller]
    pub fn finish(mut self) -> Said {
        let lines = self.lines.iter().collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a worker failed: {status}, {}", self.stderr());
        Said(lines)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// At most `most` of the pause points that a worker passed, as a test holds them: the first and the last of each name,
/// and others evenly distributed.
pub fn moments(points: &[String], most: usize) -> Vec<String> {
    let seen_before = |at: usize| points[..at].iter().filter(|point| **point == points[at]).count();
    let is_edge = |at: &usize| seen_before(*at) == 0 || !points[at + 1..].contains(&points[*at]);
    let mut chosen: Vec<usize> = (0..points.len()).filter(is_edge).collect();
    let others: Vec<usize> = (0..points.len()).filter(|at| !is_edge(at)).collect();
    let room = most.saturating_sub(chosen.len()).min(others.len());
    chosen.extend((0..room).map(|n| others[n * others.len() / room]));
    chosen.sort_unstable();
    chosen.into_iter().map(|at| format!("{}#{}", points[at], seen_before(at) + 1)).collect()
}

/// Runs a worker to its end, then kills new ones at `most` of the points that it passed; `killed` runs after each
/// kill. Returns the acknowledgements of the workers.
pub fn kill_at_points(
    scratch: &Scratch,
    most: usize,
    role: &str,
    settings: &[(&str, &str)],
    mut killed: impl FnMut(&str),
) -> Vec<String> {
    let pauses = Pauses::new(scratch.path());
    let mut acks = Worker::paused(&pauses, role, settings).finish().acks();
    assert!(!acks.is_empty(), "{role} acknowledged nothing");
    for moment in moments(&pauses.reached(), most) {
        let pauses = Pauses::new(scratch.path());
        pauses.hold(&moment);
        let mut worker = Worker::paused(&pauses, role, settings);
        pauses.wait(&moment, &mut worker.child);
        acks.extend(worker.kill().acks());
        killed(&moment);
    }
    acks
}

#[expect(clippy::disallowed_methods, reason = "a worker answers its test here")]
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // The harness may have printed an incomplete line.
    out.write_all(format!("\n{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn setting(name: &str) -> String {
    std::env::var(format!("AVFS_TEST_W_{name}")).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn optional(name: &str) -> Option<String> {
    std::env::var(format!("AVFS_TEST_W_{name}")).ok()
}

/// Uses the real clock, or one that starts at `NOW`.
fn context() -> Context {
    let Some(now) = optional("NOW") else { return support::real_context() };
    let clock = Arc::new(SteppingClock::starting_at(Timestamp(now.parse().unwrap())));
    Context { clock, ..support::real_context() }
}

fn options() -> OpenOptions {
    OpenOptions { patience: PATIENCE, ..OpenOptions::default() }
}

/// The worker side of every test that needs another process.
#[test]
fn worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(setting("VAULT"));
    if role == "create" {
        return create(&path);
    }
    let vault = Vault::open(&path, options(), context()).unwrap();
    let vault = match optional("CACHE") {
        Some(cache) => vault.noting(Unfinished::new(Path::new(&cache))),
        None => vault,
    };
    vault.forks().unwrap();
    say("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let work: fn(&Vault, u64) = match role.as_str() {
        "write" => write,
        "land" => land,
        "apply" => apply,
        "import" => import,
        "scan" => scan,
        "gc" => gc,
        "sweep" => sweep,
        "limit" => |vault, _| {
            let files = setting("FILES").parse().ok();
            vault.change_quota(|old| Quota { files, ..old }).unwrap();
        },
        "claim" => |vault, _| say(&format!("ack {}", crate::approvals::claims(vault, 2))),
        "export" => export,
        "materialize" => materialize,
        "evict" => evict,
        "capture" => capture,
        "stack" => stack,
        // Opens and closes, as a short command does.
        "visit" => |_, _| {},
        other => panic!("unknown role {other}"),
    };
    let rounds = optional("ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    (0..rounds).for_each(|round| work(&vault, round));
}

fn create(path: &Path) {
    match Vault::create(path, None, options(), context()) {
        Ok(_) => say("ack created"),
        Err(error) => say(&format!("refused {}", error.code())),
    }
}

fn write(vault: &Vault, round: u64) {
    let name = setting("NAME");
    let content = format!("{name} wrote round {round}\n").repeat(20);
    let path = support::path(&format!("{name}/f{}", round % 20));
    let fork = support::fork(&setting("FORK"));
    let written = vault.write_file(&fork, &path, content.as_bytes(), None, &name).unwrap();
    say(&format!("ack {}", written.version.id));
}

/// A run that changes two files of its fork.
fn land(vault: &Vault, round: u64) {
    let fork = support::fork(&setting("FORK"));
    let base = vault.fork(&fork).unwrap().head;
    let text = format!("run {round}\n").repeat(20);
    let changes = Changes::default().put("by-a-run", &text).put(&format!("by-run-{round}"), &text);
    let [.., a, b] = round.to_be_bytes();
    let record = RunRecord { id: RunId::from_random([0, 0, 0, a, b]), ..runs::record(0, &fork) };
    let done = changes.land(vault, Landing::Fork { name: &fork, base }, record).unwrap();
    say(&format!("ack {}", done.landed.version().unwrap()));
}

fn apply(vault: &Vault, _: u64) {
    match crate::apply::apply_fork(vault, &setting("FORK"), Path::new(&setting("DIR"))) {
        Ok(_) => say("ack applied"),
        Err(ApplyError::Conflict { conflicts, .. }) => {
            conflicts
                .iter()
                .for_each(|conflict| say(&format!("refused {}: {}", conflict.path, conflict.reason)));
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Writes new files to a directory and imports it.
fn import(vault: &Vault, _: u64) {
    let (dir, cache) = (PathBuf::from(setting("DIR")), PathBuf::from(setting("CACHE")));
    let id = std::process::id();
    for n in 0..40 {
        std::fs::write(dir.join(format!("f{n}")), format!("{id} {n}\n").repeat(30)).unwrap();
    }
    std::fs::write(dir.join("large"), support::noise(id.into(), 3 << 19)).unwrap();
    // Every file is read once then, and the cache is trusted.
    support::settle();
    let imported = support::try_import(vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    say(&format!("ack {}", imported.committed.version.id));
}

/// Imports a directory without changing it.
fn scan(vault: &Vault, _: u64) {
    let cache = optional("CACHE").map(PathBuf::from);
    let on_trouble = optional("KEEP_GOING").map_or(OnTrouble::Fail, |_| OnTrouble::KeepGoing);
    match support::try_import(vault, Path::new(&setting("DIR")), cache.as_deref(), on_trouble) {
        Ok(imported) => {
            let troubles = &imported.scanned.troubles;
            troubles
                .iter()
                .for_each(|trouble| say(&format!("trouble {} {:?}", trouble.path, trouble.reason)));
            say(&format!("ack read={}", imported.scanned.files_read));
        }
        Err(error) => say(&format!("refused {}: {error}", error.code())),
    }
}

/// Makes garbage, then sweeps it.
fn gc(vault: &Vault, round: u64) {
    let name = support::fork(&format!("g{}-{round}", std::process::id()));
    vault.create_fork(&name, &support::reference("main"), Life::Persistent).unwrap();
    for n in 0..2 {
        let content = support::noise(round * 100 + n + u64::from(std::process::id()) * 10_000, 300_000);
        vault
            .write_file(&name, &support::path(&format!("x{n}")), content.as_slice(), None, "garbage")
            .unwrap();
    }
    vault.delete_fork(&name, Deletion::Forced).unwrap();
    sweep(vault, round);
}

fn sweep(vault: &Vault, _: u64) {
    let counts = optional("COUNTS").map(PathBuf::from);
    let swept = vault.gc_since(counts.as_deref(), &|_| {}).unwrap();
    say(&format!("ack versions={} trees={} blobs={}", swept.versions, swept.trees, swept.blobs));
}

/// Exports `main`; interrupted once the file `STOP` exists.
fn export(vault: &Vault, round: u64) {
    let dest = PathBuf::from(setting("DEST")).join(format!("out-{}-{round}", std::process::id()));
    let meter = Arc::new(Meter::default());
    if let Some(stop) = optional("STOP").map(PathBuf::from) {
        let meter = Arc::clone(&meter);
        std::thread::spawn(move || {
            wait::wait_for("the interrupt", || stop.exists());
            meter.stop();
        });
    }
    let options = ExportOptions {
        overwrite: Overwrite::Refuse,
        paths: &[],
        set_ids: SetIds::Kept,
        meter: &meter,
        unwritten: None,
    };
    match vault.export(&support::root(vault, "main"), &dest, &options) {
        Ok(_) => say(&format!("ack {}", dest.display())),
        Err(error) => say(&format!("refused {}", error.code())),
    }
}

fn cache() -> BaseCache {
    BaseCache::new(Path::new(&setting("CACHE")), &optional("BOOT").unwrap_or_else(|| BOOT.to_owned()))
}

fn materialize(vault: &Vault, _: u64) {
    let cache = cache();
    let base =
        vault.materialize(&support::root(vault, "main"), &cache, Trust::Seal, &Meter::default()).unwrap();
    assert!(base.root.join("d000/f00000").is_file(), "a base in use is incomplete");
    say(&format!("ack {:?}", base.built));
    drop(base);
    if optional("EVICT").is_some() {
        cache.evict(0).unwrap();
    }
}

fn evict(_: &Vault, _: u64) {
    cache().evict(0).unwrap();
    say("ack evicted");
}

fn capture(vault: &Vault, _: u64) {
    let upper = PathBuf::from(setting("UPPER"));
    let fd = beneath::open_root(&upper).unwrap();
    let options = CaptureOptions {
        kind: UpperKind::Layer,
        exclude: &[],
        hidden: &[],
        file_bytes_max: FILE_BYTES_MAX,
        secrets: &Secrets::default(),
        times: avfs_vault::capture::Times::AsWritten,
        since: avfs_types::clock::FileTime::default(),
        renamed: &RenamedNames::default(),
        modes_journal: &upper.with_extension("modes"),
        meter: &Meter::default(),
    };
    say("begin");
    let captured = vault.capture(fd.as_fd(), &support::root(vault, "main"), &options).unwrap();
    say(&format!("ack {} edits", captured.edited.edits(&FreshPages::new(vault)).unwrap().len()));
    let head = vault.fork(&support::main_fork()).unwrap().head;
    let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
    vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap();
}

/// Takes the stack of one of four versions, and sometimes evicts everything that is not in use.
fn stack(vault: &Vault, round: u64) {
    let (cache, back) = (cache(), round % 4);
    let root = support::root(vault, &format!("main~{back}"));
    let stack = vault.stack(&root, &cache, &Meter::default()).unwrap();
    let text = stack.dirs.iter().find_map(|dir| std::fs::read_to_string(dir.join("changed")).ok());
    assert_eq!(text.unwrap(), format!("{back}\n"), "a stack in use does not show its tree");
    say("ack stacked");
    drop(stack);
    if round.is_multiple_of(3) {
        cache.evict(0).unwrap();
    }
}
