//! A home, a project, a cache and the real binaries, isolated from the environment of the tester.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::schema;
use crate::support::snapshot;
use crate::support::snapshot::Snapshot;
pub use crate::support::wait::{until, wait_for};
use crate::support::{Scratch, command_line, slow_disk};

/// The PATH inside and outside of the sandbox: only system directories, so that nothing depends on the tester's home.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

pub fn runner() -> PathBuf {
    std::env::var_os("AVFS_TEST_RUN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_avfs-run")), PathBuf::from)
}

/// The `avfs` command. Another package builds it into the same directory.
pub fn avfs() -> PathBuf {
    let beside = || runner().with_file_name("avfs");
    let path = std::env::var_os("AVFS_TEST_BIN").map_or_else(beside, PathBuf::from);
    assert!(path.exists(), "{} is missing: cargo build -p avfs", path.display());
    path
}

/// The exit status and the output of a command.
pub struct Answer {
    /// The command line, shown when a test fails.
    pub command: String,
    /// `None` if the command was killed.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Answer {
    fn new(command: String, status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Self {
        let stderr = String::from_utf8_lossy(stderr).into_owned();
        Self { command, code: status.code(), signal: status.signal(), stdout, stderr }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// The printed JSON, validated against `avfs schema` for its kind.
    #[track_caller]
    pub fn envelope(&self) -> Value {
        let value = serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        schema::validate(&avfs(), &value);
        value
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: String = self.text().chars().take(4000).collect();
        let (code, signal, stderr) = (self.code, self.signal, &self.stderr);
        write!(f, "{}\ncode {code:?}, signal {signal:?}\nstdout: {shown}\nstderr: {stderr}", self.command)
    }
}

/// A running command whose output is being collected.
pub struct Running {
    command: String,
    pub child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

fn collect(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            from.read_to_end(&mut bytes).unwrap();
        }
        bytes
    })
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        Self { command: command_line(command), child, stdout, stderr }
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the command. Kills a command that hangs and fails the test.
    #[track_caller]
    pub fn answer(mut self) -> Answer {
        let status = match until(|| self.child.try_wait().unwrap()) {
            Some(status) => status,
            None => {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                let (stdout, stderr) = (self.stdout.join().unwrap(), self.stderr.join().unwrap());
                let seen = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
                panic!("the command did not end: {}\noutput so far: {seen}", self.command);
            }
        };
        Answer::new(self.command, status, self.stdout.join().unwrap(), &self.stderr.join().unwrap())
    }
}

/// The state of the host that a run must not change.
struct Host {
    project: Snapshot,
    home: Snapshot,
    had_vault: bool,
}

pub struct TestEnv {
    scratch: Scratch,
}

impl TestEnv {
    /// An empty project without a vault. The policy allows everything, because the tests are about the sandbox.
    pub fn new() -> Self {
        let scratch = Scratch::new();
        for dir in ["home", "project", "cache", "data", "config/avfs"] {
            scratch.dir(dir);
        }
        let env = Self { scratch };
        env.policy("doubt = 'allow_with_checkpoint'\n[[rule]]\naction = 'allow_with_checkpoint'\n");
        env
    }

    /// Writes the user's policy file.
    pub fn policy(&self, text: &str) {
        std::fs::write(self.at("config/avfs/policy.toml"), text).unwrap();
    }

    /// A small project with a vault.
    pub fn with_project() -> Self {
        let env = Self::new();
        env.put("README.md", b"hello\n");
        env.put("src/main.rs", b"fn main() {}\n");
        env.put("src/data.bin", &[0, 159, 146, 150]);
        std::os::unix::fs::symlink("README.md", env.project().join("link")).unwrap();
        env.avfs(&["init"]).expect(0);
        env
    }

