//! Diff, apply, unapply and the list of runs show exactly the changes that a run or a fork made.

use crate::env::TestEnv;

#[test]
fn an_apply_without_changes_is_not_the_one_to_revert() {
    let env = TestEnv::with_project();
    env.shell(&[], "echo b > b").expect(0);
    env.avfs(&["apply"]).expect(0);
    env.shell(&[], "true").expect(0);
    let nothing = env.avfs(&["apply", "last"]).expect(0);
    assert!(nothing.text().contains("no changes to apply"), "{nothing:?}");
    env.avfs(&["unapply"]).expect(0);
    assert!(!env.project().join("b").exists());
}

#[test]
fn diff_of_a_run_without_changes_shows_none() {
    let env = TestEnv::with_project();
    env.put("new", b"of the host\n");
    env.shell(&[], "true").expect(0);
    let diff = env.avfs(&["diff", "last"]).expect(0);
    assert_eq!(diff.text(), "no changes\n");
}

#[test]
fn unapply_names_the_fork_and_the_paths_that_were_applied() {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "task"], "echo 1 > new-1").expect(0);
    env.shell(&["--fork", "task"], "echo 2 > new-2; echo 3 > other").expect(0);
    env.avfs(&["apply", "task", "--include", "new*"]).expect(0);
    let reverted = env.avfs(&["unapply"]).expect(0);
    assert!(reverted.stderr.contains("fork task: 2 runs"), "{reverted:?}");
    assert!(
        reverted.text().contains("apply it again with: avfs apply task --include 'new*'"),
        "{reverted:?}"
    );
}

#[test]
fn a_discarded_run_is_not_listed_as_one_without_changes() {
    let env = TestEnv::with_project();
    env.shell(&["--discard"], "echo z > z").expect(0);
    let list = env.avfs(&["runs", "list"]).expect(0);
    assert!(list.text().contains("(nothing kept)"), "{list:?}");
}
