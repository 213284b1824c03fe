//! A run on a fork says when the directory has changed since the fork was created or last synced.

use crate::env::TestEnv;
use crate::limits::notes;

/// Files in a directory that is compared completely by each run, and in one that is not.
const SMALL: usize = 450;
const LARGE: usize = 1100;
/// Runs that compare all names of the larger one.
const RUNS: usize = 100;

/// Whether a run that changes nothing has the note.
#[track_caller]
fn is_noted(env: &TestEnv) -> bool {
    let envelope = env.json(&["--fork", "task"], "true");
    notes(&envelope).contains(&"fork.behind")
}

#[test]
fn a_change_in_the_directory_is_noted_until_it_is_merged_or_reverted() {
    let env = TestEnv::with_project();
    env.put("src/deep/er/a", b"a\n");
    env.shell(&["--fork", "task"], "echo agent > agent").expect(0);
    assert!(!is_noted(&env));
    env.put("src/main.rs", b"fn main() { println!() }\n");
    let answer = env.run(&["--fork", "task", "--", "true"]).expect(0);
    let note = "note: the directory changed since fork task was created or last synced; \
                merge its changes with: avfs sync task";
    assert!(answer.stderr.contains(note), "{answer:?}");
    assert!(is_noted(&env), "until the change is merged");
    env.avfs(&["sync", "task"]).expect(0);
    assert!(!is_noted(&env));
    assert_eq!(env.cat("task", "src/main.rs"), "fn main() { println!() }\n");
    for (change, revert) in [
        ("echo > src/deep/er/new", "rm src/deep/er/new"),
        ("mkdir src/new", "rmdir src/new"),
        ("mv src/deep/er/a ../kept", "mv ../kept src/deep/er/a"),
        ("mv src/deep ../kept", "mv ../kept src/deep"),
        ("chmod 600 README.md", "chmod 644 README.md"),
        ("mv link ../kept; ln -s src link", "rm link; mv ../kept link"),
    ] {
        host(&env, change);
        assert!(is_noted(&env), "{change}");
        host(&env, revert);
        assert!(!is_noted(&env), "{revert}");
    }
    host(&env, "rm README.md");
    assert!(is_noted(&env));
    env.avfs(&["sync", "task"]).expect(0);
    assert!(!is_noted(&env));
}

/// A shell line outside of a sandbox.
#[track_caller]
fn host(env: &TestEnv, line: &str) {
    let status = env.clean(std::path::Path::new("/bin/sh")).args(["-c", line]).status().unwrap();
    assert!(status.success(), "{line}");
}

#[test]
fn unversioned_paths_and_a_version_of_equal_content_are_not_noted() {
    let env = TestEnv::with_project();
    env.put(".avfsignore", b"*.log\n/target/\n");
    env.shell(&["--fork", "task"], "true").expect(0);
    env.put("src/build.log", b"built\n");
    env.put("target/debug/out", b"built\n");
    assert!(!is_noted(&env));
    env.put("src/build.txt", b"built\n");
    assert!(is_noted(&env));
    host(&env, "rm src/build.txt");
    // New times are a change for as long as nothing has read the content.
    host(&env, "touch -d '2001-02-03 04:05:06' README.md");
    assert!(is_noted(&env));
    env.avfs(&["import"]).expect(0);
    assert!(!is_noted(&env));
}

#[test]
fn applied_changes_of_the_fork_are_not_noted() {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "task"], "echo one > one; rm src/data.bin; echo agent >> README.md").expect(0);
    env.avfs(&["apply", "task", "--include", "README.md"]).expect(0);
    assert!(!is_noted(&env), "a part is applied");
    env.avfs(&["apply", "task"]).expect(0);
    assert!(!is_noted(&env));
    // The directory has an earlier state of the fork, also after an import.
    env.shell(&["--fork", "task"], "echo agent >> README.md").expect(0);
    assert!(!is_noted(&env));
    env.avfs(&["import"]).expect(0);
    assert!(!is_noted(&env));
    env.avfs(&["unapply"]).expect(0);
    env.avfs(&["import"]).expect(0);
    assert!(!is_noted(&env));
    env.put("README.md", b"by hand, and longer than before\n");
    assert!(is_noted(&env));
}

/// A project with this many files: half of them in one directory, the others in many.
fn project_of(files: usize) -> TestEnv {
    let env = TestEnv::with_project();
    for number in 0..files {
        env.put(&file(number, files), b"old\n");
    }
    env.shell(&["--fork", "task"], "true").expect(0);
    env
}

fn file(number: usize, files: usize) -> String {
    if number < files / 2 { format!("flat/{number}") } else { format!("many/{}/{number}", number / 50) }
}

#[test]
fn every_change_in_a_small_directory_is_noted_at_once() {
    let env = project_of(SMALL);
    assert!(!is_noted(&env));
    for path in [file(SMALL - 1, SMALL), "flat/new".to_owned()] {
        env.put(&path, b"by hand\n");
        assert!(is_noted(&env), "{path}");
        env.avfs(&["sync", "task"]).expect(0);
        assert!(!is_noted(&env), "{path}");
    }
    assert!(!env.at("cache/avfs/forks").exists(), "nothing is kept from run to run");
}

#[test]
fn a_change_in_a_larger_directory_is_noted_after_some_runs() {
    let env = project_of(LARGE);
    for _ in 0..10 {
        assert!(!is_noted(&env));
    }
    for path in [file(0, LARGE), file(LARGE / 2 - 1, LARGE), file(LARGE - 1, LARGE)] {
        env.put(&path, b"by hand\n");
        assert!((0..RUNS).any(|_| is_noted(&env)), "{path}");
        assert!(is_noted(&env), "{path} is found again");
        env.avfs(&["sync", "task"]).expect(0);
        assert!(!is_noted(&env), "{path}");
    }
    // Without the place at which the last run ended, if it did not get to the end, the comparison starts again.
    host(&env, "rm -rf ../cache/avfs/forks README.md");
    assert!(is_noted(&env));
    env.avfs(&["fork", "delete", "task"]).expect(0);
    assert_eq!(files_in(&env.at("cache/avfs/forks")), 0);
}

/// The number of files beneath a directory.
fn files_in(dir: &std::path::Path) -> usize {
    let Ok(listing) = std::fs::read_dir(dir) else { return 0 };
    listing
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { files_in(&path) } else { 1 })
        .sum()
}
