//! Syncing a fork with the directory's version: a three-way merge of whole paths.

use std::collections::BTreeSet;

use proptest::prelude::*;

use avfs_vault::Vault;
use avfs_vault::backend::Life;
use avfs_vault::join::OnClash;
use avfs_vault::run::Landing;
use avfs_vault::sync::{LastSync, Synced, last_sync};

use crate::rebasing::{Files, POOL, files, work};
use crate::runs::{Changes, head, record};
use crate::support;
use crate::support::{fork, main_fork};

/// A vault with files on `main`.
fn start() -> Vault {
    let vault = support::memory_vault();
    for at in &POOL[..5] {
        support::write(&vault, at, format!("old {at}").as_bytes());
    }
    vault
}

/// Lands changes on a fork, which is created if it does not exist.
fn land(vault: &Vault, name: &str, changes: &Changes, number: u8) {
    let (name, main) = (fork(name), main_fork());
    let landing = match vault.fork(&name) {
        Ok(there) => Landing::Fork { name: &there.name.clone(), base: there.head },
        Err(_) => {
            let base = head(vault, &main);
            let landing = Landing::NewFork { name: &name, base, parent: &main, life: Life::Persistent };
            changes.land(vault, landing, record(number, &name)).unwrap();
            return;
        }
    };
    changes.land(vault, landing, record(number, &name)).unwrap();
}

fn sync(vault: &Vault, on_clash: OnClash) -> Synced {
    vault.sync(&fork("side"), &head(vault, &main_fork()), &|_| on_clash, &|_, _, _| Ok(false)).unwrap()
}

fn last(vault: &Vault) -> LastSync {
    let side = vault.fork(&fork("side")).unwrap();
    last_sync(&*vault.read().unwrap(), &side, usize::MAX).unwrap()
}

#[test]
fn sync_can_be_undone_and_repeated() {
    let vault = start();
    land(&vault, "side", &Changes::default().put("a/one", "mine"), 1);
    assert_eq!(sync(&vault, OnClash::Refuse), Synced::UpToDate);
    assert_eq!(last(&vault), LastSync::Never);
    support::write(&vault, "new", b"theirs");
    assert!(matches!(sync(&vault, OnClash::Refuse), Synced::Merged(_)));
    let merged = files(&vault, "side");
    assert_eq!((merged["new"].as_str(), merged["a/one"].as_str()), ("theirs", "mine"));
    let directory = head(&vault, &main_fork());
    assert!(matches!(last(&vault), LastSync::Found { merged, .. } if merged == directory));
    assert_eq!(sync(&vault, OnClash::Refuse), Synced::UpToDate);
    // The undone sync is not in the fork, so the next sync merges it again.
    vault.undo(&fork("side")).unwrap();
    assert_eq!(last(&vault), LastSync::Never);
    assert!(!files(&vault, "side").contains_key("new"));
    assert!(matches!(sync(&vault, OnClash::Refuse), Synced::Merged(_)));
    assert_eq!(files(&vault, "side"), merged);
    // After another run, the sync is still the last one.
    land(&vault, "side", &Changes::default().put("b/one", "mine"), 2);
    assert!(matches!(last(&vault), LastSync::Found { merged, .. } if merged == directory));
    assert_eq!(
        last_sync(&*vault.read().unwrap(), &vault.fork(&fork("side")).unwrap(), 1).unwrap(),
        LastSync::Unknown
    );
    support::assert_clean(&vault);
}

#[test]
fn conflicts_are_listed_or_decided_by_side() {
    let vault = start();
    land(&vault, "side", &Changes::default().put("a/one", "mine").put("top", "mine").remove("b/one"), 1);
    support::write(&vault, "a/one", b"theirs");
    support::write(&vault, "b/one", b"theirs");
    support::write(&vault, "new", b"theirs");
    let before = files(&vault, "side");
    let Synced::Conflicts(paths) = sync(&vault, OnClash::Refuse) else { panic!("no conflict") };
    assert_eq!(paths, [support::path("a/one"), support::path("b/one")]);
    assert_eq!(files(&vault, "side"), before);
    assert!(matches!(sync(&vault, OnClash::KeepHead), Synced::Merged(_)));
    let mut kept = before.clone();
    kept.insert("new".to_owned(), "theirs".to_owned());
    assert_eq!(files(&vault, "side"), kept);
    vault.undo(&fork("side")).unwrap();
    assert!(matches!(sync(&vault, OnClash::TakeOther), Synced::Merged(_)));
    for at in ["a/one", "b/one", "new"] {
        kept.insert(at.to_owned(), "theirs".to_owned());
    }
    assert_eq!(files(&vault, "side"), kept);
    support::assert_clean(&vault);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(40, 500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A path that only one side changed is taken from that side; a path that both changed is a conflict.
    #[test]
    fn sync_takes_paths_changed_on_one_side(
        theirs in prop::collection::vec((prop::sample::select(POOL), any::<bool>()), 1..5),
        mine in prop::collection::vec((prop::sample::select(POOL), any::<bool>()), 1..5),
    ) {
        let owned = |steps: &[(&'static str, bool)]| -> Vec<(String, bool)> {
            steps.iter().map(|(at, put)| ((*at).to_owned(), *put)).collect()
        };
        let vault = start();
        let began = files(&vault, "main");
        let (after_mine, my_changes) = work(&began, &owned(&mine), "I");
        let (after_theirs, their_changes) = work(&began, &owned(&theirs), "they");
        land(&vault, "side", &Changes::default().put("side-only", "x"), 1);
        land(&vault, "side", &my_changes, 2);
        land(&vault, "main", &their_changes, 3);
        let changed = |after: &Files| -> BTreeSet<String> {
            let all: BTreeSet<&String> = began.keys().chain(after.keys()).collect();
            all.into_iter().filter(|at| began.get(*at) != after.get(*at)).cloned().collect()
        };
        let (my_paths, their_paths) = (changed(&after_mine), changed(&after_theirs));
        let both_changed: BTreeSet<String> = my_paths.intersection(&their_paths).cloned().collect();
        // A path deleted on both sides is not a conflict.
        let clash: Vec<String> =
            both_changed.into_iter().filter(|at| after_mine.get(at) != after_theirs.get(at)).collect();
        let mut expected = after_mine.clone();
        expected.insert("side-only".to_owned(), "x".to_owned());
        match sync(&vault, OnClash::Refuse) {
            Synced::Conflicts(paths) => {
                let listed: Vec<String> = paths.iter().map(ToString::to_string).collect();
                prop_assert_eq!(listed, clash);
            }
            Synced::UpToDate => prop_assert!(their_paths.is_empty()),
            Synced::Merged(_) => {
                prop_assert!(clash.is_empty(), "{:?}", clash);
                for at in &their_paths {
                    match after_theirs.get(at) {
                        Some(text) => expected.insert(at.clone(), text.clone()),
                        None => expected.remove(at),
                    };
                }
            }
        }
        prop_assert_eq!(files(&vault, "side"), expected);
        support::assert_clean(&vault);
    }
}
