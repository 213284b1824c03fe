//! Tried: marking an item of a batch as done, with the result of another command, by sending a work item to a worker
//! that the batch has not started.
//! Stopped by: an item counts only if the worker has inherited the lock of the batch.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, runner};

/// A batch of which one item has failed: its id, the place of its lock, and its list.
fn with_batch() -> (TestEnv, String, String, String) {
    let env = TestEnv::with_project();
    let list = env.at("list.txt");
    std::fs::write(&list, "false\n").unwrap();
    let list = list.to_str().unwrap().to_owned();
    let answer = env.avfs(&["--json", "batch", &list]);
    let listed = env.avfs_result(&["batch", "--list"]);
    let id = listed["batches"][0]["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    let lock = env.at("cache/avfs/batch").join(&id).to_str().unwrap().to_owned();
    (env, id, lock, list)
}

/// Sends a work item to a worker that a shell line starts; `$RUN` is the command.
fn sent(env: &TestEnv, line: &str, item: &Value) -> Value {
    let mut command: Command = env.clean("sh".as_ref());
    command.args(["-uc", line]).env("RUN", runner()).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let order = json!({ "request": { "command": ["true"], "fork": "forged" }, "item": item });
    running.child.stdin.take().unwrap().write_all(format!("{order}\n").as_bytes()).unwrap();
    running.answer().expect(0).envelope()
}

#[test]
fn only_workers_of_a_batch_have_its_items() {
    let (env, id, lock, list) = with_batch();
    let item = json!({ "batch": id, "number": 0 });
    // Repeats the items that are not done.
    let resumed = || env.avfs(&["batch", &list, "--resume"]).code;
    let serve = "exec \"$RUN\" --serve --vault .";
    for line in [
        serve.to_owned(),
        // Opened but not locked, locked by another process, locked shared, another file locked.
        format!("exec 9>{lock}; {serve}"),
        format!("exec 8>{lock}; flock 8; exec 9>{lock} 8>&8; sh -uc '{serve}' 8>&-"),
        format!("exec 9>{lock}; flock -s 9; {serve}"),
        format!("exec 9>{lock}-other; flock 9; {serve}"),
    ] {
        let answer = sent(&env, &line, &item);
        assert_eq!(answer["error"]["code"], "request.malformed", "{line}: {answer}");
        assert_eq!(answer["state"], "failed", "{line}: {answer}");
    }
    // Without an item, everyone can start a worker.
    let answer = sent(&env, serve, &Value::Null);
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(resumed(), Some(1));
    // Control: with the lock, the item is done.
    let answer = sent(&env, &format!("exec 9>{lock}; flock 9; {serve}"), &item);
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(resumed(), Some(0));
}
