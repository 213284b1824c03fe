//! Runs land once, in one transaction, on their fork or beside it, and nothing is lost.

use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{CheckpointName, ForkName, RunPrefix, VersionId};
use avfs_vault::backend::{Life, RunRecord, RunState};
use avfs_vault::checkpoint::Origin;
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::fork::Deletion;
use avfs_vault::page::Node;
use avfs_vault::run::{DIVERTED_SECONDS, Landed, Landing};
use avfs_vault::tree::Pages;
use avfs_vault::{Vault, content, tree};

use crate::support;
pub use crate::support::landing::{Changes, record, run_id};
use crate::support::{Scratch, fork, main_fork, path, reference};

pub fn head(vault: &Vault, name: &ForkName) -> VersionId {
    vault.fork(name).unwrap().head
}

pub fn cat(vault: &Vault, at: &str, file: &str) -> Option<String> {
    let root = support::root(vault, at);
    let reader = vault.read().unwrap();
    let pages: &dyn Pages = &&*reader;
    match tree::lookup(pages, &root, &path(file)).unwrap()? {
        Node::File(file) => {
            let blob = content::fetch(&*reader, file.content.id()).unwrap();
            Some(String::from_utf8(content::decode(blob).unwrap()).unwrap())
        }
        Node::Dir(_) => Some("/".to_owned()),
        Node::Symlink(_) | Node::Fifo(_) => panic!("unexpected kind of node"),
    }
}

fn dir_mode(vault: &Vault, at: &str, dir: &str) -> (u32, i64) {
    let root = support::root(vault, at);
    let reader = vault.read().unwrap();
    let pages: &dyn Pages = &&*reader;
    let Some(Node::Dir(found)) = tree::lookup(pages, &root, &path(dir)).unwrap() else { panic!("no {dir}") };
    let meta = tree::top(pages, &found.tree).unwrap().0;
    (meta.mode, meta.mtime.seconds)
}

pub fn audit_rows(vault: &Vault) -> Vec<(String, String, String)> {
    let rows = vault.read().unwrap().audit_after(0, 1000).unwrap();
    rows.into_iter().map(|row| (row.action, row.subject, row.detail)).collect()
}

/// A vault with some files on `main`.
pub fn furnished(scratch: &Scratch) -> Vault {
    let vault = support::create_vault(&scratch.join("vault.db"));
    for file in ["a/one", "a/two", "b/one", "b/deep/two", "top"] {
        support::write(&vault, file, format!("old {file}").as_bytes());
    }
    vault
}

#[test]
fn run_on_a_fork_moves_its_head() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let before = audit_rows(&vault).len();
    let changes = Changes::default().put("a/one", "new").remove("b").dir("c", 0o700, 9).put("c/x", "x");
    let landing = Landing::Fork { name: &main_fork(), base };
    let done = changes.land(&vault, landing, record(1, &main_fork())).unwrap();
    let version = head(&vault, &main_fork());
    assert_eq!(done.landed, Landed::Advanced { version });
    assert_eq!((done.record.version_before, done.record.version_after), (Some(base), Some(version)));
    assert_eq!(cat(&vault, "main", "a/one").as_deref(), Some("new"));
    assert_eq!((cat(&vault, "main", "b"), cat(&vault, "main", "c/x").as_deref()), (None, Some("x")));
    assert_eq!(dir_mode(&vault, "main", "c"), (0o700, 9));
    // Each step has its audit row; one row, both checkpoints, and the version refers to its run.
    let rows = audit_rows(&vault);
    let id = run_id(1);
    let logged: Vec<(&str, &str)> =
        rows[before..].iter().map(|(action, _, detail)| (action.as_str(), detail.as_str())).collect();
    let run = format!("run={id}");
    assert_eq!(
        logged,
        [
            ("run.request", format!("{run} true").as_str()),
            ("run.decision", &format!("{run} allow")),
            ("run.start", &run),
            ("run.end", &format!("{run} exit=0")),
            ("run.capture", &format!("{run} checkpoint_before=before-{id} checkpoint_after=after-{id}"),),
        ]
    );
    assert_eq!(vault.run(&RunPrefix::from(&id)).unwrap(), done.record);
    let checkpoints: Vec<(String, VersionId, bool)> = vault
        .checkpoints()
        .unwrap()
        .into_iter()
        .map(|c| (c.name.to_string(), c.version, c.automatic))
        .collect();
    assert_eq!(checkpoints, [(format!("before-{id}"), base, true), (format!("after-{id}"), version, true)]);
    let made = vault.read().unwrap().version(&version).unwrap().unwrap();
    assert_eq!((made.run.as_deref(), made.message.as_str()), (Some(id.as_str()), "a run"));
    support::assert_clean(&vault);
}

