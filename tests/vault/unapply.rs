//! Unapply: removes exactly the applied changes from the directory, and only where they are unmodified.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use avfs_changes::{Applied, ApplyError, ApplyOptions, Filter, Standing, Subject, apply, unapply};
use avfs_types::KeepCount;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::RunPrefix;
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{Durability, Life, RunRecord};
use avfs_vault::changes::Changes;
use avfs_vault::diff::ChangeKind;
use avfs_vault::discard::ChangesOf;
use avfs_vault::fork::Deletion;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::run::{AuditTexts, Landing, RunLanding};
use avfs_vault::set_ids::SetIds;

use crate::apply::{Stand, apply_fork, apply_with, change_everything, everything, mix, put};
use crate::apply_runs::{edits_between, land_run};
use crate::support::snapshot::assert_same;
use crate::support::{Dice, fork, snapshot};
use crate::{runs, support};

fn filter(include: &[&str], exclude: &[&str]) -> Filter {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Filter::new(&owned(include), &owned(exclude)).unwrap()
}

pub fn take_back(stand: &Stand) -> Result<Applied, ApplyError> {
    let all = Standing::of_fork(&*stand.vault.read().unwrap(), &fork("side"))?;
    unapply(&stand.vault, &all, &stand.host(), Trial::Real, &Meter::default())
}

/// Lands the difference between the copy and the fork `work` as a run on that fork.
fn land_on_work(stand: &Stand, n: u8) {
    let (vault, work) = (&stand.vault, fork("work"));
    let now = vault.now();
    stand.take_copy();
    let head = |name: &str| vault.fork(&fork(name)).unwrap().head;
    let edits = edits_between(vault, &head("work"), &head("side"));
    let landing = Landing::Fork { name: &work, base: head("work") };
    let edited = support::landing::edited(vault, &head("work"), &edits).unwrap();
    let run = RunLanding {
        landing,
        edited: Some(&edited),
        message: "run",
        checkpoint_before: None,
        checkpoint_after: None,
        checkpoints_keep: KeepCount::DEFAULT,
        memo: None,
        kept: None,
        record: RunRecord { started_at: now, ended_at: Some(now), ..runs::record(n, &work) },
        item: None,
        durability: Durability::Synced,
        texts: AuditTexts::default(),
    };
    vault.land_run(run, avfs_vault::Batch::new(vault).unwrap()).unwrap();
}

fn keep_original(stand: &Stand) -> std::path::PathBuf {
    let original = stand.scratch.join("original");
    let copied = std::process::Command::new("cp").arg("-a").arg(stand.host()).arg(&original).status();
    assert!(copied.unwrap().success());
    original
}

#[test]
fn every_kind_of_change_is_unapplied_exactly() {
    let stand = Stand::new(everything, change_everything);
    let original = keep_original(&stand);
    stand.apply().unwrap();
    assert_same(&stand.copy(), &stand.host());
    take_back(&stand).unwrap();
    assert_same(&original, &stand.host());
    // The same once more.
    stand.apply().unwrap();
    assert_same(&stand.copy(), &stand.host());
    take_back(&stand).unwrap();
    assert_same(&original, &stand.host());
    assert_eq!(take_back(&stand).unwrap_err().code(), "unapply.nothing");
}

#[test]
fn an_expired_apply_is_named_as_the_reason() {
    let stand = Stand::new(everything, change_everything);
    let subject = Subject::of(&stand.vault, &"side".parse().unwrap()).unwrap();
    let (filter, meter) = (Filter::default(), Meter::default());
    let options = ApplyOptions {
        filter: &filter,
        keep_seconds: 0,
        set_ids: SetIds::Kept,
        trial: Trial::Real,
        meter: &meter,
    };
    apply(&stand.vault, &subject, &stand.host(), &options).unwrap();
    stand.vault.delete_fork(&fork("side"), Deletion::Forced).unwrap();
    stand.vault.gc(&|_| {}).unwrap();
    assert_eq!(take_back(&stand).unwrap_err().code(), "unapply.expired");
    assert_same(&stand.copy(), &stand.host());
}

#[test]
fn parts_applied_separately_are_unapplied_together() {
    let stand = Stand::new(everything, change_everything);
    let original = keep_original(&stand);
    let apply =
        |filter: &Filter| apply_with(&stand.vault, "side", &stand.host(), filter, Trial::Real).unwrap();
    assert!(apply(&filter(&["a"], &[])).left_out > 0);
    let half = snapshot::take(&stand.host());
    apply(&filter(&[], &["a"]));
    assert_ne!(half.facts, snapshot::take(&stand.host()).facts);
    take_back(&stand).unwrap();
    assert_same(&original, &stand.host());
}

