//! Several applies of one fork: what `avfs unapply` removes, and which runs are listed as applied.

use serde_json::json;

use crate::env::TestEnv;

/// A fork on which each line is a run, in a project with these files.
fn after_runs(files: &[(&str, &str)], lines: &[&str]) -> TestEnv {
    let env = TestEnv::with_project();
    for (path, content) in files {
        env.put(path, content.as_bytes());
    }
    for line in lines {
        env.shell(&["--fork", "f"], line).expect(0);
    }
    env
}

fn apply(env: &TestEnv, words: &[&str]) {
    env.avfs(&[&["apply"], words].concat()).expect(0);
}

/// Reverts all applies of the fork. The directory has its first state again.
fn assert_reverted(env: &TestEnv, words: &[&str], files: &[(&str, &str)]) {
    env.avfs(&[&["unapply"], words].concat()).expect(0);
    let listed = env
        .clean(std::path::Path::new("find"))
        .args([".", "-path", "./.avfs", "-prune", "-o"])
        .args(["-path", "./src", "-prune", "-o", "!", "-type", "d", "-printf", "%P\n"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut found: Vec<&str> = listed.lines().filter(|path| !["README.md", "link"].contains(path)).collect();
    found.sort_unstable();
    let mut first: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    first.sort_unstable();
    assert_eq!(found, first);
    for (path, content) in files {
        assert_eq!(std::fs::read_to_string(env.project().join(path)).unwrap(), *content, "{path}");
    }
    assert!(states(env).iter().all(|state| *state != "applied" && *state != "partly_applied"));
}

/// The state of each run in the directory, oldest first; `-` for one that was never applied.
fn states(env: &TestEnv) -> Vec<String> {
    let runs = env.avfs_result(&["runs", "list"])["runs"].take();
    let state = |run: &serde_json::Value| run["in_directory"].as_str().unwrap_or("-").to_owned();
    runs.as_array().unwrap().iter().rev().map(state).collect()
}

/// An older run does not replace what an apply of a newer version wrote.
#[test]
fn an_older_run_conflicts_with_a_newer_apply() {
    let files = [("q/r/a", "a\n")];
    let env = after_runs(&files, &["echo b > q/r/b"]);
    apply(&env, &["last"]);
    env.shell(&["--fork", "f"], "rm -r q/r; echo x > q/r").expect(0);
    apply(&env, &["f"]);
    let refused = env.avfs(&["apply", "last~1"]).expect(1);
    assert!(refused.stderr.contains("q/r (it is no longer a directory)"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(env.project().join("q/r")).unwrap(), "x\n");
    assert_reverted(&env, &["f"], &files);
}

#[test]
fn a_file_that_no_apply_wrote_is_not_created_by_a_change_of_its_mode() {
    let files = [("c.txt", "0\n")];
    let env = after_runs(&files, &["ln c.txt h.txt"]);
    apply(&env, &["f"]);
    env.shell(&["--fork", "f"], "mv h.txt b3").expect(0);
    apply(&env, &["f", "--include", "*.txt"]);
    env.shell(&["--fork", "f"], "rm c.txt; chmod 400 b3").expect(0);
    let refused = env.avfs(&["apply", "last"]).expect(1);
    assert!(refused.stderr.contains("b3 (the directory lacks a change of f)"), "{refused:?}");
    assert_reverted(&env, &["f"], &files);
}

#[test]
fn a_file_that_became_a_directory_and_a_file_again_is_reverted() {
    let env = after_runs(&[], &["mkdir d; echo i > d/in; echo k > k"]);
    apply(&env, &["f", "--exclude", "k"]);
    env.shell(&["--fork", "f"], "rm d/in; mkdir d/in; echo i > d/in/in").expect(0);
    apply(&env, &["f"]);
    env.avfs(&["undo", "f"]).expect(0);
    apply(&env, &["f"]);
    assert_reverted(&env, &["f"], &[]);
}

#[test]
fn a_file_changed_between_two_applies_gets_that_change_back() {
    let env = after_runs(&[("x", "0\n")], &["echo 1 > x; echo k > k"]);
    apply(&env, &["f", "--include", "x"]);
    env.put("x", b"of the user\n");
    env.avfs(&["sync", "f", "--prefer", "fork"]).expect(0);
    apply(&env, &["f"]);
    assert_reverted(&env, &[], &[("x", "of the user\n")]);
}

#[test]
fn applies_that_share_a_run_are_reverted_together() {
    let files = [("x", "1\n")];
    let env = after_runs(&files, &["echo 1 > new; echo 1 >> x"]);
    apply(&env, &["f", "--include", "new"]);
    env.shell(&["--fork", "f"], "echo 2 > other; echo 2 >> new").expect(0);
    apply(&env, &["f"]);
    assert_reverted(&env, &["last"], &files);
    assert_eq!(states(&env), ["unapplied", "unapplied"]);
}

#[test]
fn a_partial_apply_concerns_the_runs_whose_changes_it_writes() {
    let env = after_runs(&[], &["echo a > a", "echo b > b", "echo c > c; echo d > d"]);
    apply(&env, &["f", "--include", "a"]);
    assert_eq!(states(&env), ["applied", "-", "-"]);
    apply(&env, &["f", "--include", "b", "--include", "c"]);
    assert_eq!(states(&env), ["applied", "applied", "partly_applied"]);
    apply(&env, &["f"]);
    assert_eq!(states(&env), ["applied"; 3]);
    assert_reverted(&env, &["f"], &[]);
}

#[test]
fn an_undone_run_that_an_apply_removed_is_not_listed_as_applied() {
    let env = after_runs(&[], &["echo 1 > n"]);
    apply(&env, &["f"]);
    env.avfs(&["undo", "f"]).expect(0);
    apply(&env, &["f"]);
    env.avfs(&["redo", "f"]).expect(0);
    assert!(!env.project().join("n").exists());
    assert_eq!(states(&env), ["unapplied"]);
}

#[test]
fn a_filter_that_leaves_only_times_of_directories_applies_nothing() {
    let env = after_runs(&[("d/old", "x\n")], &["echo 1 > d/n"]);
    let answer = env.avfs(&["apply", "f", "--exclude", "n"]).expect(0);
    assert!(answer.text().contains("leave no changes"), "{answer:?}");
    assert_eq!(states(&env), ["-"]);
}

#[test]
fn a_discarded_run_whose_changes_are_in_the_directory_is_marked() {
    let env = TestEnv::with_project();
    env.shell(&[], "echo 1 > n").expect(0);
    apply(&env, &[]);
    env.avfs(&["discard", "last"]).expect(0);
    let list = env.avfs(&["runs", "list"]).expect(0);
    assert!(list.text().contains("(discarded, but applied)"), "{list:?}");
    assert_eq!(env.avfs_result(&["runs", "show", "last"])["in_directory"], json!("applied"));
    assert_reverted(&env, &["last"], &[]);
}

#[test]
fn each_choice_of_the_reverted_applies_is_offered_again() {
    let env = after_runs(&[], &["echo a > a; echo b > b; echo c > c"]);
    apply(&env, &["f", "--include", "a"]);
    apply(&env, &["f", "--include", "b"]);
    let reverted = env.avfs(&["unapply", "f"]).expect(0);
    for path in ["a", "b"] {
        assert!(reverted.text().contains(&format!(" --include {path}\n")), "{reverted:?}");
    }
}
