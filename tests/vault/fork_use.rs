//! Disk use of forks: the bytes a fork alone holds are those that gc frees, and expired forks are deleted.

use std::collections::BTreeMap;

use avfs_types::ids::{CheckpointName, ForkName};
use avfs_vault::Vault;
use avfs_vault::backend::Life;
use avfs_vault::checkpoint::Origin;
use avfs_vault::fork::Deletion;
use avfs_vault::fork_use::{ForkUse, Sizes, fork_uses};
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::run::Landing;

use crate::support;
use crate::support::landing::{Changes, record, run_id};
use crate::support::{Scratch, fork, main_fork, path, reference};

fn write(vault: &Vault, on: &str, at: &str, bytes: &[u8]) {
    vault.write_file(&fork(on), &path(at), bytes, None, "write").unwrap();
}

fn make(vault: &Vault, name: &str, from: &str) {
    vault.create_fork(&fork(name), &reference(from), Life::Persistent).unwrap();
}

fn uses(vault: &Vault) -> BTreeMap<String, ForkUse> {
    let uses = fork_uses(&*vault.read().unwrap(), Sizes::Counted).unwrap();
    uses.into_iter().map(|used| (used.fork.name.to_string(), used)).collect()
}

fn stored(vault: &Vault) -> u64 {
    let usage = vault.read().unwrap().usage().unwrap();
    usage.blob_stored_bytes + usage.tree_bytes
}

/// Forks that share much, little and nothing, with a large chunked file and a checkpoint besides the head.
fn furnish(vault: &Vault) {
    let large = support::noise(1, 3 << 20);
    write(vault, "main", "shared", b"in all of them");
    write(vault, "main", "large", &large);
    make(vault, "same", "main");
    make(vault, "edits", "main");
    let mut edited = large.clone();
    edited[1_000_000] ^= 1;
    write(vault, "edits", "large", &edited);
    write(vault, "edits", "only/here", &support::noise(2, 50_000));
    make(vault, "twig", "edits");
    write(vault, "twig", "leaf", b"leaf");
    write(vault, "main", "only/here", &support::noise(3, 9_000));
    make(vault, "restored", "main");
    write(vault, "restored", "gone", &support::noise(4, 70_000));
    vault.save_checkpoint(&fork("restored"), None, "", Origin::Automatic).unwrap();
    vault.restore(&fork("restored"), &reference("main"), None).unwrap();
    make(vault, "alone", "main");
    edited[2_000_000] ^= 1;
    write(vault, "alone", "large", &edited);
    vault.gc(&|_| {}).unwrap();
}

#[test]
fn deleting_a_fork_frees_the_bytes_that_it_alone_holds() {
    let scratch = Scratch::new();
    for (name, shared) in
        [("same", true), ("edits", true), ("twig", false), ("restored", false), ("alone", false)]
    {
        let vault = support::create_vault(&scratch.join(&format!("{name}.db")));
        furnish(&vault);
        let held = uses(&vault)[name].held_bytes.unwrap();
        let before = stored(&vault);
        vault.delete_fork(&fork(name), Deletion::Forced).unwrap();
        vault.gc(&|_| {}).unwrap();
        assert_eq!(before - stored(&vault), held, "{name}");
        assert_eq!(held == 0, shared, "{name} holds {held}");
    }
    // Pruned versions hold nothing.
    let vault = support::create_vault(&scratch.join("pruned.db"));
    furnish(&vault);
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    assert_eq!(uses(&vault)["restored"].held_bytes, Some(0));
}

