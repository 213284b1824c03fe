//! Read-only commands record no version for the bookkeeping of programs, such as git's refreshed index.

use serde_json::json;

use crate::env::TestEnv;
use crate::git::{git, with_repository};

/// Makes a file older than its entry in the index, so that git refreshes the index.
fn age(env: &TestEnv, path: &str) {
    let file = std::fs::File::options().write(true).open(env.project().join(path)).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH)).unwrap();
}

#[test]
fn git_status_leaves_no_version() {
    let env = with_repository();
    age(&env, "README.md");
    for options in [&[][..], &["--fork", "work"]] {
        let looked = env.json(options, "git status --short");
        assert_eq!(looked["result"]["version_after"], json!(null), "{looked}");
        assert_eq!(looked["result"]["classification_violated"], json!(false), "{looked}");
    }
}

#[test]
fn bookkeeping_is_dropped_only_if_nothing_else_changed() {
    let env = with_repository();
    age(&env, "README.md");
    let touched = |line: &str, options: &[&str]| {
        let words = [&["--fork", "work"][..], options].concat();
        env.json(&words, line)["result"]["version_after"] != json!(null)
    };
    // Control: a command that may write keeps the refreshed index.
    assert!(touched("git update-index --refresh; :  > /dev/null", &[]));
    age(&env, "src/main.rs");
    // A command that is classified read-only but allows git to take its locks.
    assert!(!touched("git status --short", &["--env", "GIT_OPTIONAL_LOCKS=1"]));
    assert!(touched("git status --short", &["--env", "GIT_OPTIONAL_LOCKS=1", "--checkpoint", "always"]));
}

#[test]
fn a_commit_on_a_fork_applies_over_a_refreshed_index() {
    let env = with_repository();
    let line =
        "git config user.name t; git config user.email t@t; echo more >> README.md; git commit -qam second";
    env.json(&["--fork", "work"], line);
    // Meanwhile another user runs `git status` outside.
    age(&env, "src/main.rs");
    let before = std::fs::read(env.project().join(".git/index")).unwrap();
    git(&env, &["status", "--short"]);
    assert_ne!(
        before,
        std::fs::read(env.project().join(".git/index")).unwrap(),
        "the index was not refreshed"
    );
    env.avfs(&["apply", "work"]).expect(0);
    git(&env, &["fsck", "--strict"]);
    git(&env, &["diff", "--exit-code", "HEAD", "--", "README.md"]);
    // An index with other entries is still a conflict.
    env.json(&["--fork", "work"], "echo again >> README.md; git commit -qam third");
    env.put("staged", b"by hand\n");
    git(&env, &["add", "staged"]);
    let refused = env.avfs(&["apply", "work"]).expect(1);
    assert!(refused.stderr.contains(".git/index"), "{refused:?}");
    assert!(!refused.stderr.contains("--exclude"), "{refused:?}");
    // The workaround that the hint names.
    let copy = env.project().with_file_name("copy");
    env.avfs(&["export", "work", copy.to_str().unwrap()]).expect(0);
    git(&env, &["rm", "-q", "--cached", "staged"]);
    git(&env, &["pull", "-q", copy.to_str().unwrap()]);
    git(&env, &["diff", "--exit-code", "HEAD"]);
}