#[test]
fn run_on_a_new_fork_leaves_the_parent_unchanged() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let life = Life::Ephemeral { expires_at: support::START.plus_seconds(1000) };
    let name = fork("run-x");
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life };
    let done = Changes::default().put("new", "n").land(&vault, landing, record(1, &name)).unwrap();
    let made = vault.fork(&name).unwrap();
    assert_eq!(done.landed, Landed::Advanced { version: made.head });
    assert_eq!((made.base, made.parent, made.life), (base, Some(main_fork()), life));
    assert_eq!(head(&vault, &main_fork()), base);
    // A second run cannot use the name, and its attempt leaves no trace.
    let before = audit_rows(&vault);
    let refused = Changes::default().put("new", "m").land(&vault, landing, record(2, &name)).unwrap_err();
    assert_eq!(refused.code(), "fork.exists");
    assert_eq!(audit_rows(&vault), before);
    assert_eq!(vault.run(&RunPrefix::from(&run_id(2))).unwrap_err().code(), "run.not_found");
    support::assert_clean(&vault);
}

#[test]
fn run_without_changes_adds_one_row() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let unchanged = Changes::default().put("top", "old top");
    let node = {
        let root = support::root(&vault, "main");
        let reader = vault.read().unwrap();
        tree::lookup(&&*reader as &dyn Pages, &root, &path("top")).unwrap().unwrap()
    };
    let same = Changes { edits: Edits::from([(path("top"), Edit::Put(node))]), ..Changes::default() };
    let given = RunRecord { version_before: Some(base), ..record(1, &main_fork()) };
    let life = Life::Persistent;
    let (name, parent) = (fork("x"), main_fork());
    for (n, changes, landing) in [
        (1, &unchanged, Landing::RecordOnly),
        (2, &Changes::default(), Landing::Fork { name: &parent, base }),
        (3, &same, Landing::Fork { name: &parent, base }),
        (4, &same, Landing::NewFork { name: &name, base, parent: &parent, life }),
    ] {
        let before = audit_rows(&vault).len();
        let done = changes.land(&vault, landing, RunRecord { id: run_id(n), ..given.clone() }).unwrap();
        assert_eq!(done.landed, Landed::Nothing, "{n}");
        assert_eq!((done.record.version_before, done.record.version_after), (Some(base), None), "{n}");
        assert_eq!(audit_rows(&vault).len(), before + 4);
        let found =
            avfs_vault::version::resolve(&*vault.read().unwrap(), &reference(&format!("run:{}", run_id(n))))
                .unwrap()
                .0;
        assert_eq!(found.id, base, "a run without changes refers to its base");
    }
    assert_eq!((head(&vault, &main_fork()), vault.forks().unwrap().len()), (base, 1));
    assert_eq!(vault.checkpoints().unwrap().len(), 0);
    assert_eq!(vault.runs(i64::MAX, 100).unwrap().len(), 4);
    support::assert_clean(&vault);
}

