//! Undo and redo, compared with a list and a position in it.

use proptest::prelude::*;

use avfs_types::diagnose::Diagnose;
use avfs_types::ids::ForkName;
use avfs_vault::Vault;
use avfs_vault::backend::Life;
use avfs_vault::fork::Deletion;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::run::Landing;

use crate::support;
use crate::support::landing::{Changes, record};
use crate::support::{Scratch, fork, main_fork, path, reference};

fn write(vault: &Vault, on: &ForkName, text: &str) {
    vault.write_file(on, &path("f"), text.as_bytes(), None, "write").unwrap();
}

fn tree(vault: &Vault, on: &ForkName) -> avfs_types::ids::TreeId {
    support::root(vault, on.as_str()).tree
}

#[test]
fn run_can_be_undone_and_redone() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let main = main_fork();
    write(&vault, &main, "one");
    let one = tree(&vault, &main);
    let base = vault.fork(&main).unwrap().head;
    let landed = Changes::default().put("g", "by a run").land(
        &vault,
        Landing::Fork { name: &main, base },
        record(1, &main),
    );
    let version = landed.unwrap().record.version_after.unwrap();
    let two = tree(&vault, &main);
    let undone = vault.undo(&main).unwrap();
    assert_eq!((undone.undone.id, tree(&vault, &main)), (version, one));
    assert_eq!(undone.committed.version.message, format!("undo {}: a run", version.short()));
    let redone = vault.redo(&main).unwrap();
    assert_eq!((redone.redone.id, tree(&vault, &main)), (version, two));
    // The run is still the only one with this version.
    assert_eq!(vault.run(&"0100".parse().unwrap()).unwrap().version_after, Some(version));
    assert_eq!(vault.undo(&fork("nope")).unwrap_err().code(), "fork.not_found");
    assert_eq!(vault.redo(&fork("nope")).unwrap_err().code(), "fork.not_found");
    support::assert_clean(&vault);
}

#[test]
fn fork_started_from_an_undo_is_undone_to_its_start() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let (main, side) = (main_fork(), fork("side"));
    ["one", "two"].iter().for_each(|text| write(&vault, &main, text));
    vault.undo(&main).unwrap();
    vault.create_fork(&side, &reference("main"), Life::Persistent).unwrap();
    assert_eq!(vault.undo(&side).unwrap_err().code(), "undo.nothing");
    assert_eq!(vault.redo(&side).unwrap_err().code(), "redo.nothing", "the undo belongs to another fork");
    let began = tree(&vault, &side);
    write(&vault, &side, "three");
    vault.undo(&side).unwrap();
    assert_eq!(tree(&vault, &side), began);
    assert_eq!(vault.undo(&side).unwrap_err().code(), "undo.nothing");
    vault.redo(&side).unwrap();
    // Redo on one fork does not affect the other.
    vault.redo(&main).unwrap();
    vault.delete_fork(&side, Deletion::Careful).unwrap();
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}

#[test]
fn undo_to_a_pruned_version_fails() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let main = main_fork();
    ["one", "two", "three"].iter().for_each(|text| write(&vault, &main, text));
    vault.undo(&main).unwrap();
    let keep = Keep { last: Some(2), since: None };
    let pruned = vault.prune(&keep, None, Trial::Real).unwrap();
    assert_eq!(pruned.versions.len(), 3, "an undo does not make older versions newer: {pruned:?}");
    vault.gc(&|_| {}).unwrap();
    let before = tree(&vault, &main);
    assert_eq!(vault.undo(&main).unwrap_err().code(), "version.pruned");
    assert_eq!(tree(&vault, &main), before);
    vault.redo(&main).unwrap();
    support::assert_clean(&vault);
}

/// The version that an undo returned to may be pruned; the undo has the same tree.
#[test]
fn undo_returns_to_a_tree_that_another_undo_keeps() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let main = main_fork();
    ["one", "two"].iter().for_each(|text| write(&vault, &main, text));
    vault.undo(&main).unwrap();
    let one = tree(&vault, &main);
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    write(&vault, &main, "three");
    vault.undo(&main).unwrap();
    assert_eq!(tree(&vault, &main), one);
    support::assert_clean(&vault);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    Restore,
    Undo,
    Redo,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Write),
        1 => Just(Step::Restore),
        3 => Just(Step::Undo),
        2 => Just(Step::Redo),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::usual_or_long(32, 500)))]

    #[test]
    fn undo_and_redo_move_through_a_list(steps in steps()) {
        let backend = Box::new(avfs_vault::backend::memory::MemoryBackend::default());
        let vault = Vault::over(backend, support::fixed_context()).unwrap();
        let main = main_fork();
        // All states; those after `at` are undone.
        let mut done = vec![tree(&vault, &main)];
        let mut at = 0;
        for (number, step) in steps.iter().enumerate() {
            let head = vault.fork(&main).unwrap().head;
            let outcome = match step {
                Step::Write => {
                    write(&vault, &main, &format!("{number}"));
                    done.truncate(at + 1);
                    done.push(tree(&vault, &main));
                    at += 1;
                    Ok(())
                }
                Step::Restore => {
                    // A restored version is like any other: the restore can be undone.
                    let restored = vault.restore(&main, &reference("main~1"), None);
                    if restored.is_ok_and(|committed| committed.changed()) {
                        done.truncate(at + 1);
                        done.push(tree(&vault, &main));
                        at += 1;
                    }
                    Ok(())
                }
                Step::Undo => vault.undo(&main).map(drop),
                Step::Redo => vault.redo(&main).map(drop),
            };
            match (step, outcome) {
                (Step::Write | Step::Restore, _) => {}
                (Step::Undo, Ok(())) => at -= 1,
                (Step::Redo, Ok(())) => at += 1,
                (Step::Undo, Err(error)) => {
                    prop_assert_eq!((error.code(), at), ("undo.nothing", 0));
                }
                (Step::Redo, Err(error)) => {
                    prop_assert_eq!((error.code(), at), ("redo.nothing", done.len() - 1));
                }
            }
            prop_assert!(at < done.len(), "a redo of nothing succeeded");
            prop_assert_eq!(tree(&vault, &main), done[at]);
            // Every step with an effect adds a version whose parent is the previous head.
            let now = vault.fork(&main).unwrap().head;
            let version = vault.read().unwrap().version(&now).unwrap().unwrap();
            prop_assert!(now == head || version.parents[0] == head);
        }
    }
}
