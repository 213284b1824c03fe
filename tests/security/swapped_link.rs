//! Tried: replacing the target of `--rw`, `--ro` or `--vault` with a symlink or a directory after it was checked.
//! Stopped by: a path is resolved once and kept open; only the file that was checked is mounted or opened.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::env::{Running, TestEnv, avfs};
use crate::shared::start_held;

/// A symlink to a directory that the policy allows, and another directory that it does not allow.
struct Paths {
    env: TestEnv,
    allowed: PathBuf,
    forbidden: PathBuf,
    link: PathBuf,
}

impl Paths {
    fn new(option: &str) -> Self {
        let env = TestEnv::with_project();
        let (allowed, forbidden, link) = (env.at("allowed"), env.at("forbidden"), env.at("link"));
        for dir in [&allowed, &forbidden] {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("name"), dir.file_name().unwrap().as_encoded_bytes()).unwrap();
        }
        env.policy(&format!("[caps]\n{option} = ['{}']\n", allowed.display()));
        let paths = Self { env, allowed, forbidden, link };
        paths.lead_to(&paths.allowed);
        paths
    }

    fn lead_to(&self, dir: &Path) {
        if self.link.symlink_metadata().is_ok() {
            std::fs::remove_file(&self.link).unwrap();
        }
        std::os::unix::fs::symlink(dir, &self.link).unwrap();
    }

    /// Shows the link, and runs a line that has its path in `$LINK`.
    fn run(&self, option: &str, line: &str) -> Command {
        let text = self.link.to_str().unwrap();
        let set = format!("LINK={text}");
        self.env.command(&["--json", option, text, "--env", &set, "--shell", line])
    }

    /// Runs the same line without a sandbox.
    fn natively(&self, line: &str) -> String {
        let mut shell = self.env.clean(Path::new("/bin/sh"));
        Running::start(shell.args(["-c", line]).env("LINK", &self.link)).answer().expect(0).text()
    }

    /// The error code, or the output of the command.
    fn swapped(&self, command: &mut Command, swap: impl FnOnce()) -> String {
        let (running, pauses) = start_held(&self.env, command, "launching");
        swap();
        pauses.release("launching");
        let answer = running.answer();
        let envelope = answer.envelope();
        match envelope["error"]["code"].as_str() {
            Some(code) => {
                answer.expect(121);
                code.to_owned()
            }
            None => envelope["result"]["stdout"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

const NAME: &str = "cat \"$LINK/name\"";
const WRITE: &str = "echo x > \"$LINK/made\" && cat \"$LINK/name\"";

fn made(dir: &Path) -> bool {
    let made = dir.join("made");
    made.exists() && std::fs::remove_file(made).is_ok()
}

/// Each option, and a line that prints which directory is mounted.
const OPTIONS: [(&str, &str, &str); 2] = [("rw", "--rw", WRITE), ("ro", "--ro", NAME)];

#[test]
fn retargeted_symlink_does_not_change_the_mount() {
    for (cap, option, line) in OPTIONS {
        let paths = Paths::new(cap);
        // Control: by name it is the target of the link, and the policy distinguishes the two.
        paths.lead_to(&paths.forbidden);
        assert_eq!(paths.natively(line), "forbidden");
        assert_eq!(made(&paths.forbidden), cap == "rw");
        paths.env.answer(&mut paths.run(option, line)).expect(122);
        paths.lead_to(&paths.allowed);
        let seen = paths.swapped(&mut paths.run(option, line), || paths.lead_to(&paths.forbidden));
        assert_eq!(seen, "allowed", "{option}");
        assert_eq!(made(&paths.allowed), cap == "rw");
        assert!(!made(&paths.forbidden));
    }
}

#[test]
fn symlink_that_replaces_the_directory_is_refused() {
    for (cap, option, line) in OPTIONS {
        let paths = Paths::new(cap);
        let swap = || {
            std::fs::rename(&paths.allowed, paths.env.at("moved")).unwrap();
            std::os::unix::fs::symlink(&paths.forbidden, &paths.allowed).unwrap();
        };
        let seen = paths.swapped(&mut paths.run(option, line), swap);
        assert_eq!(seen, "sandbox.replaced", "{option}");
        assert!(!made(&paths.forbidden));
        // Control: by name it is the other directory now.
        assert_eq!(paths.natively(NAME), "forbidden");
    }
}

#[test]
fn directory_that_replaces_the_checked_one_is_refused() {
    for (cap, option, line) in OPTIONS {
        let paths = Paths::new(cap);
        let swap = || {
            std::fs::rename(&paths.allowed, paths.env.at("moved")).unwrap();
            std::fs::rename(&paths.forbidden, &paths.allowed).unwrap();
        };
        let seen = paths.swapped(&mut paths.run(option, line), swap);
        assert_eq!(seen, "sandbox.replaced", "{option}");
        assert!(!made(&paths.allowed));
        // Control: the path alone does not reveal the swap; a new run shows the other directory.
        let envelope = paths.env.answer(&mut paths.run(option, line)).expect(0).envelope();
        assert_eq!(envelope["result"]["stdout"], json!("forbidden"), "{option}");
    }
}

/// A directory with its own vault.
fn vault_in(env: &TestEnv, name: &str) -> PathBuf {
    let dir = env.at(name);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("name"), name).unwrap();
    let mut init = env.clean(&avfs());
    Running::start(init.current_dir(&dir).arg("init")).answer().expect(0);
    dir
}

#[test]
fn vault_that_replaces_the_checked_one_is_not_used() {
    let swaps: [fn(&Path, &Path); 2] = [
        |other, at| std::os::unix::fs::symlink(other, at).unwrap(),
        |other, at| std::fs::rename(other, at).unwrap(),
    ];
    for swap in swaps {
        let env = TestEnv::new();
        let (judged, other) = (vault_in(&env, "judged"), vault_in(&env, "other"));
        let run = || {
            let mut run = env.command(&["--json", "--vault", judged.to_str().unwrap(), "--", "cat", "name"]);
            run.current_dir(env.at("home"));
            run
        };
        let (running, pauses) = start_held(&env, &mut run(), "vault-judged");
        std::fs::rename(&judged, env.at("moved")).unwrap();
        swap(&other, &judged);
        pauses.release("vault-judged");
        let refused = running.answer().expect(125).envelope();
        assert_eq!(refused["error"]["code"], json!("vault.moved"), "{refused}");
        // Control: by its path the other vault is used once it is trusted there, and shows its own directory.
        env.avfs(&["vault", "trust", judged.to_str().unwrap()]).expect(0);
        let shown = env.answer(&mut run()).expect(0).envelope();
        assert!(shown["result"]["stdout"].as_str().unwrap_or_default().contains("other"), "{shown}");
    }
}
