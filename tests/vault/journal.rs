//! The journal: lookup of runs, marks, and detection of edits.

use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{BatchId, BatchItem, DIGEST_BYTES, ForkName, ListDigest, RunId, RunPrefix};
use avfs_vault::backend::{ApplicationRecord, BatchRecord, RunRecord};
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::run::Landing;
use avfs_vault::{Vault, audit};

use crate::runs::{Changes, audit_rows, furnished, head, record, run_id};
use crate::support;
use crate::support::{Scratch, fork, main_fork, path, reference};

pub fn findings(vault: &Vault) -> Vec<String> {
    let report =
        vault.fsck(avfs_vault::fsck::Thoroughness::Full, &avfs_vault::meter::Meter::default()).unwrap();
    report.findings.into_iter().map(|finding| finding.what).collect()
}

/// The application record of a run that is the only one on a fork.
pub fn application(vault: &Vault, on: &ForkName, run: &RunId) -> ApplicationRecord {
    let head = vault.fork(on).unwrap().head;
    ApplicationRecord {
        seq: 0,
        fork: on.clone(),
        runs: vec![run.clone()],
        before: head,
        after: head,
        choice: "{}".to_owned(),
        already: vec![path("x")],
        started_at: vault.now(),
        ended_at: None,
        undone_at: None,
        expires_at: vault.now().plus_seconds(1000),
    }
}

/// Records that a run was applied.
pub fn mark_applied(vault: &Vault, on: &ForkName, run: &RunId) -> avfs_vault::Result<()> {
    let begun = vault.begin_application(&application(vault, on, run))?;
    vault.end_application(&begun, (std::slice::from_ref(run), &[]), "paths=1")
}

#[test]
fn runs_are_found_by_id_prefix() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let ids = ["aabb000001", "aabb000002", "aacc000001"];
    for id in ids {
        let record = RunRecord { id: RunId::parse(id).unwrap(), ..record(0, &main_fork()) };
        let base = head(&vault, &main_fork());
        let landing = Landing::Fork { name: &main_fork(), base };
        Changes::default().put(id, id).land(&vault, landing, record).unwrap();
    }
    let find = |text: &str| vault.run(&RunPrefix::parse(text).unwrap());
    assert_eq!(find("aacc").unwrap().id.as_str(), "aacc000001");
    assert_eq!(find("run:AABB000002").unwrap().id.as_str(), "aabb000002");
    let refused = find("aabb").unwrap_err();
    assert_eq!(refused.code(), "ref.ambiguous");
    assert!(refused.to_string().contains("aabb000001, aabb000002"), "{refused}");
    assert_eq!(find("aaaa").unwrap_err().code(), "run.not_found");
    let resolve = |text: &str| {
        avfs_vault::version::resolve(&*vault.read().unwrap(), &reference(text)).map(|(version, _)| version.id)
    };
    assert_eq!(resolve("run:aacc").unwrap(), head(&vault, &main_fork()));
    assert_eq!(resolve("run:aacc~1").unwrap(), resolve("run:aabb000002").unwrap());
    assert_eq!(resolve("run:aabb").unwrap_err().code(), "ref.ambiguous");
    assert_eq!(resolve("run:aaaa").unwrap_err().code(), "ref.unknown");
    assert_eq!(resolve("run:aa").unwrap_err().code(), "ref.unknown");
    let listed = |before, limit| -> Vec<String> {
        vault.runs(before, limit).unwrap().into_iter().map(|run| run.id.to_string()).collect()
    };
    assert_eq!(listed(i64::MAX, 2), ["aacc000001", "aabb000002"]);
    assert_eq!(listed(2, 5), ["aabb000001"]);
    assert_eq!(vault.runs_of_fork(&main_fork(), 3, 5).unwrap().len(), 2);
    assert_eq!(vault.runs_of_fork(&fork("other"), 3, 5).unwrap().len(), 0);
}

#[test]
fn edited_journal_is_detected() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = furnished(&scratch);
    for n in 1..=3 {
        let base = head(&vault, &main_fork());
        let landing = Landing::Fork { name: &main_fork(), base };
        Changes::default().put("x", &n.to_string()).land(&vault, landing, record(n, &main_fork())).unwrap();
    }
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    support::assert_clean(&vault);
    drop(vault);
    let sql = support::sql(&file);
    sql.execute("UPDATE run SET request = '{' WHERE seq = 1", []).unwrap();
    sql.execute(
        "UPDATE run SET version_after = (SELECT version_after FROM run WHERE seq = 3) WHERE seq = 2",
        [],
    )
    .unwrap();
    let found = findings(&support::open_vault(&file));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|what| what.contains("the request of run") && what.contains("is not JSON")));
    assert!(found.iter().any(|what| what.contains("does not match the log")), "{found:?}");
    assert!(found.iter().any(|what| what.contains("is not that of run 0200000002")), "{found:?}");
    sql.execute("UPDATE run SET id = 'ZZZZZZZZZZ' WHERE seq = 3", []).unwrap();
    let found = findings(&support::open_vault(&file));
    assert!(found.iter().any(|what| what.contains("a row cannot be read")), "{found:?}");
    for wrong in ["state = 'done'", "version_after = x'00'", "id = 'short'"] {
        assert!(sql.execute(&format!("UPDATE run SET {wrong} WHERE seq = 1"), []).is_err(), "{wrong}");
    }
}

