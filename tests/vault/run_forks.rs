//! The forks of runs: kept, discarded, and the objects that depend on them.

use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, RunId, RunPrefix};
use avfs_vault::Vault;
use avfs_vault::backend::fault::{FaultBackend, Fuse};
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::{Life, RunRecord, RunState, Shortage};
use avfs_vault::discard::ChangesOf;
use avfs_vault::fork::Deletion;
use avfs_vault::run::Landing;

use crate::journal::findings;
use crate::runs::{Changes, audit_rows, cat, furnished, head, record, run_id};
use crate::support;
use crate::support::{Scratch, fork, main_fork, path, reference};

#[test]
fn discard_deletes_only_the_fork_of_the_run() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let name = fork("run-x");
    let life = Life::Ephemeral { expires_at: Timestamp(i64::MAX) };
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life };
    let land_new = |n| Changes::default().put("new", "n").land(&vault, landing, record(n, &name)).unwrap();
    let code = |what: &str| vault.discard(&what.parse().unwrap()).map(drop).map_err(|error| error.code());
    let run = |n| format!("run:{}", run_id(n));
    land_new(1);
    // A run can be discarded by run and by fork, once.
    assert_eq!(code(&run(1)), Ok(()));
    assert!(vault.fork(&name).is_err());
    assert!(vault.run(&RunPrefix::from(&run_id(1))).unwrap().discarded_at.is_some());
    assert_eq!(code(&run(1)), Err("run.no_version"));
    assert_eq!(code("run-x"), Err("fork.not_found"));
    let second = land_new(2);
    let discarded = vault.discard(&ChangesOf::Fork(name.clone())).unwrap();
    // The run of the earlier fork of this name is not discarded again.
    let ids: Vec<RunId> = discarded.runs.iter().map(|run| run.id.clone()).collect();
    assert_eq!((ids, discarded.fork.unwrap().head), (vec![run_id(2)], second.landed.version().unwrap()));
    let (action, subject, detail) = audit_rows(&vault).pop().unwrap();
    assert_eq!((action.as_str(), subject.as_str()), ("run.discard", "run-x"));
    assert_eq!(detail, format!("run={}", run_id(2)));
    // A fork that is persistent, has moved, or has a checkpoint, and a run without a version are refused.
    let landing_on_main = Landing::Fork { name: &main_fork(), base };
    Changes::default().put("x", "x").land(&vault, landing_on_main, record(3, &main_fork())).unwrap();
    assert_eq!(code("main"), Err("fork.persistent"));
    assert_eq!(code(&run(3)), Err("fork.persistent"));
    land_new(4);
    vault.write_file(&name, &path("more"), &b"by hand"[..], None, "w").unwrap();
    assert_eq!(code(&run(4)), Err("fork.moved"));
    let origin = avfs_vault::checkpoint::Origin::ByHand;
    vault.save_checkpoint(&name, None, "", origin).unwrap();
    assert_eq!(code("run-x"), Err("fork.has_checkpoints"));
    Changes::default().land(&vault, Landing::RecordOnly, record(5, &main_fork())).unwrap();
    assert_eq!(code(&run(5)), Err("run.no_version"));
    let waiting = RunRecord { state: RunState::Recoverable, ..record(6, &main_fork()) };
    Changes::default().land(&vault, Landing::RecordOnly, waiting).unwrap();
    assert_eq!(code(&run(6)), Ok(()));
    assert_eq!(code("run:0900000009"), Err("run.not_found"));
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}

/// On a nearly full disk the runs of a fork are discarded in batches. After any failure a second attempt finishes it.
#[test]
fn discard_in_batches_can_be_repeated_after_any_failure() {
    let name = fork("run-x");
    let prepared = |fuse: &Fuse| {
        let shortage = Shortage { free_bytes: 1 << 20, logged_bytes: 1 << 17 };
        let backend = FaultBackend::new(MemoryBackend::default(), fuse.clone()).short_of_space(shortage);
        let vault = Vault::over(Box::new(backend), support::fixed_context()).unwrap();
        let life = Life::Ephemeral { expires_at: Timestamp(i64::MAX) };
        let mut base = head(&vault, &main_fork());
        for n in 0..20 {
            let landing = match n {
                0 => Landing::NewFork { name: &name, base, parent: &main_fork(), life },
                _ => Landing::Fork { name: &name, base },
            };
            let landed = Changes::default().put("f", &n.to_string()).land(&vault, landing, record(n, &name));
            base = landed.unwrap().landed.version().unwrap();
        }
        vault
    };
    let rows = |vault: &Vault| {
        let rows = audit_rows(vault).into_iter().filter(|(action, ..)| action == "run.discard");
        rows.map(|(.., detail)| detail.split(' ').count()).collect::<Vec<_>>()
    };
    for what in [ChangesOf::Fork(name.clone()), ChangesOf::Run(RunPrefix::from(&run_id(19)))] {
        for writes in 0.. {
            let fuse = Fuse::off();
            let vault = prepared(&fuse);
            fuse.arm(writes);
            let first = vault.discard(&what);
            let has_failed = !fuse.disarm();
            assert_eq!(first.is_err(), has_failed, "{first:?}");
            if has_failed {
                assert_eq!(vault.discard(&what).unwrap().fork.unwrap().name, name);
            }
            assert!(vault.fork(&name).is_err());
            for n in 0..20 {
                assert!(vault.run(&RunPrefix::from(&run_id(n))).unwrap().discarded_at.is_some(), "run {n}");
            }
            let discarded = rows(&vault);
            assert!(discarded.len() > 1 && discarded.iter().sum::<usize>() == 20, "{discarded:?}");
            assert_eq!(findings(&vault), [""; 0]);
            support::assert_clean(&vault);
            if !has_failed {
                break;
            }
        }
    }
}

