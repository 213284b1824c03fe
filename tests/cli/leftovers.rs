//! Leftovers of commands that fail or are killed: the next command removes all of them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::env::{Answer, TestEnv, binary};
use crate::support;
use crate::support::inject::Call;
use crate::support::pause::Pauses;

fn names(dir: &Path) -> Vec<String> {
    let listed = walkdir::WalkDir::new(dir).min_depth(1).sort_by_file_name().into_iter().map(Result::unwrap);
    listed.map(|entry| entry.path().strip_prefix(dir).unwrap().to_string_lossy().into_owned()).collect()
}

fn failing(env: &TestEnv, call: &Call, words: &[&str]) -> Answer {
    let mut command = call.strace(env.clean(Path::new("strace")));
    Answer::of(command.arg(binary()).args(words))
}

/// Into a new directory, and into an existing empty one.
#[test]
fn failed_export_leaves_nothing_behind() {
    let env = TestEnv::with_project();
    let calls = [
        Call::new("flock", 3, "ENOLCK"),
        Call::new("renameat", 1, "EIO"),
        Call::new("renameat2", 1, "EIO"),
        Call::new("renameat2", 3, "EIO"),
        Call::new("fchmod", 1, "EIO"),
        Call::new("fchmod", 2, "EIO"),
    ];
    for (dest, is_there) in [("out/new/deep", false), ("out", true)] {
        let mut failed = 0;
        for call in &calls {
            let out = env.at("out");
            let _ = std::fs::remove_dir_all(&out);
            std::fs::create_dir(&out).unwrap();
            let answer = failing(&env, call, &["export", "main", env.at(dest).to_str().unwrap()]);
            if answer.code == 0 {
                assert!(names(&env.at(dest)).contains(&"src/main.rs".to_owned()), "{call:?}: {answer:?}");
                continue;
            }
            failed += 1;
            assert!(answer.stderr.starts_with("error: "), "{call:?}: {answer:?}");
            assert_eq!(names(&out), Vec::<String>::new(), "{call:?}: {answer:?}");
        }
        assert!(failed >= 3, "{is_there}: only {failed} of the calls were made");
    }
}

/// Fails the N-th sync of a regular file, in any thread of the process.
const FAILING_SYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
static int made;
static int failing(int fd) {
    struct stat stat;
    if (fstat(fd, &stat) || !S_ISREG(stat.st_mode)) return 0;
    if (__atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST) != atoi(getenv("FAILING_SYNC"))) return 0;
    errno = EIO;
    return 1;
}
int fdatasync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return failing(fd) ? -1 : next(fd);
}
int fsync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return failing(fd) ? -1 : next(fd);
}
"#;

/// A thread moves the WAL into the vault file during the import. An error of its syncs counts too: the kernel reports
/// an error only once, so the sync of the import itself succeeds.
#[test]
fn import_is_not_acknowledged_if_a_sync_failed() {
    let scratch = support::Scratch::new();
    let (source, library) = (scratch.join("sync.c"), scratch.join("sync.so"));
    std::fs::write(&source, FAILING_SYNC).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(compiler.status().unwrap().success());
    // The import is acknowledged after the third sync at the earliest: two for moving the WAL, and its own.
    for sync in ["1", "2"] {
        let env = TestEnv::with_project();
        for number in 0..40 {
            env.put(&format!("large-{number}"), &support::noise(number, 1 << 20));
        }
        let mut failing = env.avfs(&["import"]);
        let answer = Answer::of(failing.env("LD_PRELOAD", &library).env("FAILING_SYNC", sync));
        assert_eq!((answer.code, answer.stdout.as_str()), (1, ""), "{sync}: {answer:?}");
        let reported =
            ["Input/output error", "disk I/O error"].iter().any(|text| answer.stderr.contains(text));
        assert!(reported, "{sync}: {answer:?}");
        env.ok(&["import"]);
        assert_eq!(env.ok(&["cat", "main", "README.md"]), "hello\n");
        env.assert_sound();
    }
}

/// Kills a command at a pause point.
fn kill_at(env: &TestEnv, words: &[&str], point: &str) {
    let pauses = Pauses::new(&env.at(""));
    pauses.hold(point);
    let mut command = env.avfs(words);
    let mut child = pauses.set(&mut command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    pauses.wait(point, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn next_command_removes_leftovers_of_killed_exports_and_materializations() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("out")).unwrap();
    let dest = env.at("out/copy");
    kill_at(&env, &["export", "main", dest.to_str().unwrap()], "publish");
    let staged = |name: &String| name.starts_with(".avfs-export-") && !name.contains('/');
    assert_eq!(names(&env.at("out")).iter().filter(|name| staged(name)).count(), 1);
    kill_at(&env, &["materialize", "main"], "publish");
    let bases = env.at("home/.cache/avfs/base");
    let unfinished =
        || names(&bases).iter().filter(|name| name.starts_with(".new-") && !name.contains('/')).count();
    assert_eq!(unfinished(), 1, "{:?}", names(&bases));
    // A different command with a different target.
    let ran = env.run(&["run", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(names(&env.at("out")), Vec::<String>::new());
    assert_eq!(unfinished(), 0, "{:?}", names(&bases));
    // Export and materialize remove leftovers too, and notes do not accumulate.
    kill_at(&env, &["export", "main", dest.to_str().unwrap()], "publish");
    kill_at(&env, &["materialize", "main"], "publish");
    env.ok(&["export", "main", env.at("other").to_str().unwrap()]);
    assert_eq!((names(&env.at("out")), unfinished()), (Vec::<String>::new(), 0));
    assert_eq!(names(&env.at("home/.cache/avfs/unfinished")), Vec::<String>::new());
}
