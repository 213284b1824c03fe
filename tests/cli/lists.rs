//! Lists that cannot be run or replayed: reported before anything runs, in one sentence that names the cause.

use std::path::Path;

use serde_json::{Value, json};

use avfs_types::ids::{BatchId, ListDigest};
use avfs_vault::backend::BatchRecord;

use crate::env::TestEnv;
use crate::support::landing::Changes;
use crate::support::main_fork;
use crate::{runs, schema, support};

fn message(value: &Value) -> &str {
    value["error"]["message"].as_str().unwrap()
}

/// Starts a batch with a list and leaves it unfinished, as if the process that ran it had died.
fn begun(env: &TestEnv, n: u8, list: &Path, plan: &str) -> BatchRecord {
    let vault = support::open_vault(&env.vault_file());
    let batch = BatchRecord {
        id: BatchId::from_random([n; 5]),
        list: ListDigest(*blake3::hash(&std::fs::read(list).unwrap()).as_bytes()),
        base: vault.fork(&main_fork()).unwrap().head,
        started_at: vault.now(),
        ended_at: None,
        plan: plan.to_owned(),
    };
    vault.begin_batch(&batch).unwrap();
    batch
}

fn end(env: &TestEnv, batch: &BatchRecord) {
    let vault = support::open_vault(&env.vault_file());
    vault.end_batch(batch, "items=1").unwrap();
}

#[test]
fn invalid_list_is_reported_with_its_line_before_anything_runs() {
    let env = TestEnv::with_project();
    let before = env.state();
    let cases: &[(&str, &str, &str)] = &[
        ("", "list.empty", "list"),
        ("# only a comment\n", "list.empty", "list"),
        ("{\"command\": [\"a\"]}\n{\"comand\": [\"b\"]}\n", "list.malformed", "line 2, column"),
        ("{\"command\": [\"a\"]}\n{\"command\": []}\n", "list.malformed", "line 2"),
        ("{\"command\": [\"a\"]}\n\n{oops\n", "list.malformed", "line 3"),
        ("{\"avfs_list\": 9}\n", "list.newer", "line 1"),
        ("{\"command\": [\"a\"], \"needs\": [7]}\n", "list.unknown_need", "line 1"),
        (
            "{\"command\":\"a\",\"id\":\"x\"}\n{\"command\":\"b\",\"id\":\"x\"}\n",
            "list.duplicate_id",
            "line 2",
        ),
        ("{\"command\":\"a\",\"needs\":[2]}\n{\"command\":\"b\",\"needs\":[1]}\n", "list.cycle", "1 → 2 → 1"),
    ];
    for (text, code, place) in cases {
        env.put("list", text.as_bytes());
        for verb in ["batch", "replay"] {
            let reported = env.refused(&[verb, "list"], 1, code);
            assert!(message(&reported).contains(place), "{verb} {text:?}: {reported}");
        }
    }
    env.refused(&["batch", "not-there"], 1, "list.unreadable");
    env.refused(&["replay", "not-there"], 1, "record.unknown");
    env.refused(&["replay", "main"], 1, "list.empty");
    assert_eq!(env.state(), before);
    assert_eq!(env.result(&["batch", "--list"]), json!({ "batches": [] }));
}

