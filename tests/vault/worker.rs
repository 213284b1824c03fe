//! The other processes of a test: this very binary, started again to do one job until it is killed or done.
//!
//! A worker says on its standard output what it was promised (`ack …`), and only after the promise was made.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use avfs::backend::{Life, RunRecord};
use avfs::hostfs::beneath;
use avfs::ids::RunId;
use avfs::vault::capture::{CaptureOptions, UpperKind};
use avfs::vault::chunk::FILE_BYTES_MAX;
use avfs::vault::export::Overwrite;
use avfs::vault::fork::Deletion;
use avfs::vault::import::{ImportOptions, OnTrouble};
use avfs::vault::materialize::{BaseCache, Trust};
use avfs::vault::meter::Meter;
use avfs::vault::run::Landing;
use avfs::vault::secrets::Secrets;
use avfs::vault::{Advance, Vault, When};

use crate::runs::{self, Changes};
use crate::support;

const ROLE: &str = "AVFS_TEST_WORKER";
/// The boot that workers believe to be in.
pub const BOOT: &str = "boot-1";

/// A worker that runs.
pub struct Worker {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Worker {
    /// Starts a worker; it waits for [`Worker::go`] before it works.
    pub fn start(role: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_as(Command::new(std::env::current_exe().unwrap()), role, settings)
    }

    /// As [`Worker::start`], where `command` ends with this test binary but may begin with something else.
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
            // A line without its end was not said: the worker died while it spoke.
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

    /// Waits until the worker has said something.
    pub fn wait_for(&mut self, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            match self.lines.recv_timeout(Duration::from_secs(30)) {
                Ok(line) if line == what => return,
                Ok(_) => {}
                Err(_) => {
                    let _ = self.child.kill();
                    let mut stderr = String::new();
                    self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
                    panic!("a worker never said {what}: {stderr}");
                }
            }
        }
    }

    /// Lets it begin.
    pub fn go(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Kills it with SIGKILL and gives what it was promised.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.acks()
    }

    /// Everything it was promised until its end.
    pub fn acks(&self) -> Vec<String> {
        // The channel ends when the pipe does.
        self.lines.iter().filter_map(|line| Some(line.strip_prefix("ack ")?.to_owned())).collect()
    }

    /// Waits for its end, and gives what it was promised; fails if the worker failed.
    #[track_caller]
    pub fn finish(mut self) -> Vec<String> {
        let acks = self.acks();
        let status: ExitStatus = self.child.wait().unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(status.success(), "a worker failed: {stderr}");
        acks
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // The harness may have left the line unfinished.
    out.write_all(format!("\n{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn setting(name: &str) -> String {
    std::env::var(format!("AVFS_TEST_W_{name}")).unwrap()
}

fn vault() -> Vault {
    support::open_vault(Path::new(&setting("VAULT")))
}

/// The hidden half of every test here that needs another process.
#[test]
fn worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let vault = vault();
    vault.forks().unwrap();
    say("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let seconds: u64 = setting("SECONDS").parse().unwrap();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = (0_u64..).take_while(|round| *round == 0 || Instant::now() < until);
    match role.as_str() {
        "write" => rounds.for_each(|round| write(&vault, round)),
        "land" => rounds.for_each(|round| land(&vault, round)),
        "apply" => {
            assert_eq!(rounds.next(), Some(0));
            crate::apply::apply_fork(&vault, &setting("FORK"), Path::new(&setting("DIR"))).unwrap();
            say("ack applied");
        }
        "import" => rounds.for_each(|round| import(&vault, round)),
        "gc" => rounds.for_each(|round| gc(&vault, round)),
        "export" => rounds.for_each(|round| export(&vault, round)),
        "materialize" => rounds.for_each(|_| materialize(&vault)),
        "evict" => rounds.for_each(|_| {
            BaseCache::new(Path::new(&setting("CACHE")), BOOT).evict(0).unwrap();
        }),
        "capture" => capture(&vault),
        "stack" => rounds.for_each(|round| stack(&vault, round)),
        // Opens and closes, as a short command does.
        "visit" => assert_eq!(rounds.next(), Some(0)),
        other => panic!("nobody knows the role {other}"),
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

fn import(vault: &Vault, round: u64) {
    let dir = PathBuf::from(setting("DIR"));
    let cache = PathBuf::from(setting("CACHE"));
    for n in 0..300 {
        let text = format!("{} {round} {n}\n", std::process::id()).repeat(30);
        std::fs::write(dir.join(format!("f{n}")), text).unwrap();
    }
    std::fs::write(dir.join("large"), support::noise(round + u64::from(std::process::id()), 3 << 20))
        .unwrap();
    let options = ImportOptions {
        on_trouble: OnTrouble::Fail,
        stat_cache: Some(&cache),
        exclude: &[],
        meter: &Meter::default(),
    };
    let imported = vault.import(&dir, &support::main_fork(), "import", &options).unwrap();
    say(&format!("ack {}", imported.committed.version.id));
}

/// Makes garbage, then has it swept.
fn gc(vault: &Vault, round: u64) {
    let name = support::fork(&format!("g{}-{round}", std::process::id()));
    vault.create_fork(&name, &support::reference("main"), Life::Persistent).unwrap();
    for n in 0..4 {
        let content = support::noise(round * 100 + n + u64::from(std::process::id()) * 10_000, 300_000);
        vault
            .write_file(&name, &support::path(&format!("x{n}")), content.as_slice(), None, "garbage")
            .unwrap();
    }
    vault.delete_fork(&name, Deletion::Forced).unwrap();
    vault.gc(&|_| {}).unwrap();
    say("ack swept");
}

fn export(vault: &Vault, round: u64) {
    let dest = PathBuf::from(setting("DEST")).join(format!("out-{}-{round}", std::process::id()));
    support::try_export(vault, "main", &dest, Overwrite::Refuse).unwrap();
    say(&format!("ack {}", dest.display()));
}

fn materialize(vault: &Vault) {
    let cache = BaseCache::new(Path::new(&setting("CACHE")), BOOT);
    let base =
        vault.materialize(&support::root(vault, "main"), &cache, Trust::Seal, &Meter::default()).unwrap();
    assert!(base.root.join("d000/f00000").is_file(), "a base in use is not whole");
    say("ack built");
    drop(base);
    if setting("EVICT") == "yes" {
        cache.evict(0).unwrap();
    }
}

fn capture(vault: &Vault) {
    let upper = PathBuf::from(setting("UPPER"));
    let fd = beneath::open_root(&upper).unwrap();
    let options = CaptureOptions {
        kind: UpperKind::Layer,
        exclude: &[],
        hidden: &[],
        file_bytes_max: FILE_BYTES_MAX,
        secrets: &Secrets::default(),
        times: avfs::vault::capture::Times::AsWritten,
        modes_journal: &upper.with_extension("modes"),
        meter: &Meter::default(),
    };
    say("begin");
    let captured = vault.capture(fd.as_fd(), &support::root(vault, "main"), &options).unwrap();
    say(&format!("ack {} edits", captured.edits.len()));
    let head = vault.fork(&support::main_fork()).unwrap().head;
    let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
    vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap();
}

/// Takes the stack of one of four versions, and now and then everything that nobody uses.
fn stack(vault: &Vault, round: u64) {
    let cache = BaseCache::new(Path::new(&setting("CACHE")), BOOT);
    let back = (round + u64::from(std::process::id())) % 4;
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