#[test]
fn fork_of_a_run_can_be_kept_under_a_new_name() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let (own, best, main) = (ForkName::of_run(&run_id(1)), fork("best"), main_fork());
    let base = head(&vault, &main);
    let life = Life::Ephemeral { expires_at: Timestamp(support::START.0 + 1) };
    let landing = Landing::NewFork { name: &own, base, parent: &main, life };
    let landed = Changes::default().put("new", "made").land(&vault, landing, record(1, &own)).unwrap();
    assert_eq!(vault.keep_fork(&own, &main).unwrap_err().code(), "fork.exists");
    assert_eq!(vault.keep_fork(&main, &best).unwrap_err().code(), "fork.main");
    assert_eq!(vault.keep_fork(&fork("none"), &best).unwrap_err().code(), "fork.not_found");
    let kept = vault.keep_fork(&own, &best).unwrap();
    assert_eq!(
        (kept.base, Some(kept.head), kept.life),
        (base, landed.record.version_after, Life::Persistent)
    );
    assert_eq!(vault.fork(&own).unwrap_err().code(), "fork.not_found");
    assert_eq!(cat(&vault, "best", "new").as_deref(), Some("made"));
    assert_eq!(vault.run(&RunPrefix::from(&run_id(1))).unwrap().fork, best);
    let checkpoints = vault.read().unwrap().checkpoints().unwrap();
    assert_eq!(checkpoints.iter().filter(|checkpoint| checkpoint.fork == best).count(), 2);
    assert!(checkpoints.iter().all(|checkpoint| checkpoint.fork != own));
    assert!(audit_rows(&vault).contains(&(
        "fork.keep".to_owned(),
        "best".to_owned(),
        format!("from={own} run={}", run_id(1))
    )));
    support::assert_clean(&vault);
    // After its deletion no object is missing.
    vault.delete_fork(&best, Deletion::Forced).unwrap();
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}

#[test]
fn versions_of_runs_are_deleted_with_their_forks() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let name = fork("run-x");
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life: Life::Persistent };
    let done = Changes::default().put("new", "n").land(&vault, landing, record(1, &name)).unwrap();
    let version = done.landed.version().unwrap();
    vault.gc(&|_| {}).unwrap();
    assert!(vault.read().unwrap().version(&version).unwrap().is_some());
    vault.delete_fork(&name, Deletion::Forced).unwrap();
    vault.gc(&|_| {}).unwrap();
    assert!(vault.read().unwrap().version(&version).unwrap().is_none());
    // The row stays without a version; a fork of the same name does not change that.
    let resolve = || {
        avfs_vault::version::resolve(&*vault.read().unwrap(), &reference("run:0100"))
            .map(|(version, _)| version.id)
    };
    assert_eq!(resolve().unwrap_err().code(), "run.no_version");
    support::assert_clean(&vault);
    vault.create_fork(&name, &reference("main"), Life::Persistent).unwrap();
    support::assert_clean(&vault);
    // The run is not captured again either.
    let again = Changes::default().put("new", "n").land(&vault, Landing::RecordOnly, record(1, &name));
    assert_eq!(again.unwrap_err().code(), "run.captured_already");
    // But a version that is missing for no reason is detected.
    let landing = Landing::Fork { name: &name, base: head(&vault, &name) };
    let done = Changes::default().put("more", "m").land(&vault, landing, record(2, &name)).unwrap();
    support::write(&vault, "z", b"z");
    let version = done.landed.version().unwrap();
    drop(vault);
    let sql = support::sql(&file);
    sql.execute("UPDATE fork SET head = (SELECT head FROM fork WHERE name = 'main')", []).unwrap();
    sql.execute("DELETE FROM checkpoint WHERE fork = 'run-x'", []).unwrap();
    sql.execute("DELETE FROM version WHERE digest = ?1", [version.as_bytes()]).unwrap();
    drop(sql);
    let findings = findings(&support::open_vault(&file));
    let missing = format!("version {} of run {} is missing", version.short(), run_id(2));
    assert_eq!(findings, [missing.as_str(), "the head of fork run-x does not match the log"]);
}