#[test]
fn paths_left_out_or_already_in_place_stay() {
    let make = |dir: &Path| {
        put(dir, "kept", "old\n");
        put(dir, "both", "old\n");
    };
    let change = |dir: &Path| {
        put(dir, "kept", "new\n");
        put(dir, "both", "new\n");
        put(dir, "left", "new\n");
    };
    let stand = Stand::new(make, change);
    // The user made the same change.
    put(&stand.host(), "both", "new\n");
    put(&stand.host(), "left", "mine\n");
    apply_with(&stand.vault, "side", &stand.host(), &filter(&[], &["left"]), Trial::Real).unwrap();
    take_back(&stand).unwrap();
    let read = |path: &str| fs::read_to_string(stand.host().join(path)).unwrap();
    assert_eq!(
        (read("kept").as_str(), read("both").as_str(), read("left").as_str()),
        ("old\n", "new\n", "mine\n")
    );
}

/// An apply makes equal files of the directory into one file, if they are hard links in the new state. An unapply does
/// not remove them.
#[test]
fn files_that_an_apply_only_linked_stay() {
    let change = |dir: &Path| {
        put(dir, "mine", "same\n");
        fs::hard_link(dir.join("mine"), dir.join("made")).unwrap();
    };
    let stand = Stand::new(|dir| put(dir, "other", "old\n"), change);
    put(&stand.host(), "mine", "same\n");
    stand.apply().unwrap();
    let inode = |name: &str| fs::metadata(stand.host().join(name)).unwrap().ino();
    assert_eq!(inode("mine"), inode("made"));
    take_back(&stand).unwrap();
    assert_eq!(fs::read_to_string(stand.host().join("mine")).unwrap(), "same\n");
    assert!(!stand.host().join("made").exists());
}

#[test]
fn paths_changed_since_the_apply_are_conflicts() {
    let stand = Stand::new(everything, change_everything);
    stand.apply().unwrap();
    put(&stand.host(), "a/one", "my own work\n");
    put(&stand.host(), "a/unversioned/file", "x");
    let before = snapshot::take(&stand.host());
    let refused = take_back(&stand).unwrap_err();
    assert_eq!(refused.code(), "unapply.conflict", "{refused}");
    let ApplyError::ChangedSince { conflicts, .. } = refused else { panic!("{refused:?}") };
    assert!(conflicts.iter().any(|conflict| conflict.path.to_string() == "a/one"), "{conflicts:?}");
    assert!(snapshot::differences(&before, &snapshot::take(&stand.host())).is_empty());
}

#[test]
fn applied_state_is_journaled_and_keeps_its_versions() {
    let stand = Stand::new(everything, change_everything);
    let original = keep_original(&stand);
    let vault = &stand.vault;
    land_run(&stand, vault.now());
    let what = format!("run:{}", runs::run_id(1));
    let run = || vault.run(&RunPrefix::from(&runs::run_id(1))).unwrap();
    let state = || in_directory(&*vault.read().unwrap(), &run()).unwrap();
    assert_eq!(state(), None);
    apply_with(vault, &what, &stand.host(), &filter(&["a"], &[]), Trial::Real).unwrap();
    assert_eq!(state(), Some(InDirectory::Partly));
    apply_with(vault, &what, &stand.host(), &Filter::default(), Trial::Real).unwrap();
    assert_eq!(state(), Some(InDirectory::Applied));
    // Now only the application refers to the versions.
    vault.discard(&ChangesOf::Fork(fork("run-1"))).unwrap();
    vault.delete_fork(&fork("side"), avfs_vault::fork::Deletion::Careful).unwrap();
    vault.gc(&|_| {}).unwrap();
    let groups = Standing::of_run(&*vault.read().unwrap(), &run()).unwrap();
    unapply(vault, &groups, &stand.host(), Trial::Real, &Meter::default()).unwrap();
    assert_same(&original, &stand.host());
    assert_eq!(state(), Some(InDirectory::Unapplied));
    assert!(run().applied_at.is_none());
    assert_eq!(avfs_vault::audit::verify(&*vault.read().unwrap(), None).unwrap().problems, []);
    vault.gc(&|_| {}).unwrap();
    assert!(Standing::of_run(&*vault.read().unwrap(), &run()).is_err());
}

