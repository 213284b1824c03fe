//! Joins of versions that were made in parallel, and the edits between two versions.

use proptest::prelude::*;

use avfs_types::ids::{ForkName, VersionId};
use avfs_vault::backend::Life;
use avfs_vault::delta::delta;
use avfs_vault::edit::{Edits, Manner, apply};
use avfs_vault::join::Joined;
use avfs_vault::pages::NewPages;
use avfs_vault::run::Landing;
use avfs_vault::tree::Pages;
use avfs_vault::{Vault, VaultError};

use crate::rebasing::{Files, POOL, files, work};
use crate::runs::{Changes, head, record};
use crate::support;
use crate::support::{Scratch, fork, main_fork};

struct Beside {
    _scratch: Scratch,
    vault: Vault,
    base: VersionId,
}

impl Beside {
    fn new() -> Self {
        let scratch = Scratch::new();
        let vault = support::create_vault(&scratch.join("v.db"));
        Self::with(scratch, vault)
    }

    fn in_memory() -> Self {
        Self::with(Scratch::new(), support::memory_vault())
    }

    fn with(scratch: Scratch, vault: Vault) -> Self {
        for at in &POOL[..5] {
            support::write(&vault, at, format!("old {at}").as_bytes());
        }
        let base = head(&vault, &main_fork());
        Self { _scratch: scratch, vault, base }
    }

    /// A fork of `base` with these changes.
    fn make(&self, name: &str, base: VersionId, changes: &Changes, n: u8) -> VersionId {
        let (name, parent) = (fork(name), main_fork());
        let landing = Landing::NewFork { name: &name, base, parent: &parent, life: Life::Persistent };
        changes.land(&self.vault, landing, record(n, &name)).unwrap().landed.version().unwrap_or(base)
    }

    fn join(&self, name: &str, versions: &[VersionId]) -> Joined {
        self.vault.join(&ForkName::parse(name).unwrap(), versions, Life::Persistent).unwrap()
    }
}

/// The join equals its second parent, as an undo does.
#[test]
fn join_equal_to_one_side_is_undone_as_a_join() {
    let beside = Beside::new();
    let common = Changes::default().dir("out", 0o755, 3).put("out/both", "same");
    let one = beside.make("one", beside.base, &common.clone(), 1);
    let two = beside.make("two", beside.base, &common.put("out/two", "2"), 2);
    let Joined::New(joined) = beside.join("joined", &[one, two]) else { panic!() };
    let (vault, name) = (&beside.vault, fork("joined"));
    assert_eq!(joined.root, vault.read().unwrap().version(&two).unwrap().unwrap().root);
    vault.write_file(&name, &support::path("late"), &b"x"[..], None, "write").unwrap();
    vault.undo(&name).unwrap();
    assert_eq!(files(vault, "joined"), files(vault, "two"));
    let undone = vault.undo(&name).unwrap();
    assert_eq!((undone.undone.id, files(vault, "joined")), (joined.id, files(vault, "one")));
    assert!(vault.undo(&name).is_err(), "undo went past the start of the fork");
}

#[test]
fn join_has_the_changes_of_both_sides() {
    let beside = Beside::new();
    let common = Changes::default().dir("out", 0o755, 3).put("out/both", "same");
    let one = beside.make("one", beside.base, &common.clone().put("out/one", "1").remove("top"), 1);
    let two = beside.make("two", beside.base, &common.put("out/two", "2").put("a/one", "two's"), 2);
    let Joined::New(joined) = beside.join("joined", &[one, two]) else { panic!() };
    assert_eq!(joined.parents, [one, two]);
    let has = files(&beside.vault, "joined");
    assert_eq!(has.get("out/one").map(String::as_str), Some("1"));
    assert_eq!(has.get("out/two").map(String::as_str), Some("2"));
    assert_eq!(has.get("out/both").map(String::as_str), Some("same"));
    assert_eq!(has.get("a/one").map(String::as_str), Some("two's"));
    assert!(!has.contains_key("top"));
    // In the other order the tree is the same.
    let Joined::New(other) = beside.join("other", &[two, one]) else { panic!() };
    assert_eq!(other.root, joined.root);
    support::assert_clean(&beside.vault);
}

#[test]
fn path_changed_in_two_ways_is_a_conflict() {
    let beside = Beside::new();
    let changed = |text: &str, n: u8| {
        beside.make(&format!("f{n}"), beside.base, &Changes::default().put("a/one", text), n)
    };
    let (one, two) = (changed("1", 1), changed("2", 2));
    let removed = beside.make("gone", beside.base, &Changes::default().remove("a"), 3);
    for (versions, second) in [([one, two], two), ([removed, one], one), ([one, removed], removed)] {
        let Joined::Clash { version, paths } = beside.join("never", &versions) else { panic!() };
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        let named = if second == removed { "a" } else { "a/one" };
        assert_eq!((version, paths), (second, vec![named.to_owned()]));
    }
    assert!(matches!(beside.vault.fork(&fork("never")), Err(VaultError::NoFork { .. })));
}

