//! Undo and redo, held against a list and a place in it.

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
fn a_run_is_taken_back_and_brought_back() {
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
    // The run is still the only one that leads to its version.
    assert_eq!(vault.run(&"0100".parse().unwrap()).unwrap().version_after, Some(version));
    assert_eq!(vault.undo(&fork("nope")).unwrap_err().code(), "fork.not_found");
    assert_eq!(vault.redo(&fork("nope")).unwrap_err().code(), "fork.not_found");
    support::assert_clean(&vault);
}

#[test]
fn a_fork_goes_back_to_where_it_began_also_if_that_was_an_undo() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let (main, side) = (main_fork(), fork("side"));
    ["one", "two"].iter().for_each(|text| write(&vault, &main, text));
    vault.undo(&main).unwrap();
    vault.create_fork(&side, &reference("main"), Life::Persistent).unwrap();
    assert_eq!(vault.undo(&side).unwrap_err().code(), "undo.nothing");
    assert_eq!(vault.redo(&side).unwrap_err().code(), "redo.nothing", "that undo was another fork's");
    let began = tree(&vault, &side);
    write(&vault, &side, "three");
    vault.undo(&side).unwrap();
    assert_eq!(tree(&vault, &side), began);
    assert_eq!(vault.undo(&side).unwrap_err().code(), "undo.nothing");
    vault.redo(&side).unwrap();
    // What is on the one does not matter to the other.
    vault.redo(&main).unwrap();
    vault.delete_fork(&side, Deletion::Careful).unwrap();
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}

#[test]
fn what_was_pruned_is_not_gone_back_to() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("v.db"));
    let main = main_fork();
    ["one", "two", "three"].iter().for_each(|text| write(&vault, &main, text));
    vault.undo(&main).unwrap();
    let keep = Keep { last: Some(2), since: None };
    let pruned = vault.prune(&keep, None, Trial::Real).unwrap();
    assert_eq!(pruned.versions.len(), 3, "an undo makes nothing younger: {pruned:?}");
    vault.gc(&|_| {}).unwrap();
    let before = tree(&vault, &main);
    assert_eq!(vault.undo(&main).unwrap_err().code(), "version.pruned");
    assert_eq!(tree(&vault, &main), before);
    vault.redo(&main).unwrap();
    support::assert_clean(&vault);
}

/// The version an undo went to may be given up; the undo has the same.
#[test]
fn what_an_undo_keeps_is_gone_back_to() {
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
    fn a_fork_is_a_list_and_a_place_in_it(steps in steps()) {
        let backend = Box::new(avfs_vault::backend::memory::MemoryBackend::default());
        let vault = Vault::over(backend, support::fixed_context()).unwrap();
        let main = main_fork();
        // Everything that was done, of which what lies after `at` was undone.
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
                    // To what a restore goes is a version like any other: it can be undone.
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
            prop_assert!(at < done.len(), "a redo came from nowhere");
            prop_assert_eq!(tree(&vault, &main), done[at]);
            // Every step that did something is a version over the head there was.
            let now = vault.fork(&main).unwrap().head;
            let version = vault.read().unwrap().version(&now).unwrap().unwrap();
            prop_assert!(now == head || version.parents[0] == head);
        }
    }
}
