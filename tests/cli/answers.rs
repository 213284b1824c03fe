//! The answers of `avfs batch` and `avfs replay`, whole and line by line, as scripts depend on them: the content of
//! a golden file never changes. Fields may be added.

use serde_json::{Value, json};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{BatchId, ListDigest, VersionId};
use avfs_vault::backend::BatchRecord;
use avfs_wire::{
    Batch, BatchAnswer, BatchCounts, BatchItemResult, BatchList, DifferenceObject, ItemState, Replay,
    ReplayCounts, ReplayItemResult, ReplayVerdict,
};

use crate::env::binary;
use crate::envelopes::{assert_kept, golden_in};
use crate::schema;

fn item(state: ItemState) -> BatchItemResult {
    BatchItemResult {
        item: 2,
        id: "unit".to_owned(),
        command: "make check".to_owned(),
        state,
        cached: false,
        exit_code: Some(2),
        signal: None,
        timed_out: false,
        attempts: 3,
        run_id: Some("00112233aa".to_owned()),
        fork: Some("run-00112233aa".to_owned()),
        version: Some("02".repeat(32)),
        duration_ms: 12.345,
        stdout: Some("out\n".to_owned()),
        stderr: Some("oops\n".to_owned()),
        approval_id: None,
        reason: None,
        code: None,
        hint: None,
        allow_rule: None,
        notes: Vec::new(),
    }
}

fn left_out() -> BatchItemResult {
    BatchItemResult {
        state: ItemState::LeftOut,
        exit_code: None,
        attempts: 0,
        run_id: None,
        fork: None,
        version: None,
        stdout: None,
        stderr: None,
        reason: Some("unit did not succeed".to_owned()),
        ..item(ItemState::LeftOut)
    }
}

fn batch() -> Batch {
    let unsuccessful = vec![item(ItemState::Failed), left_out()];
    let mut counts = BatchCounts::default();
    counts.add(&BatchItemResult { cached: true, ..item(ItemState::Succeeded) });
    unsuccessful.iter().for_each(|result| counts.add(result));
    Batch {
        batch_id: "aabbccdd00".to_owned(),
        mode: "needs".into(),
        base: "01".repeat(32),
        fork: None,
        counts,
        duration_ms: 1234.5,
        resumed: 1,
        stopped: None,
        unsuccessful,
        notes: Vec::new(),
    }
}

fn batches() -> BatchList {
    let record = BatchRecord {
        id: BatchId::parse("aabbccdd00").unwrap(),
        list: ListDigest([3; 32]),
        base: VersionId([1; 32]),
        started_at: Timestamp(1_700_000_000_000_000_000),
        ended_at: None,
        plan: r#"{"mode":"chain","fork":"batch-aabbccdd00","items":3,"list":"ci.txt"}"#.to_owned(),
    };
    BatchList { batches: vec![avfs_present::batch(&record)] }
}

fn diverged() -> ReplayItemResult {
    let difference = |what: &'static str, text: &str, noise| DifferenceObject {
        what: what.into(),
        text: text.to_owned(),
        noise,
    };
    ReplayItemResult {
        item: 1,
        id: "00112233aa".to_owned(),
        command: "make".to_owned(),
        verdict: ReplayVerdict::Diverged.word().into(),
        cached: false,
        differences: vec![
            difference("exit", "exit code 1, not exit code 0", false),
            difference("times", "same content, different times", true),
        ],
        run_id: Some("00112233bb".to_owned()),
        version: Some("02".repeat(32)),
        expected_version: Some("01".repeat(32)),
        duration_ms: 12.345,
        approval_id: None,
        reason: None,
        code: None,
    }
}

fn replay() -> Replay {
    let mut counts = ReplayCounts::default();
    for (verdict, cached) in [
        (Some(ReplayVerdict::Identical), true),
        (Some(ReplayVerdict::Equivalent), false),
        (Some(ReplayVerdict::Diverged), false),
        (Some(ReplayVerdict::Unrecorded), false),
    ] {
        counts.add(verdict, cached);
    }
    Replay {
        source: "list.jsonl".to_owned(),
        verdict: counts.verdict().into(),
        counts,
        duration_ms: 1234.5,
        first_diverged: Some(diverged()),
        changes: Vec::new(),
        changes_left_off: 0,
        others: vec![diverged()],
        stopped: None,
    }
}

/// A failed answer of a verb.
fn no(kind: &str, code: &str, result: Value) -> Value {
    let error = json!({ "code": code, "message": "m", "hint": "h" });
    json!({ "schema_version": 1, "kind": kind, "success": false, "result": result, "error": error })
}

/// Every answer by name, with its definition in the schema.
fn answers() -> Vec<(&'static str, &'static str, Value)> {
    let value = |answer: &BatchAnswer| serde_json::to_value(answer).unwrap();
    let ran = value(&BatchAnswer::Ran(Box::new(batch())));
    let listed = value(&BatchAnswer::Listed(batches()));
    let replayed = serde_json::to_value(replay()).unwrap();
    let line = |result: &BatchItemResult| serde_json::to_value(result).unwrap();
    vec![
        ("batch", "batch", no("batch", "batch.failed", ran)),
        ("batch-list", "batch", no("batch", "batch.failed", listed)),
        ("batch-line", "BatchItemResult", line(&item(ItemState::Failed))),
        ("batch-line-left-out", "BatchItemResult", line(&left_out())),
        ("replay", "replay", no("replay", "replay.diverged", replayed)),
        ("replay-line", "ReplayItemResult", serde_json::to_value(diverged()).unwrap()),
    ]
}

#[test]
fn answers_match_their_golden_files() {
    for (name, definition, now) in answers() {
        let then = golden_in("answers", name, &now);
        assert_kept(&then, &now, name);
        schema::validate_as(&binary(), definition, &now);
    }
}

#[test]
fn names_of_states_and_verdicts_are_stable() {
    let words: Vec<Value> = [
        ItemState::Succeeded,
        ItemState::Failed,
        ItemState::Denied,
        ItemState::Error,
        ItemState::LeftOut,
        ItemState::NotRun,
    ]
    .map(|state| serde_json::to_value(state).unwrap())
    .into();
    assert_eq!(json!(words), json!(["succeeded", "failed", "denied", "error", "left_out", "not_run"]));
    let verdicts = [
        ReplayVerdict::Identical,
        ReplayVerdict::Equivalent,
        ReplayVerdict::Diverged,
        ReplayVerdict::Unrecorded,
    ];
    assert_eq!(verdicts.map(ReplayVerdict::word), ["identical", "equivalent", "diverged", "unrecorded"]);
}