#[test]
fn run_lands_once() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let changes = Changes::default().put("x", "x");
    let land = |n: u8, state: RunState, changes: &Changes| {
        let base = head(&vault, &main_fork());
        let landing = match state {
            RunState::Completed => Landing::Fork { name: &main_fork(), base },
            RunState::Failed
            | RunState::Interrupted
            | RunState::Recoverable
            | RunState::Denied
            | RunState::ApprovalRequired => Landing::RecordOnly,
        };
        let record = RunRecord { state, ..record(n, &main_fork()) };
        changes.land(&vault, landing, record).map(|done| done.landed)
    };
    // Interrupted, then recoverable, then captured: each replaces the row.
    assert_eq!(land(1, RunState::Interrupted, &changes).unwrap(), Landed::Nothing);
    assert_eq!(land(1, RunState::Recoverable, &changes).unwrap(), Landed::Nothing);
    let Landed::Advanced { version } = land(1, RunState::Completed, &changes).unwrap() else { panic!() };
    let other = Changes::default().put("y", "y");
    for state in RunState::ALL {
        assert_eq!(land(1, state, &other).unwrap_err().code(), "run.captured_already", "{state:?}");
    }
    assert_eq!(head(&vault, &main_fork()), version);
    // A run that failed or changed nothing has ended as well.
    land(2, RunState::Failed, &changes).unwrap();
    land(3, RunState::Completed, &Changes::default()).unwrap();
    for n in [2, 3] {
        assert_eq!(land(n, RunState::Completed, &other).unwrap_err().code(), "run.captured_already");
    }
    let runs = vault.runs(i64::MAX, 100).unwrap();
    let listed: Vec<(i64, RunState)> = runs.iter().map(|run| (run.seq, run.state)).collect();
    assert_eq!(listed, [(3, RunState::Completed), (2, RunState::Failed), (1, RunState::Completed)]);
    support::assert_clean(&vault);
}

/// Neither run knows the directory that the other creates.
#[test]
fn directory_created_by_two_runs_is_merged() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let land = |n: u8, changes: Changes| {
        let landing = Landing::Fork { name: &main_fork(), base };
        changes.land(&vault, landing, record(n, &main_fork())).unwrap().landed
    };
    let of = |who: &str, seconds| {
        let at = |path: &str| format!("{path}/{who}");
        let dirs = Changes::default().dir("q", 0o755, seconds).dir("q/deep", 0o700, seconds);
        dirs.put(&at("q"), who).put(&at("q/deep"), who)
    };
    assert!(matches!(land(1, of("one", 50)), Landed::Advanced { .. }));
    assert!(matches!(land(2, of("two", 40)), Landed::Rebased { .. }));
    for who in ["one", "two"] {
        for dir in ["q", "q/deep"] {
            assert_eq!(cat(&vault, "main", &format!("{dir}/{who}")).as_deref(), Some(who));
        }
    }
    // The later of both times, and the common mode.
    assert_eq!(dir_mode(&vault, "main", "q"), (0o755, 50));
    // A file of the same name with other content, another mode, and a file in place of the directory are conflicts.
    let clashes: [(u8, Changes, &str); 3] = [
        (3, of("one", 60).put("q/deep/one", "other"), "q/deep/one"),
        (4, Changes::default().dir("q", 0o700, 60).put("q/three", "3"), "q"),
        (5, Changes::default().put("q", "a file"), "q"),
    ];
    for (n, changes, path) in clashes {
        let Landed::Diverted { paths, .. } = land(n, changes) else { panic!("run {n} has no conflict") };
        assert!(paths.contains(&support::path(path)), "{path}: {paths:?}");
    }
    support::assert_clean(&vault);
}