#[test]
fn resume_requires_the_list_the_batch_was_started_with() {
    let env = TestEnv::with_project();
    let (list, other) = (env.at("list"), env.at("other"));
    std::fs::write(&list, "true\n").unwrap();
    std::fs::write(&other, "true # another\n").unwrap();
    let (list_word, other_word) = (list.to_str().unwrap(), other.to_str().unwrap());
    env.refused(&["batch", list_word, "--resume"], 1, "batch.not_found");
    env.refused(&["batch", list_word, "--resume", "abcd"], 1, "batch.not_found");
    env.refused(&["batch", list_word, "--resume", "zz"], 2, "ref.invalid");
    let plan = r#"{"mode":"fan-out","fork":null,"items":1,"list":"list"}"#;
    let batch = begun(&env, 1, &list, plan);
    let listed = env.result(&["batch", "--list"])["batches"][0].clone();
    assert_eq!((&listed["id"], &listed["ended_at"]), (&json!(batch.id.as_str()), &json!(null)));
    assert_eq!(listed["plan"]["mode"], json!("fan-out"));
    let shown = env.ok(&["batch", "--list"]);
    assert!(shown.contains("unfinished") && shown.trim_end().ends_with("fan-out  list"), "{shown}");
    let reported = env.refused(&["batch", other_word, "--resume", "0101"], 1, "batch.other_list");
    assert!(message(&reported).contains(batch.id.as_str()), "{reported}");
    end(&env, &batch);
    env.refused(&["batch", list_word, "--resume"], 1, "batch.all_done");
    assert!(env.result(&["batch", "--list"])["batches"][0]["ended_at"].is_string());
    begun(&env, 2, &other, "{}");
    env.refused(&["batch", other_word, "--resume"], 1, "batch.bad_plan");
    // Two ids with the same prefix.
    begun(&env, 3, &other, plan);
    let vault = support::open_vault(&env.vault_file());
    let like = BatchRecord { id: BatchId::from_random([3, 3, 3, 3, 4]), ..batch };
    vault.begin_batch(&like).unwrap();
    drop(vault);
    env.refused(&["batch", other_word, "--resume", "0303"], 1, "ref.ambiguous");
    env.assert_sound();
}

#[test]
fn conflicting_options_are_usage_errors() {
    let env = TestEnv::with_project();
    env.put("list", b"true\ntrue\n");
    env.refused(&["batch", "list", "--discard"], 2, "usage");
    env.refused(&["replay", "list", "--cache", "write"], 2, "usage");
    assert_eq!(env.result(&["batch", "--list"]), json!({ "batches": [] }), "nothing was started");
    for words in [
        ["batch", "list", "--mode", "sideways"].as_slice(),
        &["batch", "list", "--jobs", "0"],
        &["batch", "list", "--resume", "--from", "main"],
        &["batch", "list", "--timeout", "soon"],
        &["replay", "list", "--cache", "maybe"],
        &["batch"],
        &["replay"],
    ] {
        let answer = env.json(words);
        assert_eq!((env.run(words).code, &answer["success"]), (2, &json!(false)), "{words:?}: {answer}");
    }
}

#[test]
fn error_for_a_base_in_another_vault_names_that_vault() {
    let env = TestEnv::with_project();
    let version = "ab".repeat(32);
    let header = r#"{"avfs_list":1,"vault_id":"00112233445566778899aabbccddeeff"}"#;
    let item = json!({ "command": ["true"], "start": { "version": version } });
    env.put("list", format!("{header}\n{item}\n").as_bytes());
    let reported = env.refused(&["replay", "list"], 1, "replay.unknown_base");
    assert!(message(&reported).contains(&version), "{reported}");
    assert!(message(&reported).contains("00112233445566778899aabbccddeeff"), "{reported}");
}

#[test]
fn invalid_noise_pattern_is_reported_before_anything_runs() {
    let env = TestEnv::with_project();
    runs::land(&env, 1, &Changes::default().put("r", "r"));
    for noise in [["--ignore", "["], ["--normalise", "("]] {
        env.refused(&["replay", "run:0100", noise[0], noise[1]], 1, "replay.bad_noise");
    }
}

#[test]
fn recorded_list_matches_the_schema() {
    let env = TestEnv::with_project();
    runs::land(&env, 1, &Changes::default().put("r", "r"));
    let exported = env.result(&["record", "export", ".."]);
    let lines = exported["list"].as_array().unwrap();
    schema::validate_as(&crate::env::binary(), "ListHeader", &lines[0]);
    schema::validate_as(&crate::env::binary(), "ListItem", &lines[1]);
}
