//! Synchronization of a test with the processes it starts: a shared directory, pause points, and a marker that
//! identifies the processes of a test.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::env::{Answer, Running, TestEnv, wait_for};
use crate::support::pause::Pauses;

/// A directory that a command and its test both see, to wait for each other.
pub struct Shared {
    dir: PathBuf,
}

impl Shared {
    pub fn new(env: &TestEnv) -> Self {
        let dir = env.at("shared");
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }

    pub fn text(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub fn has(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    #[track_caller]
    pub fn wait_for(&self, name: &str) {
        wait_for(name, || self.has(name));
    }

    /// The same for a file that a run creates; fails if the run ends without it.
    #[track_caller]
    pub fn wait_for_word(&self, mut running: Running, name: &str) -> Running {
        wait_for(name, || self.has(name) || running.child.try_wait().unwrap().is_some());
        if !self.has(name) {
            panic!("the command ended without {name}: {:?}", running.answer());
        }
        running
    }

    pub fn put(&self, name: &str) {
        std::fs::write(self.dir.join(name), "").unwrap();
    }

    /// Starts `avfs-run` with a line that sees the directory as `$S`.
    pub fn start(&self, env: &TestEnv, options: &[&str], line: &str) -> Running {
        Running::start(&mut self.command(env, options, line))
    }

    pub fn command(&self, env: &TestEnv, options: &[&str], line: &str) -> Command {
        let set = format!("S={}", self.text());
        let mut words = vec!["--rw", self.text(), "--env", &set];
        words.extend(options);
        words.extend(["--shell", line]);
        env.command(&words)
    }
}

/// Starts a command and waits until it is held at this point.
#[track_caller]
pub fn start_held(env: &TestEnv, command: &mut Command, point: &str) -> (Running, Pauses) {
    let pauses = Pauses::new(&env.at(""));
    pauses.hold(point);
    let mut running = Running::start(pauses.set(command));
    if !pauses.reaches(point, &mut running.child) {
        panic!("the command ended before {point}, after {:?}: {:?}", pauses.reached(), running.answer());
    }
    (running, pauses)
}

/// Kills a command with SIGKILL when it reaches this point.
#[track_caller]
pub fn kill_at(env: &TestEnv, command: &mut Command, point: &str) {
    let (running, _pauses) = start_held(env, command, point);
    running.signal(Signal::KILL);
    assert_eq!(running.answer().signal, Some(9));
}

/// Runs a command to its end and returns the points it passed.
#[track_caller]
pub fn points(env: &TestEnv, command: &mut Command) -> (Answer, Vec<String>) {
    let pauses = Pauses::new(&env.at(""));
    let answer = Running::start(pauses.set(command)).answer();
    (answer, pauses.reached())
}

/// Sends `avfs` a first termination signal and waits until it has noticed.
#[track_caller]
pub fn ask(running: &Running, pauses: &Pauses, signal: Signal) {
    running.signal(signal);
    wait_for("the signal is noticed", || pauses.reached().iter().any(|point| point == "asked"));
}

/// Numbers from 1 to `last`, evenly spread: `count` of them, or all if there are fewer.
pub fn spread(last: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(last);
    (0..count).map(move |n| 1 + n * (last - 1) / (count - 1).max(1))
}

/// The child processes of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Whether a process is a zombie or gone.
pub fn is_dead(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Processes on this machine whose command line contains a text, including those in sandboxes.
pub fn alive(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(marker) {
            found.push(format!("{}: {line}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// A word that no other process has on its command line.
pub fn marker(env: &TestEnv) -> String {
    format!("marker-{}", env.project().parent().unwrap().file_name().unwrap().to_str().unwrap())
}