#[test]
fn applied_marks_are_journaled() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let landing = Landing::Fork { name: &main_fork(), base };
    Changes::default().put("x", "x").land(&vault, landing, record(1, &main_fork())).unwrap();
    mark_applied(&vault, &main_fork(), &run_id(1)).unwrap();
    let run = vault.run(&RunPrefix::from(&run_id(1))).unwrap();
    assert!(run.applied_at.is_some() && run.discarded_at.is_none());
    let (action, subject, detail) = audit_rows(&vault).pop().unwrap();
    assert_eq!((action.as_str(), subject.as_str()), ("run.apply", "main"));
    assert_eq!(detail, format!("run={} paths=1", run_id(1)));
    assert_eq!(mark_applied(&vault, &main_fork(), &run_id(9)).unwrap_err().code(), "run.not_found");
    assert_eq!(audit::verify(&*vault.read().unwrap(), None).unwrap().problems, []);
}

#[test]
fn recording_contains_the_runs_between_start_and_stop() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let land = |n: u8, name: &ForkName| {
        let nothing = RunRecord { version_before: Some(head(&vault, &main_fork())), ..record(n, name) };
        Changes::default().land(&vault, Landing::RecordOnly, nothing).unwrap().record
    };
    let (main, side) = (main_fork(), fork("side"));
    let before = land(1, &main);
    let all = vault.start_recording(None, None).unwrap();
    let of_side = vault.start_recording(None, Some(&side)).unwrap();
    assert_eq!((all.name.as_str(), of_side.name.as_str()), ("recording-1", "recording-2"));
    assert!(vault.is_recorded(&main).unwrap());
    let (on_main, on_side) = (land(2, &main), land(3, &side));
    let all = vault.stop_recording(Some(&all.name)).unwrap();
    assert!(vault.is_recorded(&side).unwrap() && !vault.is_recorded(&main).unwrap());
    let after = land(4, &side);
    let held = |recording: &avfs_vault::backend::RecordingRecord| {
        [&before, &on_main, &on_side, &after].map(|run| recording.holds(run))
    };
    assert_eq!(held(&all), [false, true, true, false]);
    assert_eq!(held(&of_side), [false, false, true, true]);
    // The journal in order, in pieces.
    let ids = |runs: Vec<RunRecord>| runs.into_iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(vault.runs_after(before.seq, 2).unwrap()), [on_main.id, on_side.id.clone()]);
    assert_eq!(ids(vault.runs_of_fork_after(&side, 0, 9).unwrap()), [on_side.id, after.id]);
    assert_eq!(vault.stop_recording(None).unwrap().name, of_side.name);
    assert_eq!(vault.stop_recording(None).unwrap_err().code(), "recording.none_open");
    vault.delete_recording(&all.name).unwrap();
    assert_eq!(vault.recordings().unwrap().len(), 1);
    // A free name is used again.
    assert_eq!(vault.start_recording(None, None).unwrap().name, all.name);
    support::assert_clean(&vault);
}

#[test]
fn runs_of_a_batch_must_exist() {
    let scratch = Scratch::new();
    let (vault, file) = (furnished(&scratch), scratch.join("vault.db"));
    let base = head(&vault, &main_fork());
    let batch = BatchRecord {
        id: BatchId::parse("aaaaaaaaaa").unwrap(),
        list: ListDigest([7; DIGEST_BYTES]),
        base,
        started_at: support::START,
        ended_at: None,
        plan: "{}".to_owned(),
    };
    vault.begin_batch(&batch).unwrap();
    let item = BatchItem { batch: batch.id.clone(), number: 0 };
    let quiet = RunRecord { version_before: Some(base), ..record(1, &main_fork()) };
    Changes::default().land_for(&vault, Landing::RecordOnly, quiet, &item).unwrap();
    support::assert_clean(&vault);
    drop(vault);
    let sql = support::sql(&file);
    // The base of a batch may be deleted: the row does not keep it.
    sql.execute("UPDATE batch SET base = zeroblob(32)", []).unwrap();
    support::assert_clean(&support::open_vault(&file));
    sql.execute("INSERT INTO batch_run VALUES ('aaaaaaaaaa', 1, 'bbbbbbbbbb')", []).unwrap();
    let found = findings(&support::open_vault(&file));
    let finding = "item 1 of batch aaaaaaaaaa refers to run bbbbbbbbbb";
    assert!(found.iter().any(|what| what.contains(finding)), "{found:?}");
}