    pub fn project(&self) -> PathBuf {
        self.scratch.join("project")
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    pub fn vault_file(&self) -> PathBuf {
        self.project().join(".avfs/vault.db")
    }

    /// The scratches of running commands and those left behind.
    pub fn scratches(&self) -> Vec<String> {
        let Ok(listing) = std::fs::read_dir(self.at("cache/avfs/run")) else { return Vec::new() };
        let mut names: Vec<String> =
            listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn put(&self, path: &str, content: &[u8]) {
        let path = self.project().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A program with a clean environment, isolated from that of the tester.
    pub fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.at("home"))
            .env("XDG_CACHE_HOME", self.at("cache"))
            .env("XDG_DATA_HOME", self.at("data"))
            .env("XDG_CONFIG_HOME", self.at("config"))
            .env("PATH", PATH)
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .envs(slow_disk())
            .current_dir(self.project())
            .stdin(Stdio::null());
        command
    }

    pub fn avfs<S: AsRef<OsStr>>(&self, words: &[S]) -> Answer {
        Running::start(self.clean(&avfs()).args(words)).answer()
    }

    /// The `result` of an `avfs` command that must succeed.
    #[track_caller]
    pub fn avfs_result<S: AsRef<OsStr>>(&self, words: &[S]) -> Value {
        let mut all: Vec<&OsStr> = vec![OsStr::new("--json")];
        all.extend(words.iter().map(AsRef::as_ref));
        self.avfs(&all).expect(0).envelope()["result"].take()
    }

    /// `avfs-run` with these arguments, not started.
    pub fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.clean(&runner());
        command.args(words);
        command
    }

    pub fn start<S: AsRef<OsStr>>(&self, words: &[S]) -> Running {
        Running::start(&mut self.command(words))
    }

    /// Runs a command and fails unless the host directory and the home directory are unchanged.
    #[track_caller]
    pub fn answer(&self, command: &mut Command) -> Answer {
        let before = self.host();
        let answer = Running::start(command).answer();
        self.assert_untouched(&before);
        answer
    }

    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Answer {
        self.answer(&mut self.command(words))
    }

    /// Runs a shell line with these options.
    #[track_caller]
    pub fn shell(&self, options: &[&str], line: &str) -> Answer {
        let mut words = options.to_vec();
        words.extend(["--shell", line]);
        self.run(&words)
    }

    /// The stdout of a shell line that must succeed.
    #[track_caller]
    pub fn ok(&self, options: &[&str], line: &str) -> String {
        self.shell(options, line).expect(0).text()
    }

    /// The envelope of a shell line.
    #[track_caller]
    pub fn json(&self, options: &[&str], line: &str) -> Value {
        let mut words = vec!["--json"];
        words.extend(options);
        self.shell(&words, line).envelope()
    }

    /// Runs with `input` on standard input.
    #[track_caller]
    pub fn fed(&self, words: &[&str], input: &[u8]) -> Answer {
        let before = self.host();
        let mut running = Running::start(self.command(words).stdin(Stdio::piped()));
        // A command that does not read all of its input breaks the pipe, which is allowed.
        let _ = running.child.stdin.take().unwrap().write_all(input);
        let answer = running.answer();
        self.assert_untouched(&before);
        answer
    }

    fn host(&self) -> Host {
        Host {
            project: snapshot::take_without(&self.project(), &[".avfs"]),
            home: snapshot::take(&self.at("home")),
            had_vault: self.project().join(".avfs").exists(),
        }
    }

    #[track_caller]
    fn assert_untouched(&self, before: &Host) {
        let mut after = self.host();
        if !before.had_vault
            && let (Some(old), Some(new)) =
                (before.project.facts.get(&b""[..]), after.project.facts.get_mut(&b""[..]))
        {
            // Creating the vault adds an entry to the directory.
            new.mtime = old.mtime;
        }
        let found = snapshot::differences(&before.project, &after.project);
        assert!(found.is_empty(), "the host directory was changed: {found:#?}");
        let found = snapshot::differences(&before.home, &after.home);
        assert!(found.is_empty(), "the home directory was changed: {found:#?}");
    }

    /// Exports a version to a directory, including set-user-ID bits.
    #[track_caller]
    pub fn export(&self, reference: &str, name: &str) -> PathBuf {
        let dest = self.at(name);
        let words = ["export", reference, "--keep-setid"].map(OsStr::new);
        self.avfs(&[&words[..], &[dest.as_os_str()]].concat()).expect(0);
        dest
    }

    /// The content of a file in a version.
    #[track_caller]
    pub fn cat(&self, reference: &str, path: &str) -> String {
        self.avfs(&["cat", reference, path]).expect(0).text()
    }

    #[track_caller]
    pub fn assert_sound(&self) {
        let report = self.avfs_result(&["fsck"]);
        assert_eq!(report["findings"], json!([]));
    }
}
