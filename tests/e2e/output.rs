//! Output where it is needed: the end of what failed, both ends of what is too long, and what is kept for later.

use serde_json::Value;

use crate::env::{Running, TestEnv, avfs};
use crate::lists::list;

#[test]
fn last_lines_of_a_failed_item_are_on_the_console_and_in_the_journal() {
    let env = TestEnv::with_project();
    let line = r#"{"id": "noisy", "secrets": ["TOKEN"], "command": "seq 1 50; echo the token is $TOKEN; printf 'bad \\033[31mname\\n' >&2; exit 3"}"#;
    let text = format!("{line}\n{{\"command\": \"echo all is well\"}}\n");
    let list = list(&env, "list.jsonl", &text);
    let words = ["batch", list.to_str().unwrap(), "--mode", "fan-out", "--keep-going"];
    let mut command = env.clean(&avfs());
    command.args(words).env("TOKEN", "a-token-of-some-length");
    let answer = Running::start(&mut command).answer().expect(1);
    let console = &answer.stderr;
    assert!(console.contains("  stdout: 42\n") && !console.contains("  stdout: 41\n"), "{console}");
    assert!(console.contains("  stdout: the token is [secret]\n"), "{console}");
    assert!(console.contains("  stderr: bad \\u{1b}[31mname\n"), "{console}");
    assert!(!console.contains("  stdout: all is well"), "{console}");
    // The item that failed is the newest but one, or the newest: they ran beside each other.
    let runs = env.avfs_result(&["runs", "list"]);
    let failed = runs["runs"].as_array().unwrap().iter().find(|run| run["exit_code"] == 3).unwrap();
    let id = failed["id"].as_str().unwrap();
    let shown = env.avfs_result(&["runs", "show", id]);
    let last = &shown["result"]["last_lines"];
    assert_eq!(last["stderr"], "bad \u{1b}[31mname");
    assert_eq!(last["stdout"].as_str().unwrap().lines().count(), 10);
    let people = env.avfs(&["runs", "show", id]).expect(0).text();
    assert!(people.contains("stdout     the token is [secret]\n"), "{people}");
    assert!(people.contains("stderr     bad \\u{1b}[31mname\n"), "{people}");
    // What went well is not written down.
    let well = runs["runs"].as_array().unwrap().iter().find(|run| run["exit_code"] == 0).unwrap();
    let shown = env.avfs_result(&["runs", "show", well["id"].as_str().unwrap()]);
    assert_eq!(shown["result"]["last_lines"], Value::Null);
}
