//! Runs land: once, in one transaction, on the fork they were made for or beside it, and nothing is lost.

use avfs::backend::{Life, RunRecord, RunState};
use avfs::clock::Timestamp;
use avfs::diagnose::Diagnose;
use avfs::ids::{CheckpointName, ForkName, RunId, RunPrefix, VersionId};
use avfs::vault::checkpoint::Origin;
use avfs::vault::discard::ChangesOf;
use avfs::vault::edit::{Edit, Edits};
use avfs::vault::fork::Deletion;
use avfs::vault::gc::{Keep, Trial};
use avfs::vault::page::Node;
use avfs::vault::run::{DIVERTED_SECONDS, Landed, Landing};
use avfs::vault::tree::{self, Pages};
use avfs::vault::{Vault, audit, content};

pub use crate::support::landing::{Changes, record, run_id};
use crate::support::{self, Scratch, fork, main_fork, path, reference};

pub fn head(vault: &Vault, name: &ForkName) -> VersionId {
    vault.fork(name).unwrap().head
}

fn cat(vault: &Vault, at: &str, file: &str) -> Option<String> {
    let root = support::root(vault, at);
    let reader = vault.read().unwrap();
    let pages: &dyn Pages = &&*reader;
    match tree::lookup(pages, &root, &path(file)).unwrap()? {
        Node::File(file) => {
            let blob = content::fetch(&*reader, file.content.id()).unwrap();
            Some(String::from_utf8(content::decode(blob).unwrap()).unwrap())
        }
        Node::Dir(_) => Some("/".to_owned()),
        Node::Symlink(_) | Node::Fifo(_) => panic!("nobody made one"),
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

fn audit_rows(vault: &Vault) -> Vec<(String, String, String)> {
    let rows = vault.read().unwrap().audit_after(0, 1000).unwrap();
    rows.into_iter().map(|row| (row.action, row.subject, row.detail)).collect()
}

/// A vault with some files on main.
fn furnished(scratch: &Scratch) -> Vault {
    let vault = support::create_vault(&scratch.join("vault.db"));
    for file in ["a/one", "a/two", "b/one", "b/deep/two", "top"] {
        support::write(&vault, file, format!("old {file}").as_bytes());
    }
    vault
}

#[test]
fn a_run_on_a_fork_moves_its_head() {
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
    // Each step has its event; one row, both checkpoints, and the version knows its run.
    let rows = audit_rows(&vault);
    let id = run_id(1);
    let told: Vec<(&str, &str)> =
        rows[before..].iter().map(|(action, _, detail)| (action.as_str(), detail.as_str())).collect();
    let run = format!("run={id}");
    assert_eq!(
        told,
        [
            ("run.request", format!("{run} true").as_str()),
            ("run.decision", &format!("{run} allow")),
            ("run.start", &run),
            ("run.end", &format!("{run} exit=0")),
            ("run.capture", &run),
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
fn a_run_on_a_new_fork_leaves_the_parent_alone() {
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
    // A second run may not take the name, and leaves no trace when it tries.
    let before = audit_rows(&vault);
    let refused = Changes::default().put("new", "m").land(&vault, landing, record(2, &name)).unwrap_err();
    assert_eq!(refused.code(), "fork.exists");
    assert_eq!(audit_rows(&vault), before);
    assert_eq!(vault.run(&RunPrefix::from(&run_id(2))).unwrap_err().code(), "run.not_found");
    support::assert_clean(&vault);
}

#[test]
fn a_run_without_changes_is_one_row() {
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
        let found = reference(&format!("run:{}", run_id(n))).resolve(&*vault.read().unwrap()).unwrap().0;
        assert_eq!(found.id, base, "a run without changes leads to where it began");
    }
    assert_eq!((head(&vault, &main_fork()), vault.forks().unwrap().len()), (base, 1));
    assert_eq!(vault.checkpoints().unwrap().len(), 0);
    assert_eq!(vault.runs(i64::MAX, 100).unwrap().len(), 4);
    support::assert_clean(&vault);
}

#[test]
fn a_run_lands_once() {
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
    // Begun, then kept for later, then captured: each replaces the row.
    assert_eq!(land(1, RunState::Interrupted, &changes).unwrap(), Landed::Nothing);
    assert_eq!(land(1, RunState::Recoverable, &changes).unwrap(), Landed::Nothing);
    let Landed::Advanced { version } = land(1, RunState::Completed, &changes).unwrap() else { panic!() };
    let other = Changes::default().put("y", "y");
    for state in RunState::ALL {
        assert_eq!(land(1, state, &other).unwrap_err().code(), "run.captured_already", "{state:?}");
    }
    assert_eq!(head(&vault, &main_fork()), version);
    // One that failed, or changed nothing, has ended as well.
    land(2, RunState::Failed, &changes).unwrap();
    land(3, RunState::Completed, &Changes::default()).unwrap();
    for n in [2, 3] {
        assert_eq!(land(n, RunState::Completed, &other).unwrap_err().code(), "run.captured_already");
    }
    let runs = vault.runs(i64::MAX, 100).unwrap();
    let told: Vec<(i64, RunState)> = runs.iter().map(|run| (run.seq, run.state)).collect();
    assert_eq!(told, [(3, RunState::Completed), (2, RunState::Failed), (1, RunState::Completed)]);
    support::assert_clean(&vault);
}

#[test]
fn a_fork_that_moved_elsewhere_is_rebased_onto() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    support::write(&vault, "a/two", b"by somebody else");
    support::write(&vault, "a/three", b"new by somebody else");
    let onto = head(&vault, &main_fork());
    // The run touched a neighbour, so the directory's time came along.
    let changes = Changes::default().put("a/one", "by the run").dir("a", 0o755, 42).remove("b/deep");
    let done =
        changes.land(&vault, Landing::Fork { name: &main_fork(), base }, record(1, &main_fork())).unwrap();
    let version = head(&vault, &main_fork());
    assert_eq!(done.landed, Landed::Rebased { version, onto });
    assert_eq!((done.record.version_before, done.record.version_after), (Some(onto), Some(version)));
    for (file, text) in [
        ("a/one", Some("by the run")),
        ("a/two", Some("by somebody else")),
        ("a/three", Some("new by somebody else")),
        ("b/deep", None),
        ("b/one", Some("old b/one")),
    ] {
        assert_eq!(cat(&vault, "main", file).as_deref(), text, "{file}");
    }
    assert_eq!(dir_mode(&vault, "main", "a"), (0o755, 42));
    let (.., detail) = audit_rows(&vault).pop().unwrap();
    assert_eq!(detail, format!("run={} rebased from {}", run_id(1), base.short()));
    // The checkpoint before is the state that the run began with.
    let before = CheckpointName::parse(&format!("before-{}", run_id(1))).unwrap();
    let checkpoint = vault.read().unwrap().checkpoint(&main_fork(), &before).unwrap().unwrap();
    assert_eq!(checkpoint.version, base);
    support::assert_clean(&vault);
}

#[test]
fn changes_that_clash_get_a_fork_of_their_own() {
    let removed = |file: &str| Changes::default().remove(file);
    let cases: Vec<(&str, Changes, &[&str])> = vec![
        ("the same file", Changes::default().put("a/one", "mine"), &["a/one"]),
        ("a file that went", Changes::default().put("b/one", "mine"), &["b", "b/one"]),
        ("a file beneath what went", Changes::default().put("b/deep/new", "mine"), &["b", "b/deep"]),
        ("a directory above what changed", removed("a"), &["a/one"]),
        ("a name that is new on both sides", Changes::default().put("new", "mine"), &["new"]),
    ];
    for (what, changes, clashing) in cases {
        let scratch = Scratch::new();
        let vault = furnished(&scratch);
        let base = head(&vault, &main_fork());
        support::write(&vault, "a/one", b"by somebody else");
        support::write(&vault, "new", b"by somebody else");
        vault.remove(&main_fork(), &[path("b")], avfs::vault::ops::Depth::Recursive, "rm").unwrap();
        let moved = head(&vault, &main_fork());
        let done = changes
            .land(&vault, Landing::Fork { name: &main_fork(), base }, record(1, &main_fork()))
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let Landed::Diverted { fork: name, version, paths } = &done.landed else {
            panic!("{what}: {:?}", done.landed)
        };
        let told: Vec<String> = paths.iter().map(ToString::to_string).collect();
        assert!(clashing.iter().all(|path| told.contains(&(*path).to_owned())), "{what}: {told:?}");
        assert_eq!(name.as_str(), format!("main-{}", run_id(1)));
        assert_eq!(done.record.fork, *name, "the journal says where the changes are");
        assert_eq!(head(&vault, &main_fork()), moved, "{what}: the other side's work is untouched");
        let made = vault.fork(name).unwrap();
        assert_eq!((made.head, made.base, made.parent), (*version, base, Some(main_fork())));
        let Life::Ephemeral { expires_at } = made.life else { panic!("it should expire") };
        assert!(expires_at.0 - made.created_at.0 <= DIVERTED_SECONDS * Timestamp::NANOS_PER_SECOND);
        assert!(expires_at > support::START.plus_seconds(DIVERTED_SECONDS - 1));
        // What the run left is exactly what is on its fork.
        for (at, edit) in &changes.edits {
            let there = cat(&vault, name.as_str(), &at.to_string());
            assert_eq!(there.is_some(), *edit != Edit::Remove, "{what}: {at}");
        }
        support::assert_clean(&vault);
    }
}

#[test]
fn metadata_of_directories_is_merged_or_clashes() {
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
fn a_fork_deleted_during_the_run_costs_nothing() {
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
fn a_checkpoint_name_that_is_taken_gets_a_number() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let taken = CheckpointName::parse(&format!("after-{}", run_id(1))).unwrap();
    let origin = avfs::vault::checkpoint::Origin::ByHand;
    vault.save_checkpoint(&main_fork(), Some(taken.clone()), "mine", origin).unwrap();
    let done = Changes::default()
        .put("y", "y")
        .land(&vault, Landing::Fork { name: &main_fork(), base }, record(1, &main_fork()))
        .unwrap();
    assert_eq!(done.checkpoint_after.unwrap().as_str(), format!("{taken}-2"));
    assert_eq!(done.checkpoint_before.unwrap().as_str(), format!("before-{}", run_id(1)));
}

#[test]
fn runs_are_found_by_their_first_digits() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let ids = ["aabb000001", "aabb000002", "aacc000001"];
    for id in ids {
        let record = RunRecord { id: RunId::parse(id).unwrap(), ..record(0, &main_fork()) };
        let base = head(&vault, &main_fork());
        let landing = Landing::Fork { name: &main_fork(), base };
        Changes::default().put(id, id).land(&vault, landing, record).unwrap();
    }
    let find = |text: &str| vault.run(&RunPrefix::parse(text).unwrap());
    assert_eq!(find("aacc").unwrap().id.as_str(), "aacc000001");
    assert_eq!(find("run:AABB000002").unwrap().id.as_str(), "aabb000002");
    let refused = find("aabb").unwrap_err();
    assert_eq!(refused.code(), "ref.ambiguous");
    assert!(refused.to_string().contains("aabb000001, aabb000002"), "{refused}");
    assert_eq!(find("aaaa").unwrap_err().code(), "run.not_found");
    let resolve =
        |text: &str| reference(text).resolve(&*vault.read().unwrap()).map(|(version, _)| version.id);
    assert_eq!(resolve("run:aacc").unwrap(), head(&vault, &main_fork()));
    assert_eq!(resolve("run:aacc~1").unwrap(), resolve("run:aabb000002").unwrap());
    assert_eq!(resolve("run:aabb").unwrap_err().code(), "ref.ambiguous");
    assert_eq!(resolve("run:aaaa").unwrap_err().code(), "ref.unknown");
    assert_eq!(resolve("run:aa").unwrap_err().code(), "ref.unknown");
    let listed = |before, limit| -> Vec<String> {
        vault.runs(before, limit).unwrap().into_iter().map(|run| run.id.to_string()).collect()
    };
    assert_eq!(listed(i64::MAX, 2), ["aacc000001", "aabb000002"]);
    assert_eq!(listed(2, 5), ["aabb000001"]);
    assert_eq!(vault.runs_of_fork(&main_fork(), 3, 5).unwrap().len(), 2);
    assert_eq!(vault.runs_of_fork(&fork("other"), 3, 5).unwrap().len(), 0);
}

#[test]
fn versions_of_runs_live_as_their_forks_do() {
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
    // The row stays and says so; a fork of the same name does not make it a lie.
    let resolve = || reference("run:0100").resolve(&*vault.read().unwrap()).map(|(version, _)| version.id);
    assert_eq!(resolve().unwrap_err().code(), "run.no_version");
    support::assert_clean(&vault);
    vault.create_fork(&name, &reference("main"), Life::Persistent).unwrap();
    support::assert_clean(&vault);
    // It is not captured again either.
    let again = Changes::default().put("new", "n").land(&vault, Landing::RecordOnly, record(1, &name));
    assert_eq!(again.unwrap_err().code(), "run.captured_already");
    // But a version that is missing without a reason is found.
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
    assert_eq!(findings, [format!("version {} of run {} is missing", version.short(), run_id(2))]);
}

fn findings(vault: &Vault) -> Vec<String> {
    let report =
        vault.fsck(avfs::vault::fsck::Thoroughness::Full, &avfs::vault::meter::Meter::default()).unwrap();
    report.findings.into_iter().map(|finding| finding.what).collect()
}

#[test]
fn an_edited_journal_is_found() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = furnished(&scratch);
    for n in 1..=3 {
        let base = head(&vault, &main_fork());
        let landing = Landing::Fork { name: &main_fork(), base };
        Changes::default().put("x", &n.to_string()).land(&vault, landing, record(n, &main_fork())).unwrap();
    }
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    support::assert_clean(&vault);
    drop(vault);
    let sql = support::sql(&file);
    sql.execute("UPDATE run SET request = '{' WHERE seq = 1", []).unwrap();
    sql.execute(
        "UPDATE run SET version_after = (SELECT version_after FROM run WHERE seq = 3) WHERE seq = 2",
        [],
    )
    .unwrap();
    let found = findings(&support::open_vault(&file));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|what| what.contains("the request of run") && what.contains("is not JSON")));
    assert!(found.iter().any(|what| what.contains("is not what was written there")), "{found:?}");
    assert!(found.iter().any(|what| what.contains("is not that of run 0200000002")), "{found:?}");
    sql.execute("UPDATE run SET id = 'ZZZZZZZZZZ' WHERE seq = 3", []).unwrap();
    let found = findings(&support::open_vault(&file));
    assert!(found.iter().any(|what| what.contains("a row of the journal cannot be read")), "{found:?}");
    for wrong in ["state = 'done'", "version_after = x'00'", "id = 'short'"] {
        assert!(sql.execute(&format!("UPDATE run SET {wrong} WHERE seq = 1"), []).is_err(), "{wrong}");
    }
}

