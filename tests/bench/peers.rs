//! The tools avfs is compared with, as a user would call them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::timed;

/// Runs a command that must succeed, and returns its time in seconds.
pub fn run(command: &mut Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (time, status) = timed(|| command.status());
    assert!(status.unwrap().success(), "{command:?} failed");
    time
}

pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok()
}

pub fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir);
    // A commit of so many files starts a repack in the background, which would slow down the following measurements.
    git.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for (key, value) in [
        ("GIT_AUTHOR_NAME", "bench"),
        ("GIT_AUTHOR_EMAIL", "bench@localhost"),
        ("GIT_COMMITTER_NAME", "bench"),
        ("GIT_COMMITTER_EMAIL", "bench@localhost"),
    ] {
        git.env(key, value);
    }
    git
}

/// `git add -A && git commit` into a new repository, with a separate work tree.
pub fn git_import(repository: &Path, tree: &Path) -> f64 {
    run(git(repository).args(["init", "-q", "--bare", "."]));
    let with_tree = |args: &[&str]| {
        let mut command = git(repository);
        command.arg("--git-dir").arg(repository).arg("--work-tree").arg(tree).args(args);
        run(&mut command)
    };
    run(git(repository).args(["config", "core.bare", "false"]));
    with_tree(&["add", "-A", "-f"]) + with_tree(&["commit", "-q", "-m", "all"])
}

pub fn git_status(repository: &Path, tree: &Path) -> f64 {
    let mut command = git(repository);
    command.arg("--git-dir").arg(repository).arg("--work-tree").arg(tree).args(["status", "--porcelain"]);
    run(&mut command)
}

pub fn git_checkout(repository: &Path, into: &Path) -> f64 {
    let mut command = git(repository);
    let index = into.with_extension("index");
    command.env("GIT_INDEX_FILE", index).arg("--git-dir").arg(repository).arg("--work-tree").arg(into);
    run(command.args(["checkout", "-q", "-f", "HEAD", "--", "."]))
}

pub fn restic(repository: &Path) -> Command {
    let mut restic = Command::new("restic");
    restic.env("RESTIC_PASSWORD", "bench").arg("--no-cache").arg("-q").arg("-r").arg(repository);
    restic
}

pub fn restic_import(repository: &Path, tree: &Path) -> f64 {
    run(restic(repository).arg("init"));
    run(restic(repository).arg("backup").arg(tree))
}

pub fn copy(from: &Path, to: &Path) -> f64 {
    run(Command::new("cp").arg("-a").arg(from.join(".")).arg(to))
}

/// Bytes of the files in a directory.
pub fn size_of(dir: &Path) -> u64 {
    walkdir::WalkDir::new(dir)
        .into_iter()
        .map(|entry| entry.unwrap().metadata().unwrap())
        .filter(std::fs::Metadata::is_file)
        .map(|meta| meta.len())
        .sum()
}
