//! A user who may start no more processes.

use std::path::Path;
use std::process::Stdio;

use crate::env::{Answer, TestEnv, USER, binary};
use crate::support::is_root;

/// One process is the command itself: it gets no thread beside it. No such limit holds for root.
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
fn a_limit_on_processes_is_told_or_made_do_with() {
    let env = TestEnv::with_project();
    env.put("new", b"new\n");
    let answer = alone(&env, &["import"], Stdio::null());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stderr.contains("cannot start a thread") && answer.stderr.contains("ulimit -u"),
        "{answer:?}"
    );
    // What is large is hashed and compressed on several threads, or on one.
    let large = env.at("large");
    std::fs::write(&large, crate::support::noise(1, 3 << 20)).unwrap();
    let content = std::fs::File::open(&large).unwrap();
    let answer = alone(&env, &["write", "large"], content.into());
    assert_eq!(answer.code, 0, "{answer:?}");
    let answer = alone(&env, &["status"], Stdio::null());
    assert!(answer.code <= 1 && answer.stderr.is_empty(), "{answer:?}");
}