#[test]
fn forks_are_listed_after_their_parents_with_their_last_run() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    furnish(&vault);
    let land = |n: u8, on: &ForkName, changes: Changes| {
        let base = vault.fork(on).unwrap().head;
        changes.land(&vault, Landing::Fork { name: on, base }, record(n, on)).unwrap()
    };
    let twig = fork("twig");
    land(1, &twig, Changes::default().put("r", "1"));
    land(2, &twig, Changes::default().put("r", "2"));
    let all = fork_uses(&*vault.read().unwrap(), Sizes::LeftOut).unwrap();
    let listed: Vec<(&str, u64, u64)> =
        all.iter().map(|used| (used.fork.name.as_str(), used.depth, used.versions_ahead)).collect();
    assert_eq!(
        listed,
        [
            ("main", 0, 3),
            ("same", 1, 0),
            ("edits", 1, 2),
            ("twig", 2, 3),
            ("restored", 1, 2),
            ("alone", 1, 1)
        ]
    );
    assert!(all.iter().all(|used| used.held_bytes.is_none()));
    assert_eq!(uses(&vault)["twig"].last_run.as_ref().map(|run| run.id.clone()), Some(run_id(2)));
    assert_eq!(uses(&vault)["main"].last_run, None);
    // A new fork of the same name has no runs.
    vault.delete_fork(&twig, Deletion::Forced).unwrap();
    make(&vault, "twig", "main");
    assert_eq!(uses(&vault)["twig"].last_run, None);
    // A fork that was created for a run is newer than the run.
    let (name, parent) = (ForkName::of_run(&run_id(3)), main_fork());
    let base = vault.fork(&parent).unwrap().head;
    let life = Life::Ephemeral { expires_at: support::START.plus_seconds(1_000_000) };
    let landing = Landing::NewFork { name: &name, base, parent: &parent, life };
    Changes::default().put("x", "x").land(&vault, landing, record(3, &name)).unwrap();
    vault.undo(&name).unwrap();
    assert_eq!(uses(&vault)[name.as_str()].last_run.as_ref().map(|run| run.id.clone()), Some(run_id(3)));
}

#[test]
fn expired_forks_are_deleted_unless_in_use_or_labelled() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let life = |seconds| Life::Ephemeral { expires_at: vault.now().plus_seconds(seconds) };
    for name in ["over", "used", "labelled"] {
        vault.create_fork(&fork(name), &reference("main"), life(0)).unwrap();
    }
    vault.create_fork(&fork("later"), &reference("main"), life(1_000_000)).unwrap();
    vault.save_checkpoint(&fork("over"), None, "", Origin::Automatic).unwrap();
    let label = CheckpointName::parse("look").ok();
    vault.save_checkpoint(&fork("labelled"), label, "", Origin::ByHand).unwrap();
    let rows = || vault.read().unwrap().audit_after(0, 1000).unwrap();
    assert_eq!(vault.expire_forks(&[fork("used")]).unwrap(), [fork("over")]);
    let last = rows().pop().unwrap();
    assert_eq!((last.action.as_str(), last.subject.as_str()), ("fork.expire", "over"));
    let count = rows().len();
    assert_eq!(vault.expire_forks(&[fork("used")]).unwrap(), []);
    assert_eq!(rows().len(), count, "an audit row without an expired fork");
    assert_eq!(vault.gc(&|_| {}).unwrap().forks, 1);
    let left: Vec<String> = vault.forks().unwrap().iter().map(|fork| fork.name.to_string()).collect();
    assert_eq!(left, ["main", "labelled", "later"]);
    support::assert_clean(&vault);
}

/// The name of a fork may be reused, even for a descendant of the first fork of that name.
#[test]
fn every_fork_is_listed_below_its_parent() {
    let scratch = Scratch::new();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let listed = |vault: &Vault| -> Vec<(String, u64)> {
        let uses = fork_uses(&*vault.read().unwrap(), Sizes::LeftOut).unwrap();
        uses.into_iter().map(|used| (used.fork.name.to_string(), used.depth)).collect()
    };
    let named = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
        names.iter().map(|(name, depth)| ((*name).to_owned(), *depth)).collect()
    };
    make(&vault, "a", "main");
    make(&vault, "b", "a");
    assert_eq!(listed(&vault), named(&[("main", 0), ("a", 1), ("b", 2)]));
    vault.delete_fork(&fork("a"), Deletion::Forced).unwrap();
    make(&vault, "a", "b");
    make(&vault, "c", "a");
    assert_eq!(listed(&vault), named(&[("main", 0), ("b", 0), ("a", 1), ("c", 2)]));
    vault.delete_fork(&fork("a"), Deletion::Forced).unwrap();
    make(&vault, "a", "main");
    assert_eq!(listed(&vault), named(&[("main", 0), ("a", 1), ("b", 0), ("c", 0)]));
}
