//! Two runs from one version: both changes are merged, or the second gets its own fork.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use avfs_types::path::TreePath;
use avfs_vault::page::Node;
use avfs_vault::run::{Landed, Landing};
use avfs_vault::tree::{Pages, Walk};
use avfs_vault::{Vault, content};

use crate::runs::{Changes, head, record};
use crate::support;
use crate::support::main_fork;

/// A directory tree as a map, which is easy to check.
pub type Files = BTreeMap<String, String>;

pub fn files(vault: &Vault, at: &str) -> Files {
    let root = support::root(vault, at);
    let reader = vault.read().unwrap();
    let pages: &dyn Pages = &&*reader;
    let walk = Walk::new(pages, &root, &TreePath::root());
    walk.filter_map(|walked| {
        let walked = walked.unwrap();
        let Node::File(file) = &walked.node else { return None };
        let bytes = content::decode(content::fetch(&*reader, file.content.id()).unwrap()).unwrap();
        Some((walked.path.to_string(), String::from_utf8(bytes).unwrap()))
    })
    .collect()
}

/// The changes of one side: each file gets unique content, so no change is of a time alone.
pub fn work(files: &Files, steps: &[(String, bool)], who: &str) -> (Files, Changes) {
    let mut after = files.clone();
    for (n, (at, put)) in steps.iter().enumerate() {
        if *put {
            after.insert(at.clone(), format!("{who} {n}"));
        } else {
            after.remove(at);
        }
    }
    let written = after.iter().filter(|(at, text)| files.get(*at) != Some(text));
    let changes = written.fold(Changes::default(), |changes, (at, text)| changes.put(at, text));
    let gone = files.keys().filter(|at| !after.contains_key(*at));
    let changes = gone.fold(changes, |changes, at| changes.remove(at));
    (after, changes)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(40, 500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Two sides change files of the same directories: the result has both changes, or the second is diverted.
    #[test]
    fn random_rebases_have_the_changes_of_both_sides(
        theirs in prop::collection::vec((prop::sample::select(POOL), any::<bool>()), 1..5),
        mine in prop::collection::vec((prop::sample::select(POOL), any::<bool>()), 1..5),
    ) {
        let owned = |steps: Vec<(&'static str, bool)>| -> Vec<(String, bool)> {
            steps.into_iter().map(|(at, put)| (at.to_owned(), put)).collect()
        };
        let vault = support::memory_vault();
        for at in &POOL[..5] {
            support::write(&vault, at, format!("old {at}").as_bytes());
        }
        let base = head(&vault, &main_fork());
        let start = files(&vault, "main");
        let (after_theirs, their_changes) = work(&start, &owned(theirs), "they");
        let (after_mine, my_changes) = work(&start, &owned(mine), "I");
        let land = |changes: &Changes, n| {
            let landing = Landing::Fork { name: &main_fork(), base };
            changes.land(&vault, landing, record(n, &main_fork())).unwrap().landed
        };
        land(&their_changes, 1);
        let touched = |after: &Files| -> BTreeSet<String> {
            let all: BTreeSet<&String> = start.keys().chain(after.keys()).collect();
            all.into_iter().filter(|at| start.get(*at) != after.get(*at)).cloned().collect()
        };
        let (their_paths, my_paths) = (touched(&after_theirs), touched(&after_mine));
        // Removed by both is the same change.
        let both = their_paths.intersection(&my_paths).filter(|at| after_theirs.get(*at) != after_mine.get(*at));
        let clash: Vec<String> = both.cloned().collect();
        let landed = land(&my_changes, 2);
        match landed {
            Landed::Diverted { fork, paths, .. } => {
                let reported: Vec<String> = paths.iter().map(ToString::to_string).collect();
                prop_assert_eq!(reported, clash);
                prop_assert_eq!(files(&vault, fork.as_str()), after_mine);
                prop_assert_eq!(files(&vault, "main"), after_theirs);
            }
            Landed::Nothing => {
                // Both sides made the same changes, or none.
                prop_assert!(my_paths.iter().all(|at| after_theirs.get(at) == after_mine.get(at)));
                prop_assert_eq!(files(&vault, "main"), after_theirs);
            }
            Landed::Advanced { .. } | Landed::Rebased { .. } => {
                prop_assert_eq!(clash, Vec::<String>::new());
                let mut both = after_theirs;
                for at in &my_paths {
                    match after_mine.get(at) {
                        Some(text) => both.insert(at.clone(), text.clone()),
                        None => both.remove(at),
                    };
                }
                prop_assert_eq!(files(&vault, "main"), both);
            }
        }
        support::assert_clean(&vault);
    }
}

#[test]
fn equal_changes_of_both_sides_are_no_clash() {
    let vault = support::memory_vault();
    support::write(&vault, "gone", b"old");
    support::write(&vault, "q/kept", b"old");
    let base = head(&vault, &main_fork());
    let land = |changes: &Changes, n| {
        let landing = Landing::Fork { name: &main_fork(), base };
        changes.land(&vault, landing, record(n, &main_fork())).unwrap().landed
    };
    let same = || Changes::default().put("q/a", "same\n").remove("gone");
    land(&same().put("q/theirs", "1"), 1);
    let landed = land(&same().put("q/mine", "2"), 2);
    assert!(matches!(landed, Landed::Rebased { .. }), "{landed:?}");
    let expected = ["q/a", "q/kept", "q/mine", "q/theirs"];
    assert_eq!(files(&vault, "main").into_keys().collect::<Vec<_>>(), expected);
    // The same name with other content is a clash.
    let landed = land(&Changes::default().put("q/a", "other\n"), 3);
    assert!(matches!(&landed, Landed::Diverted { paths, .. } if paths.len() == 1), "{landed:?}");
    support::assert_clean(&vault);
}

pub const POOL: &[&str] = &["a/one", "a/two", "b/one", "b/deep/two", "top", "a/new", "b/new", "new"];
