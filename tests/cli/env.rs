//! A home, a project directory and the real binary, isolated from the tester's environment.

use std::borrow::BorrowMut;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::schema;
use crate::support::{Scratch, command_line, slow_disk};

/// The uid and gid of an unprivileged user without an account.
pub const USER: u32 = 54_321;

pub struct TestEnv {
    scratch: Scratch,
}

/// The result of a command.
pub struct Answer {
    /// The command line, shown when a test fails.
    pub command: String,
    /// The exit code, or the negated number of the signal that killed the process.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            command: String::new(),
            code: output.status.code().or_else(|| output.status.signal().map(|signal| -signal)).unwrap(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, code, stdout, stderr } = self;
        write!(f, "{command}\ncode {code}\nstdout: {stdout}\nstderr: {stderr}")
    }
}

impl Answer {
    /// Runs a command to its end.
    pub fn of(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        Self { command: command_line(command), ..Self::from(command.output().unwrap()) }
    }
}

pub fn binary() -> PathBuf {
    std::env::var_os("AVFS_TEST_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_avfs")), PathBuf::from)
}

impl TestEnv {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        scratch.dir("home");
        scratch.dir("project");
        Self { scratch }
    }

    /// With a vault and a first version of a small project.
    pub fn with_project() -> Self {
        let env = Self::new();
        env.put("README.md", b"hello\n");
        env.put("src/main.rs", b"fn main() {}\n");
        env.put("src/data.bin", &[0, 159, 146, 150]);
        std::os::unix::fs::symlink("README.md", env.project().join("link")).unwrap();
        env.ok(&["init", "--import"]);
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

    pub fn put(&self, path: &str, content: &[u8]) {
        let path = self.project().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A command with a clean environment: only `PATH` is inherited from the tester.
    pub fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.scratch.join("home"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .envs(slow_disk())
            .current_dir(self.project())
            .stdin(Stdio::null());
        command
    }

    pub fn avfs<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.clean(&binary());
        command.args(words);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Answer {
        Answer::of(self.avfs(words))
    }

    /// Makes [`USER`] the owner of everything.
    pub fn give_away(&self) {
        for entry in walkdir::WalkDir::new(self.scratch.path()).into_iter().flatten() {
            std::os::unix::fs::lchown(entry.path(), Some(USER), Some(USER)).unwrap();
        }
    }

    /// Runs a command as [`USER`], without supplementary groups.
    pub fn run_as_user(&self, words: &[&str]) -> Answer {
        let mut command = self.clean(Path::new("setpriv"));
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(binary()).args(words);
        Answer::of(command)
    }

    /// The stdout of a command that must succeed.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, words: &[S]) -> String {
        let answer = self.run(words);
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.stdout
    }

    /// The JSON answer of a command, checked against the published schema and the exit code.
    #[track_caller]
    pub fn json<S: AsRef<OsStr>>(&self, words: &[S]) -> Value {
        let mut all: Vec<&OsStr> = vec![OsStr::new("--json")];
        all.extend(words.iter().map(AsRef::as_ref));
        let answer = self.run(&all);
        let value: Value = serde_json::from_str(&answer.stdout)
            .unwrap_or_else(|error| panic!("{all:?}: {error}: {:?} {:?}", answer.stdout, answer.stderr));
        assert_eq!(value["success"], json!(answer.code == 0), "{all:?}: {value}");
        assert_eq!(value["error"].is_null(), answer.code == 0, "{all:?}: {value}");
        schema::validate(&binary(), &value);
        value
    }

    /// The `result` of a command that must succeed.
    #[track_caller]
    pub fn result<S: AsRef<OsStr>>(&self, words: &[S]) -> Value {
        let mut value = self.json(words);
        assert_eq!(value["success"], json!(true), "{value}");
        value["result"].take()
    }

    /// Fails unless the command is refused, as text and in JSON, with this code, one sentence and a hint.
    #[track_caller]
    pub fn refused<S: AsRef<OsStr>>(&self, words: &[S], exit: i32, code: &str) -> Value {
        let human = self.run(words);
        assert_eq!(human.code, exit, "{human:?}");
        assert_eq!(human.stdout, "", "an error writes nothing to stdout");
        assert!(human.stderr.starts_with("error: "), "{human:?}");
        let value = self.json(words);
        assert_eq!(value["error"]["code"], json!(code), "{value}");
        assert!(value["error"]["hint"].is_string(), "no hint: {value}");
        let message = value["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains('\n'), "not one sentence: {message:?}");
        assert!(human.stderr.contains("hint: "), "{human:?}");
        value
    }

    /// Everything that a refused command must leave unchanged.
    #[track_caller]
    pub fn state(&self) -> Value {
        let audit = self.result(&["audit", "verify"]);
        json!({ "audit": audit, "forks": self.result(&["fork", "list"]), "log": self.result(&["log"]) })
    }

    #[track_caller]
    pub fn assert_sound(&self) {
        let report = self.result(&["fsck"]);
        assert_eq!(report["findings"], json!([]));
    }
}