#[test]
fn marks_are_kept_in_the_journal() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let base = head(&vault, &main_fork());
    let landing = Landing::Fork { name: &main_fork(), base };
    Changes::default().put("x", "x").land(&vault, landing, record(1, &main_fork())).unwrap();
    vault.mark_applied(&main_fork(), &[run_id(1)], "paths=1").unwrap();
    let run = vault.run(&RunPrefix::from(&run_id(1))).unwrap();
    assert!(run.applied_at.is_some() && run.discarded_at.is_none());
    let (action, subject, detail) = audit_rows(&vault).pop().unwrap();
    assert_eq!((action.as_str(), subject.as_str()), ("run.apply", "main"));
    assert_eq!(detail, format!("run={} paths=1", run_id(1)));
    assert_eq!(vault.mark_applied(&main_fork(), &[run_id(9)], "").unwrap_err().code(), "run.not_found");
    assert_eq!(audit::verify(&*vault.read().unwrap(), None).unwrap().problems, []);
}

#[test]
fn discarding_takes_the_fork_of_a_run_and_no_other() {
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
    // Both ways lead there, once.
    assert_eq!(code(&run(1)), Ok(()));
    assert!(vault.fork(&name).is_err());
    assert!(vault.run(&RunPrefix::from(&run_id(1))).unwrap().discarded_at.is_some());
    assert_eq!(code(&run(1)), Err("run.no_version"));
    assert_eq!(code("run-x"), Err("fork.not_found"));
    let second = land_new(2);
    let discarded = vault.discard(&ChangesOf::Fork(name.clone())).unwrap();
    // The run of the fork that had the name before is not discarded again.
    let ids: Vec<RunId> = discarded.runs.iter().map(|run| run.id.clone()).collect();
    assert_eq!((ids, discarded.fork.unwrap().head), (vec![run_id(2)], second.landed.version().unwrap()));
    let (action, subject, detail) = audit_rows(&vault).pop().unwrap();
    assert_eq!((action.as_str(), subject.as_str()), ("run.discard", "run-x"));
    assert_eq!(detail, format!("run={}", run_id(2)));
    // What is there to stay, moved on, or was never made, is refused.
    let landing_on_main = Landing::Fork { name: &main_fork(), base };
    Changes::default().put("x", "x").land(&vault, landing_on_main, record(3, &main_fork())).unwrap();
    assert_eq!(code("main"), Err("fork.persistent"));
    assert_eq!(code(&run(3)), Err("fork.persistent"));
    land_new(4);
    vault.write_file(&name, &path("more"), &b"by hand"[..], None, "w").unwrap();
    assert_eq!(code(&run(4)), Err("fork.moved"));
    let origin = avfs::vault::checkpoint::Origin::ByHand;
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

#[test]
fn the_oldest_automatic_checkpoints_of_a_fork_go() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let (main, side) = (main_fork(), fork("side"));
    let mine = CheckpointName::parse("mine").unwrap();
    vault.save_checkpoint(&main, Some(mine.clone()), "", Origin::ByHand).unwrap();
    vault.create_fork(&side, &reference("main"), Life::Persistent).unwrap();
    let other = CheckpointName::parse("other").unwrap();
    vault.save_checkpoint(&side, Some(other.clone()), "", Origin::Automatic).unwrap();
    // Each saves two.
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
    assert_eq!(kept[1], format!("before-{}", run_id(6)), "the oldest went first");
    assert_eq!(kept[50], format!("after-{}", run_id(30)));
    assert_eq!(names(&side), ["other"]);
    let told = audit_rows(&vault);
    let (_, _, detail) = told.last().unwrap();
    assert!(detail.ends_with(" checkpoints_retired=2"), "{detail}");
    // A run without changes saves none, and so none goes.
    Changes::default().land(&vault, Landing::RecordOnly, record(31, &main)).unwrap();
    assert_eq!(names(&main), kept);
    support::assert_clean(&vault);
}

