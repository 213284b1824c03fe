//! A user who has reached the process limit.

use std::path::Path;
use std::process::Stdio;

use crate::env::{Answer, TestEnv, USER, binary};
use crate::support::is_root;

/// Runs a command that may have only one process, itself, and so cannot start a thread. The limit does not apply to
/// root, so root runs it as another user.
fn alone(env: &TestEnv, words: &[&str], stdin: Stdio) -> Answer {
    let limited = ["-c", "ulimit -u 1 && exec \"$0\" \"$@\""];
    let mut command = if is_root() {
        env.give_away();
        let user = USER.to_string();
        let mut command = env.clean(Path::new("setpriv"));
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "bash"]);
        command
    } else {
        env.clean(Path::new("bash"))
    };
    Answer::of(command.args(limited).arg(binary()).args(words).stdin(stdin))
}

#[test]
fn process_limit_is_reported_or_worked_around() {
    let env = TestEnv::with_project();
    env.put("new", b"new\n");
    let answer = alone(&env, &["import"], Stdio::null());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stderr.contains("cannot start a thread") && answer.stderr.contains("ulimit -u"),
        "{answer:?}"
    );
    // Large content is hashed and compressed on several threads, or on one.
    let large = env.at("large");
    std::fs::write(&large, crate::support::noise(1, 3 << 20)).unwrap();
    let content = std::fs::File::open(&large).unwrap();
    let answer = alone(&env, &["write", "large"], content.into());
    assert_eq!(answer.code, 0, "{answer:?}");
    let answer = alone(&env, &["status"], Stdio::null());
    assert!(answer.code <= 1 && answer.stderr.is_empty(), "{answer:?}");
}
