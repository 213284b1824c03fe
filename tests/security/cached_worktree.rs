//! Tried: using the cached result of a command in a linked worktree after its repository, which is not part of the
//! workspace, has changed.
//! Stopped by: the repository counts as a path shown with `--ro`, so the result is cached only if `--input` makes it
//! part of the key, or `--pure` declares that it does not matter.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, runner};

/// A linked worktree with a vault.
struct Worktree {
    env: TestEnv,
    dir: PathBuf,
}

impl Worktree {
    fn new() -> Self {
        let env = TestEnv::new();
        let worktree = Self { dir: env.at("tree"), env };
        let dir = worktree.dir.to_str().unwrap();
        worktree.git(&["init", "-q", "-b", "main"]);
        worktree.commit();
        worktree.git(&["worktree", "add", "-q", dir]);
        worktree
    }

    /// Runs git in the main worktree.
    fn git(&self, words: &[&str]) {
        let settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
        let mut git = self.env.clean(Path::new("git"));
        Running::start(git.args(settings).args(words)).answer().expect(0);
    }

    fn commit(&self) {
        self.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }

    fn common(&self) -> String {
        self.env.project().join(".git").to_str().unwrap().to_owned()
    }

    fn json(&self, program: &Path, words: &[&str]) -> Value {
        let mut command = self.env.clean(program);
        Running::start(command.current_dir(&self.dir).args(words)).answer().expect(0).envelope()
    }

    /// The number of commits in `main` that a cached run counts, and the result of the run.
    fn counted(&self, options: &[&str]) -> (String, Value) {
        let words = ["git", "rev-list", "--count", "main"];
        let words = [&["--json", "--cache", "write"], options, &["--"], &words[..]].concat();
        let result = self.json(&runner(), &words)["result"].take();
        (result["stdout"].as_str().unwrap().trim().to_owned(), result)
    }
}

#[test]
fn result_is_not_older_than_the_repository_of_a_linked_worktree() {
    let worktree = Worktree::new();
    // Control: by declaration only the workspace matters, so the old result is used.
    assert_eq!(worktree.counted(&["--pure"]).0, "1");
    worktree.commit();
    let (old, result) = worktree.counted(&["--pure"]);
    assert_eq!((old.as_str(), &result["cached"]), ("1", &json!(true)), "{result}");
    for expected in ["2", "3"] {
        let (count, result) = worktree.counted(&[]);
        assert_eq!(count, expected, "{result}");
        let reasons = &result["cache"]["not_remembered"];
        assert_eq!(reasons[0]["code"], json!("host.ro"), "{result}");
        assert!(reasons[0]["text"].as_str().unwrap().contains(&worktree.common()), "{result}");
        worktree.commit();
    }
    // A part of the repository is not all that the command can read.
    let (_, result) = worktree.counted(&["--input", &format!("{}/refs", worktree.common())]);
    assert_eq!(result["cache"]["not_remembered"][0]["code"], json!("host.ro"), "{result}");
}

#[test]
fn declared_repository_is_part_of_the_key() {
    let worktree = Worktree::new();
    let common = worktree.common();
    let counted = || worktree.counted(&["--input", &common]);
    assert_eq!(counted().1["cached"], json!(false));
    assert_eq!(counted().1["cached"], json!(true));
    worktree.commit();
    let (count, result) = counted();
    assert_eq!((count.as_str(), &result["cached"]), ("2", &json!(false)), "{result}");
    assert_eq!(result["cache"]["missed"][0]["code"], json!("differs.inputs"), "{result}");
}

#[test]
fn explanation_of_the_cache_names_the_repository() {
    let worktree = Worktree::new();
    worktree.counted(&["--pure"]);
    let explain = |options: &[&str]| {
        let words = [&["cache", "explain", "--json"], options, &["--", "git", "rev-list", "--count", "main"]];
        worktree.json(&avfs(), &words.concat())["result"].take()
    };
    let explained = explain(&[]);
    assert!(explained.to_string().contains("host.ro"), "{explained}");
    // Control: with the declaration it is a hit.
    let explained = explain(&["--pure"]);
    assert!(!explained.to_string().contains("host.ro"), "{explained}");
}
