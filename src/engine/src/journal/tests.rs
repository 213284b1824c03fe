//! Written rows are read back. Rows of every format that has a journal are read with the types that write them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use avfs_policy::{Action, Categories, Category, OnViolation};
use avfs_request::spec::RunSpec;
use avfs_request::{CacheMode, ExecutionTimeout, LimitKind, Limits};
use avfs_types::CommandLine;
use avfs_types::ids::{BatchId, BatchItem};
use avfs_vault::backend::sqlite::{FORMAT, OpenOptions};
use avfs_vault::{Context, Vault};

use super::*;
use crate::launcher::{ConnectionVerdict, Exit, Usage};
use crate::output::Omitted;
use crate::{ExecuteError, WorkspaceRootError};

/// One text per line, after the vault format and the kind of text. Lines of older formats have the fields that
/// avfs wrote at the time; lines of the current format are written by `today`.
const ROWS: &str = include_str!("../../../../tests/golden/journal.txt");
const NOW: &str = "6";

const VAULTS: [(&str, &[u8]); 5] = [
    ("2", include_bytes!("../../../../tests/golden/vault-format-2.db.zst")),
    ("3", include_bytes!("../../../../tests/golden/vault-format-3.db.zst")),
    ("4", include_bytes!("../../../../tests/golden/vault-format-4.db.zst")),
    ("5", include_bytes!("../../../../tests/golden/vault-format-5.db.zst")),
    ("6", include_bytes!("../../../../tests/golden/vault-format-6.db.zst")),
];

/// Reads a text and writes it again with its type.
fn again(kind: &str, stored: &str) -> String {
    fn read<T: Serialize + DeserializeOwned>(stored: &str) -> String {
        text(&Recorded::<T>::parse(stored).into_read().unwrap())
    }
    match kind {
        "request" => read::<RunRequest>(stored),
        "decision" => read::<RunDecision>(stored),
        "result" | "failure" => read::<RunOutcome>(stored),
        other => panic!("{other} is not a kind of journal text"),
    }
}

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap()
}

/// Fields were added since; the old fields keep their values.
fn assert_kept(stored: &str, read: &str) {
    let read = object(read);
    assert!(object(stored).iter().all(|(key, value)| read.get(key) == Some(value)), "{stored}");
}

fn today() -> Vec<(&'static str, String)> {
    let request = ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]));
    let judged = ExecutionDecision {
        action: Action::RequireApproval,
        categories: Categories::from_iter([Category::Mutating, Category::Networked]),
        rule: Some("builtin.networked".to_owned()),
        reason: "`make test` may write to the workspace".to_owned(),
        hint: Some("add --net host".to_owned()),
        on_violation: OnViolation::Keep,
        timeout_max: ExecutionTimeout::None,
        limits_max: Limits::default(),
        approval_seconds: ExecutionDecision::APPROVAL_SECONDS,
        net: None,
        allow_rule: None,
    };
    let ms = Duration::from_millis;
    let phases = Phases { resolve: ms(1), mount: ms(2), execute: ms(3), capture: ms(4), commit: ms(5) };
    let connection = Connection {
        host: "example.org".to_owned(),
        port: 443,
        address: Some([192, 0, 2, 1].into()),
        verdict: ConnectionVerdict::Refused("it is not on the list".to_owned()),
        bytes_up: 1,
        bytes_down: 2,
        began: ms(1),
        lasted: ms(2),
    };
    let mut ended = Completion::of(Exit::Code(0));
    ended.usage = Usage { user: ms(20), system: ms(10), max_rss_bytes: 1 << 20 };
    ended.stdout = Some(Output::from(b"out\n".to_vec()));
    ended.stderr = Some(Output::lacking(Vec::new(), Some(Omitted { offset: 0, bytes: 1 })));
    let plain = RunResult { bytes_written: 4096, ..result(&request, &ended, &phases) };
    ended.stopped_by = Some(LimitKind::Memory);
    ended.connections.list.push(connection);
    ended.connections.left_off = 3;
    let reason = Reason { code: "cache.unknown", text: "there is no result of it".to_owned() };
    let cache = CacheUse {
        mode: CacheMode::Write,
        key: None,
        from: None,
        missed: vec![reason.clone()],
        not_remembered: vec![reason],
        remembered: false,
    };
    let cache = Some(CacheObject::from(&cache));
    let cached = RunResult { bytes_written: 4096, cache, ..result(&request, &ended, &phases) };
    let mut of_item = ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]));
    of_item.item = Some(BatchItem { batch: BatchId::from_random([5; 5]), number: 3 });
    of_item.output = OutputRetention::Kept;
    let mut failed_item = Completion::of(Exit::Code(2));
    failed_item.stdout = Some(Output::from(b"first\nlast\n".to_vec()));
    failed_item.stderr = Some(Output::lacking(b"bad\n".to_vec(), Some(Omitted { offset: 4, bytes: 9 })));
    let path = OutsideWrite { path: "/tmp/x".into(), size: Some(3) };
    failed_item.outside_writes =
        OutsideWrites { files: 2, dirs: 1, bytes: 7, paths: vec![path], left_off: 1, is_complete: false };
    let failed = ExecuteError::WorkspaceRoot(WorkspaceRootError::BadPlace { path: "x".into() });
    let hint = Some("choose a path such as /srv/project".to_owned());
    vec![
        ("request", super::request(&request, None)),
        ("decision", decision(&judged, Some(&ApprovalId::from_random([3; 5])))),
        ("result", text(&plain)),
        ("result", text(&cached)),
        ("result", text(&result(&of_item, &failed_item, &phases))),
        ("failure", failure(ProxyExecutionState::Mounting, &failed, hint, &Secrets::default())),
        ("failure", interrupted(ProxyExecutionState::Executing)),
    ]
}