#[test]
fn ancestors_need_no_join() {
    let beside = Beside::new();
    let one = beside.make("one", beside.base, &Changes::default().put("x", "1"), 1);
    let two = beside.make("two", one, &Changes::default().put("y", "2"), 2);
    assert_eq!(beside.join("j", &[beside.base, two, one, two]), Joined::Known(two));
    // Changes of a common ancestor are not a conflict.
    let three = beside.make("three", one, &Changes::default().put("z", "3"), 3);
    assert!(matches!(beside.join("j", &[two, three]), Joined::New(_)));
    assert_eq!(files(&beside.vault, "j").get("x").map(String::as_str), Some("1"));
}

/// Both descend from joins of the same two versions: a change since then is not a conflict, a reverted change is.
#[test]
fn repeated_joins_are_compared_with_all_common_ancestors() {
    let beside = Beside::new();
    let made = |name: &str, base, changes: Changes, n| beside.make(name, base, &changes, n);
    let one = made("one", beside.base, Changes::default().put("x", "1").put("a/one", "1"), 1);
    let two = made("two", beside.base, Changes::default().put("y", "2").remove("top"), 2);
    let joined = |name: &str, versions: [VersionId; 2]| match beside.join(name, &versions) {
        Joined::New(version) => version.id,
        other @ (Joined::Known(_) | Joined::Clash { .. }) => panic!("{other:?}"),
    };
    let (left, right) = (joined("left", [one, two]), joined("right", [two, one]));
    let left = made("left-on", left, Changes::default().put("y", "left").remove("a/one"), 3);
    let right = made("right-on", right, Changes::default().put("x", "right").put("top", "again"), 4);
    for (name, versions) in [("end", [left, right]), ("dne", [right, left])] {
        joined(name, versions);
        let has = files(&beside.vault, name);
        let text = |path: &str| has.get(path).map(String::as_str);
        assert_eq!(
            (text("x"), text("y"), text("a/one"), text("top")),
            (Some("right"), Some("left"), None, Some("again"))
        );
    }
    let back = made("back", joined("third", [one, two]), Changes::default().put("top", "old top"), 5);
    let Joined::Clash { paths, .. } = beside.join("never", &[right, back]) else { panic!() };
    assert_eq!(paths.iter().map(ToString::to_string).collect::<Vec<_>>(), ["top"]);
    support::assert_clean(&beside.vault);
}

fn steps() -> impl Strategy<Value = Vec<(String, bool)>> {
    let step = (prop::sample::select(POOL), any::<bool>()).prop_map(|(at, put)| (at.to_owned(), put));
    prop::collection::vec(step, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(40, 500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A join has the changes of both sides, or names the conflicting paths; the edits between two versions turn one
    /// into the other.
    #[test]
    fn random_joins_have_the_changes_of_both_sides(mine in steps(), theirs in steps()) {
        let beside = Beside::in_memory();
        let start = files(&beside.vault, "main");
        let (after_mine, my_changes) = work(&start, &mine, "I");
        let (after_theirs, their_changes) = work(&start, &theirs, "they");
        let my_version = beside.make("mine", beside.base, &my_changes, 1);
        let their_version = beside.make("theirs", beside.base, &their_changes, 2);
        for version in [my_version, their_version] {
            let reader = beside.vault.read().unwrap();
            let pages: &dyn Pages = &&*reader;
            let root = |id: VersionId| support::root(&beside.vault, &id.to_hex());
            let edits: Edits = delta(pages, &root(beside.base), &root(version)).unwrap();
            let made = apply(pages, &root(beside.base), &edits, Manner::Exact, &mut NewPages::default()).unwrap();
            prop_assert_eq!(made.tree, root(version).tree);
        }
        let differs = |after: &Files, at: &String| start.get(at) != after.get(at);
        let all = start.keys().chain(after_mine.keys()).chain(after_theirs.keys());
        let clash = all.clone().any(|at| {
            differs(&after_mine, at) && differs(&after_theirs, at) && after_mine.get(at) != after_theirs.get(at)
        });
        match beside.join("joined", &[my_version, their_version]) {
            Joined::Clash { .. } => prop_assert!(clash),
            Joined::Known(version) => prop_assert!(version == my_version || version == their_version),
            Joined::New(_) => {
                prop_assert!(!clash);
                let mut both = after_theirs.clone();
                for at in all.filter(|at| differs(&after_mine, at)) {
                    match after_mine.get(at) {
                        Some(text) => both.insert(at.clone(), text.clone()),
                        None => both.remove(at),
                    };
                }
                prop_assert_eq!(files(&beside.vault, "joined"), both);
            }
        }
    }
}
