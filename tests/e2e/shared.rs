//! What a command and its test share: a directory for telling each other how far they are, and a word by which
//! processes are found.

use std::path::PathBuf;

use crate::env::{Running, TestEnv, wait_for};

/// A directory that a command and its test both see: for telling each other how far they are.
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

    /// The same for what a run says; one that has ended will not say it.
    #[track_caller]
    pub fn wait_for_word(&self, mut running: Running, name: &str) -> Running {
        wait_for(name, || self.has(name) || running.child.try_wait().unwrap().is_some());
        if !self.has(name) {
            panic!("it ended without {name}: {:?}", running.answer());
        }
        running
    }

    pub fn put(&self, name: &str) {
        std::fs::write(self.dir.join(name), "").unwrap();
    }

    /// `avfs-run` with a line that knows the directory as `$S`.
    pub fn start(&self, env: &TestEnv, options: &[&str], line: &str) -> Running {
        Running::start(&mut self.command(env, options, line))
    }

    pub fn command(&self, env: &TestEnv, options: &[&str], line: &str) -> std::process::Command {
        let set = format!("S={}", self.text());
        let mut words = vec!["--rw", self.text(), "--env", &set];
        words.extend(options);
        words.extend(["--shell", line]);
        env.command(&words)
    }
}

/// Processes of this machine whose command line holds a text; those of a sandbox are among them.
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

/// A word that no other process has.
pub fn marker(env: &TestEnv) -> String {
    format!("marker-{}", env.project().parent().unwrap().file_name().unwrap().to_str().unwrap())
}