#[test]
fn interrupted_apply_is_unapplied_as_far_as_it_got() {
    let stand = Stand::new(
        |dir| put(dir, "one", "old\n"),
        |dir| {
            put(dir, "one", "new\n");
            put(dir, "two", "new\n");
        },
    );
    let original = keep_original(&stand);
    // Of the interrupted apply, one path was written.
    apply_with(&stand.vault, "side", &stand.host(), &Filter::default(), Trial::Real).unwrap();
    fs::remove_file(stand.host().join("two")).unwrap();
    take_back(&stand).unwrap();
    assert_eq!(
        fs::read_to_string(original.join("one")).unwrap(),
        fs::read_to_string(stand.host().join("one")).unwrap()
    );
    assert!(!stand.host().join("two").exists());
}

/// The trial lists the net changes and writes nothing; a conflict with the oldest apply keeps the newer ones.
#[test]
fn several_applies_are_reverted_as_one() {
    for seed in 0..support::usual_or_long(15, 200) {
        let stand = Stand::in_memory(|dir| mix(dir, seed, 25), |_| ());
        let (vault, host) = (&stand.vault, stand.host());
        vault.create_fork(&fork("work"), &support::reference("main"), Life::Persistent).unwrap();
        let original = snapshot::take(&host);
        for step in 1..=3_u8 {
            mix(&stand.copy(), seed + 1000 * u64::from(step), 8);
            land_on_work(&stand, step);
            apply_fork(vault, "work", &host).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        }
        let applied = snapshot::take(&host);
        assert!(snapshot::differences(&snapshot::take(&stand.copy()), &applied).is_empty(), "seed {seed}");
        let Ok(all) = Standing::of_fork(&*vault.read().unwrap(), &fork("work")) else { continue };
        let revert = |trial| unapply(vault, &all, &host, trial, &Meter::default());
        let tried = revert(Trial::DryRun).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        assert!(snapshot::differences(&applied, &snapshot::take(&host)).is_empty(), "seed {seed}");
        let listed = |changes: &Changes| -> BTreeSet<Vec<u8>> {
            let content = changes.iter().map(Result::unwrap).filter(|change| change.kind != ChangeKind::Time);
            content.map(|change| change.path.as_bytes().to_vec()).collect()
        };
        let differs = |path: &Vec<u8>| {
            original.facts.get(path).map(|fact| &fact.kind) != applied.facts.get(path).map(|fact| &fact.kind)
        };
        for path in original.facts.keys().chain(applied.facts.keys()).filter(|path| differs(path)) {
            assert!(listed(&tried.changes).contains(path), "seed {seed}: {}", path.escape_ascii());
        }
        let reverted = revert(Trial::Real).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        assert_eq!(listed(&tried.changes), listed(&reverted.changes), "seed {seed}");
        let found = snapshot::differences(&original, &snapshot::take(&host));
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}

/// Runs, undo and redo, and applies of the fork or of one run, with and without filters, in any order: everything
/// that was written can be reverted.
#[test]
fn any_applies_of_a_fork_are_reverted_exactly() {
    for seed in 0..support::usual_or_long(40, 600) {
        let stand = Stand::in_memory(|dir| mix(dir, seed, 25), |_| ());
        let (vault, host, dice) = (&stand.vault, stand.host(), &mut Dice::seeded(seed));
        vault.create_fork(&fork("work"), &support::reference("main"), Life::Persistent).unwrap();
        // Times are not compared by an apply, and a filter leaves out those of directories.
        let taken = || {
            let mut taken = snapshot::take(&host);
            taken.facts.values_mut().for_each(|fact| fact.mtime = (0, 0));
            taken
        };
        let original = taken();
        let (mut runs, mut done) = (0_u8, Vec::new());
        for _step in 0..8 {
            let step = match dice.below(8) {
                0..=2 => {
                    runs += 1;
                    mix(&stand.copy(), seed + 1000 * u64::from(runs), 6);
                    land_on_work(&stand, runs);
                    "run".to_owned()
                }
                3 => format!("undo: {}", vault.undo(&fork("work")).is_ok()),
                4 => format!("redo: {}", vault.redo(&fork("work")).is_ok()),
                kind => {
                    let patterns = ["a", "d", "f", "*", "b"];
                    let one = patterns[usize::try_from(dice.below(5)).unwrap()];
                    let filter = match dice.below(3) {
                        0 => Filter::default(),
                        1 => filter(&[one], &[]),
                        _ => filter(&[], &[one]),
                    };
                    let run = dice.below(u64::from(runs) + 1);
                    let what = match (kind, u8::try_from(run).unwrap()) {
                        (5 | 6, _) | (_, 0) => "work".to_owned(),
                        (_, run) => format!("run:{}", runs::run_id(run)),
                    };
                    let before = snapshot::take(&host);
                    match apply_with(vault, &what, &host, &filter, Trial::Real) {
                        Ok(_) => {}
                        Err(ApplyError::Conflict { .. } | ApplyError::Vault(_)) => {
                            let found = snapshot::differences(&before, &snapshot::take(&host));
                            assert!(found.is_empty(), "seed {seed}: {found:#?}");
                        }
                        Err(error) => panic!("seed {seed}: {error:?}"),
                    }
                    format!("apply {what} {filter:?}")
                }
            };
            done.push(step);
        }
        match Standing::of_fork(&*vault.read().unwrap(), &fork("work")) {
            Err(ApplyError::NotApplied { .. }) => continue,
            all => unapply(vault, &all.unwrap(), &host, Trial::Real, &Meter::default())
                .unwrap_or_else(|error| panic!("seed {seed}: {error:?} after {done:#?}")),
        };
        let found = snapshot::differences(&original, &taken());
        assert!(found.is_empty(), "seed {seed}: {found:#?} after {done:#?}");
    }
}

#[test]
fn conflict_with_the_oldest_of_several_applies_keeps_all() {
    let stand = Stand::new(everything, |_| ());
    let (vault, host) = (&stand.vault, stand.host());
    vault.create_fork(&fork("work"), &support::reference("main"), Life::Persistent).unwrap();
    let original = keep_original(&stand);
    put(&stand.copy(), "both", "1\n");
    put(&stand.copy(), "old/only", "1\n");
    land_on_work(&stand, 1);
    apply_fork(vault, "work", &host).unwrap();
    change_everything(&stand.copy());
    put(&stand.copy(), "both", "2\n");
    land_on_work(&stand, 2);
    apply_fork(vault, "work", &host).unwrap();
    put(&host, "old/only", "mine\n");
    let before = snapshot::take(&host);
    let revert = |trial| {
        let all = Standing::of_fork(&*vault.read().unwrap(), &fork("work")).unwrap();
        unapply(vault, &all, &host, trial, &Meter::default())
    };
    for trial in [Trial::DryRun, Trial::Real] {
        let refused = revert(trial).unwrap_err();
        let ApplyError::ChangedSince { conflicts, .. } = refused else { panic!("{refused:?}") };
        let paths: Vec<String> = conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
        assert_eq!(paths, ["old/only"]);
        assert!(snapshot::differences(&before, &snapshot::take(&host)).is_empty());
    }
    // The state between the two applies is accepted too.
    put(&host, "old/only", "1\n");
    put(&host, "both", "1\n");
    revert(Trial::Real).unwrap();
    assert_same(&original, &host);
}

/// A file that the user changed between two applies gets back the user's content.
#[test]
fn change_between_two_applies_is_restored() {
    let stand = Stand::new(|dir| put(dir, "f", "base\n"), |_| ());
    let (vault, host) = (&stand.vault, stand.host());
    vault.create_fork(&fork("work"), &support::reference("main"), Life::Persistent).unwrap();
    put(&stand.copy(), "f", "1\n");
    put(&stand.copy(), "other", "1\n");
    land_on_work(&stand, 1);
    apply_fork(vault, "work", &host).unwrap();
    put(&stand.copy(), "f", "mine\n");
    stand.take_copy();
    // The fork has the change of the user, and a change to it.
    vault.write_file(&fork("work"), &support::path("f"), &b"mine\n"[..], None, "sync").unwrap();
    put(&host, "f", "mine\n");
    put(&stand.copy(), "f", "2\n");
    land_on_work(&stand, 2);
    apply_with(vault, &format!("run:{}", runs::run_id(2)), &host, &Filter::default(), Trial::Real).unwrap();
    let all = Standing::of_fork(&*vault.read().unwrap(), &fork("work")).unwrap();
    for trial in [Trial::DryRun, Trial::Real] {
        let reverted = unapply(vault, &all, &host, trial, &Meter::default()).unwrap();
        let paths: Vec<String> =
            reverted.changes.iter().map(|change| change.unwrap().path.to_string()).collect();
        assert_eq!(paths, [".", "f", "other"]);
    }
    assert_eq!(fs::read_to_string(host.join("f")).unwrap(), "mine\n");
    assert!(!host.join("other").exists());
}