#[test]
fn run_is_rebased_onto_a_moved_fork() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    support::write(&vault, "a/two", b"by another writer");
    support::write(&vault, "a/three", b"new by another writer");
    let onto = head(&vault, &main_fork());
    // The run touched another file of the directory, so the directory's time changed too.
    let changes = Changes::default().put("a/one", "by the run").dir("a", 0o755, 42).remove("b/deep");
    let done =
        changes.land(&vault, Landing::Fork { name: &main_fork(), base }, record(1, &main_fork())).unwrap();
    let version = head(&vault, &main_fork());
    assert_eq!(done.landed, Landed::Rebased { version, onto });
    assert_eq!((done.record.version_before, done.record.version_after), (Some(onto), Some(version)));
    for (file, text) in [
        ("a/one", Some("by the run")),
        ("a/two", Some("by another writer")),
        ("a/three", Some("new by another writer")),
        ("b/deep", None),
        ("b/one", Some("old b/one")),
    ] {
        assert_eq!(cat(&vault, "main", file).as_deref(), text, "{file}");
    }
    assert_eq!(dir_mode(&vault, "main", "a"), (0o755, 42));
    let (.., detail) = audit_rows(&vault).pop().unwrap();
    let id = run_id(1);
    let saved = format!("checkpoint_before=before-{id} checkpoint_after=after-{id}");
    assert_eq!(detail, format!("run={id} rebased from {} {saved}", base.short()));
    // The checkpoint before is the state from which the run started.
    let before = CheckpointName::parse(&format!("before-{}", run_id(1))).unwrap();
    let checkpoint = vault.read().unwrap().checkpoint(&main_fork(), &before).unwrap().unwrap();
    assert_eq!(checkpoint.version, base);
    support::assert_clean(&vault);
}

#[test]
fn conflicting_changes_get_their_own_fork() {
    let removed = |file: &str| Changes::default().remove(file);
    let cases: Vec<(&str, Changes, &[&str])> = vec![
        ("the same file", Changes::default().put("a/one", "mine"), &["a/one"]),
        ("a deleted file", Changes::default().put("b/one", "mine"), &["b", "b/one"]),
        ("a file in a deleted directory", Changes::default().put("b/deep/new", "mine"), &["b", "b/deep"]),
        ("the parent directory of a changed file", removed("a"), &["a/one"]),
        ("a name added on both sides", Changes::default().put("new", "mine"), &["new"]),
    ];
    for (what, changes, clashing) in cases {
        let scratch = Scratch::new();
        let vault = furnished(&scratch);
        let base = head(&vault, &main_fork());
        support::write(&vault, "a/one", b"by another writer");
        support::write(&vault, "new", b"by another writer");
        vault.remove(&main_fork(), &[path("b")], avfs_vault::ops::Depth::Recursive, "rm").unwrap();
        let moved = head(&vault, &main_fork());
        let done = changes
            .land(&vault, Landing::Fork { name: &main_fork(), base }, record(1, &main_fork()))
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let Landed::Diverted { fork: name, version, paths } = &done.landed else {
            panic!("{what}: {:?}", done.landed)
        };
        let listed: Vec<String> = paths.iter().map(ToString::to_string).collect();
        assert!(clashing.iter().all(|path| listed.contains(&(*path).to_owned())), "{what}: {listed:?}");
        assert_eq!(name.as_str(), format!("main-{}", run_id(1)));
        assert_eq!(done.record.fork, *name, "the journal names another fork");
        assert_eq!(head(&vault, &main_fork()), moved, "{what}: the changes of the other side were lost");
        let made = vault.fork(name).unwrap();
        assert_eq!((made.head, made.base, made.parent), (*version, base, Some(main_fork())));
        let Life::Ephemeral { expires_at } = made.life else { panic!("the fork does not expire") };
        assert!(expires_at.0 - made.created_at.0 <= DIVERTED_SECONDS * Timestamp::NANOS_PER_SECOND);
        assert!(expires_at > support::START.plus_seconds(DIVERTED_SECONDS - 1));
        // The fork has exactly the changes of the run.
        for (at, edit) in &changes.edits {
            let there = cat(&vault, name.as_str(), &at.to_string());
            assert_eq!(there.is_some(), *edit != Edit::Remove, "{what}: {at}");
        }
        support::assert_clean(&vault);
    }
}