#[test]
fn a_fork_of_a_run_can_be_kept_under_a_name() {
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
    // Once it is deleted nothing of it is missing.
    vault.delete_fork(&best, Deletion::Forced).unwrap();
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}

#[test]
fn a_recording_holds_what_lands_between_its_marks() {
    let scratch = Scratch::new();
    let vault = furnished(&scratch);
    let land = |n: u8, name: &ForkName| {
        let nothing = RunRecord { version_before: Some(head(&vault, &main_fork())), ..record(n, name) };
        Changes::default().land(&vault, Landing::RecordOnly, nothing).unwrap().record
    };
    let (main, side) = (main_fork(), fork("side"));
    let before = land(1, &main);
    let all = vault.start_recording(None, None).unwrap();
    let of_side = vault.start_recording(None, Some(&side)).unwrap();
    assert_eq!((all.name.as_str(), of_side.name.as_str()), ("recording-1", "recording-2"));
    assert!(vault.is_recorded(&main).unwrap());
    let (on_main, on_side) = (land(2, &main), land(3, &side));
    let all = vault.stop_recording(Some(&all.name)).unwrap();
    assert!(vault.is_recorded(&side).unwrap() && !vault.is_recorded(&main).unwrap());
    let after = land(4, &side);
    let held = |recording: &avfs::backend::RecordingRecord| {
        [&before, &on_main, &on_side, &after].map(|run| recording.holds(run))
    };
    assert_eq!(held(&all), [false, true, true, false]);
    assert_eq!(held(&of_side), [false, false, true, true]);
    // The journal from the front, in pieces.
    let ids = |runs: Vec<RunRecord>| runs.into_iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(vault.runs_after(before.seq, 2).unwrap()), [on_main.id, on_side.id.clone()]);
    assert_eq!(ids(vault.runs_of_fork_after(&side, 0, 9).unwrap()), [on_side.id, after.id]);
    assert_eq!(vault.stop_recording(None).unwrap().name, of_side.name);
    assert_eq!(vault.stop_recording(None).unwrap_err().code(), "recording.none_open");
    vault.delete_recording(&all.name).unwrap();
    assert_eq!(vault.recordings().unwrap().len(), 1);
    // A name that is free is taken again.
    assert_eq!(vault.start_recording(None, None).unwrap().name, all.name);
    support::assert_clean(&vault);
}
