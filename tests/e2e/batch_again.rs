//! Batches that are resumed after something else changed: completed work is neither lost nor misattributed.

use serde_json::json;

use crate::env::{TestEnv, avfs};
use crate::lists::{batch, list};

fn files(env: &TestEnv, reference: &str) -> String {
    env.avfs(&["ls", reference]).expect(0).text()
}

#[test]
fn a_resumed_chain_continues_from_the_item_that_ended_last() {
    let env = TestEnv::with_project();
    let text = "test -n \"$GO1\" && echo 1 > one\necho 2 > two\ntest -n \"$GO3\" && echo 3 > three\n";
    let list = list(&env, "chain.txt", text);
    let first = batch(&env, &list, &["--fork", "w", "--keep-going"]);
    assert_eq!(first.all("state"), ["failed", "succeeded", "failed"]);
    let second = batch(&env, &list, &["--resume", "--keep-going", "--env", "GO1=1"]);
    assert_eq!(second.all("state"), ["succeeded", "succeeded", "failed"]);
    let third = batch(&env, &list, &["--resume", "--env", "GO3=1"]);
    assert_eq!((third.code, third.all("state")), (Some(0), vec!["succeeded"; 3]), "{}", third.envelope);
    let names = files(&env, "w");
    assert!(["one", "two", "three"].iter().all(|name| names.contains(name)), "{names}");
}

#[test]
fn a_resumed_chain_includes_changes_other_runs_made_on_the_fork() {
    let env = TestEnv::with_project();
    let list = list(&env, "chain.txt", "echo 1 > one\ntest -e fixed && cp fixed two\n");
    assert_eq!(batch(&env, &list, &["--fork", "w"]).all("state"), ["succeeded", "failed"]);
    env.ok(&["--fork", "w"], "echo repaired > fixed");
    let resumed = batch(&env, &list, &["--resume"]);
    assert_eq!((resumed.code, resumed.all("state")), (Some(0), vec!["succeeded"; 2]), "{}", resumed.envelope);
    assert_eq!(env.cat("w", "two"), "repaired\n");
}

#[test]
fn a_failed_item_runs_again_on_resume_even_if_its_failure_is_cached() {
    let env = TestEnv::with_project();
    let list = list(&env, "list.txt", "exit 1\n");
    let words = ["--mode", "fan-out", "--cache", "write"];
    assert_eq!(batch(&env, &list, &words).all("state"), ["failed"]);
    let resumed = batch(&env, &list, &["--resume", "--cache", "write"]);
    assert_eq!((&resumed.items[0]["cached"], resumed.all("state")), (&json!(false), vec!["failed"]));
    // Another batch uses the cached failure, as it would use a cached success.
    assert_eq!(batch(&env, &list, &words).items[0]["cached"], json!(true));
}

#[test]
fn a_copy_of_the_project_does_not_take_over_its_runs() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "f"], "true");
    env.avfs(&["quota", "set", "--versions", "1"]).expect(0);
    let failed = env.json(&["--fork", "f", "--scratch", "disk"], "echo kept > kept");
    assert_eq!(failed["error"]["code"], "capture.failed", "{failed}");
    let copy = env.at("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(env.project()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut trust = env.clean(&avfs());
    assert!(trust.args(["vault", "trust"]).current_dir(&copy).status().unwrap().success());
    let mut elsewhere = env.command(&["--quiet", "--fork", "g", "--", "true"]);
    assert!(elsewhere.current_dir(&copy).status().unwrap().success());
    env.avfs(&["quota", "set", "--versions", "none"]).expect(0);
    let next = env.json(&["--fork", "f"], "cat kept");
    assert_eq!(next["result"]["stdout"], "kept\n", "{next}");
}