#[test]
fn rows_are_written_unchanged_and_read_back_completely() {
    if std::env::var_os("AVFS_GOLDEN_REGENERATE").is_some() {
        let older = ROWS.lines().filter(|line| !line.starts_with(NOW)).map(str::to_owned);
        let now = today().into_iter().map(|(kind, text)| format!("{NOW} {kind} {text}"));
        let lines: String = older.chain(now).map(|line| line + "\n").collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/journal.txt");
        return std::fs::write(path, lines).unwrap();
    }
    let mut written = today().into_iter();
    for line in ROWS.lines() {
        let mut words = line.splitn(3, ' ');
        let (format, kind, stored) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        if format == NOW {
            assert_eq!(written.next(), Some((kind, stored.to_owned())));
        }
        if kind == "request" {
            let request = RunSpec::parse(stored.as_bytes()).unwrap();
            assert_eq!(request.command, object(stored)["command"]);
        }
        if format == NOW {
            assert_eq!(again(kind, stored), stored);
        } else {
            assert_kept(stored, &again(kind, stored));
        }
    }
    assert_eq!(written.next(), None);
}

#[test]
fn journals_of_every_vault_format_are_read() {
    let newest = FORMAT.to_string();
    assert_eq!((NOW, VAULTS[VAULTS.len() - 1].0), (newest.as_str(), newest.as_str()));
    let dir = tempfile::tempdir().unwrap();
    for (format, packed) in VAULTS {
        let file = dir.path().join(format);
        std::fs::write(&file, zstd::decode_all(packed).unwrap()).unwrap();
        let context =
            Context { clock: std::sync::Arc::new(avfs_types::clock::SystemClock), actor: "test".into() };
        let vault = Vault::open(&file, OpenOptions::default(), context).unwrap();
        let runs = vault.runs(i64::MAX, 100).unwrap();
        assert!(runs.len() > 1, "format {format}");
        for run in runs {
            assert!(RunSpec::parse(run.request.as_bytes()).unwrap().command.is_array());
            let row = read(&run);
            assert_eq!(
                (row.request.problem(), row.decision.problem(), row.outcome.problem()),
                (None, None, None)
            );
            for (stored, read) in [
                (&run.request, text(&row.request)),
                (&run.decision, text(&row.decision)),
                (&run.result, text(&row.outcome)),
            ] {
                assert_kept(stored, &read);
            }
        }
    }
}