#[test]
fn directory_metadata_is_merged_or_conflicts() {
    for (theirs, mine, expected) in [
        (0o700, 0o755, Some(0o700)),
        (0o755, 0o711, Some(0o711)),
        (0o700, 0o700, Some(0o700)),
        (0o700, 0o711, None),
    ] {
        let scratch = Scratch::new();
        let vault = furnished(&scratch);
        let base = head(&vault, &main_fork());
        let land = |n, mode, seconds| {
            let changes = Changes::default().dir("a", mode, seconds).put(&format!("a/new{n}"), "x");
            let landing = Landing::Fork { name: &main_fork(), base };
            changes.land(&vault, landing, record(n, &main_fork())).unwrap().landed
        };
        assert!(matches!(land(1, theirs, 50), Landed::Advanced { .. }));
        let landed = land(2, mine, 60);
        match expected {
            Some(mode) => {
                assert!(matches!(landed, Landed::Rebased { .. }), "{theirs:o} {mine:o}: {landed:?}");
                assert_eq!(dir_mode(&vault, "main", "a"), (mode, 60));
            }
            None => assert!(matches!(landed, Landed::Diverted { .. }), "{landed:?}"),
        }
    }
}

#[test]
fn changes_survive_deletion_of_the_fork_during_the_run() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let long = fork(&"x".repeat(100));
    vault.create_fork(&long, &reference("main"), Life::Persistent).unwrap();
    let base = head(&vault, &long);
    vault.delete_fork(&long, Deletion::Careful).unwrap();
    let done = Changes::default()
        .put("y", "y")
        .land(&vault, Landing::Fork { name: &long, base }, record(1, &long))
        .unwrap();
    let Landed::Diverted { fork: name, paths, .. } = &done.landed else { panic!("{:?}", done.landed) };
    assert_eq!((name.as_str().len(), paths.as_slice()), (100, &[][..]));
    assert!(name.as_str().ends_with(run_id(1).as_str()));
    assert_eq!(cat(&vault, name.as_str(), "y").as_deref(), Some("y"));
    support::assert_clean(&vault);
}

#[test]
fn taken_checkpoint_name_gets_a_number() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let taken = CheckpointName::parse(&format!("after-{}", run_id(1))).unwrap();
    let origin = avfs_vault::checkpoint::Origin::ByHand;
    vault.save_checkpoint(&main_fork(), Some(taken.clone()), "mine", origin).unwrap();
    let done = Changes::default()
        .put("y", "y")
        .land(&vault, Landing::Fork { name: &main_fork(), base }, record(1, &main_fork()))
        .unwrap();
    assert_eq!(done.checkpoint_after.unwrap().as_str(), format!("{taken}-2"));
    assert_eq!(done.checkpoint_before.unwrap().as_str(), format!("before-{}", run_id(1)));
}

#[test]
fn oldest_automatic_checkpoints_are_removed() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let (main, side) = (main_fork(), fork("side"));
    let mine = CheckpointName::parse("mine").unwrap();
    vault.save_checkpoint(&main, Some(mine.clone()), "", Origin::ByHand).unwrap();
    vault.create_fork(&side, &reference("main"), Life::Persistent).unwrap();
    let other = CheckpointName::parse("other").unwrap();
    vault.save_checkpoint(&side, Some(other.clone()), "", Origin::Automatic).unwrap();
    // Each run saves two.
    for n in 1..=30 {
        let landing = Landing::Fork { name: &main, base: head(&vault, &main) };
        Changes::default().put("by-run", &n.to_string()).land(&vault, landing, record(n, &main)).unwrap();
    }
    let names = |of: &ForkName| -> Vec<String> {
        let all = vault.read().unwrap().checkpoints_of_fork(of).unwrap();
        all.into_iter().map(|checkpoint| checkpoint.name.to_string()).collect()
    };
    let kept = names(&main);
    assert_eq!((kept.len(), kept[0].as_str()), (51, "mine"));
    assert_eq!(kept[1], format!("before-{}", run_id(6)), "the oldest was not removed first");
    assert_eq!(kept[50], format!("after-{}", run_id(30)));
    assert_eq!(names(&side), ["other"]);
    let rows = audit_rows(&vault);
    let (_, _, detail) = rows.last().unwrap();
    assert!(detail.ends_with(" checkpoints_retired=2"), "{detail}");
    // A run without changes saves no checkpoint, so none is removed.
    Changes::default().land(&vault, Landing::RecordOnly, record(31, &main)).unwrap();
    assert_eq!(names(&main), kept);
    support::assert_clean(&vault);
}
