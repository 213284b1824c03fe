//! Unapply: removes exactly the applied changes from the directory, and only where they are unmodified.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use avfs_changes::{Applied, ApplyError, ApplyOptions, Filter, Standing, Subject, apply, unapply};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::RunPrefix;
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::discard::ChangesOf;
use avfs_vault::fork::Deletion;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::set_ids::SetIds;

use crate::apply::{Stand, apply_with, change_everything, everything, put};
use crate::apply_runs::land_run;
use crate::runs;
use crate::support::snapshot::assert_same;
use crate::support::{fork, snapshot};

fn filter(include: &[&str], exclude: &[&str]) -> Filter {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Filter::new(&owned(include), &owned(exclude)).unwrap()
}

pub fn take_back(stand: &Stand) -> Result<Vec<Applied>, ApplyError> {
    let groups = Standing::of_fork(&*stand.vault.read().unwrap(), &fork("side"))?;
    let each = groups
        .iter()
        .map(|group| unapply(&stand.vault, group, &stand.host(), Trial::Real, &Meter::default()));
    each.collect()
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
    for group in &groups {
        unapply(vault, group, &stand.host(), Trial::Real, &Meter::default()).unwrap();
    }
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
