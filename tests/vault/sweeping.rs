//! Deletion: expired forks, pruned versions, and objects that nothing refers to any more.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use avfs_types::clock::Timestamp;
use avfs_types::ids::CheckpointName;
use avfs_vault::VaultError;
use avfs_vault::backend::Life;
use avfs_vault::backend::sqlite::sibling;
use avfs_vault::checkpoint::Origin;
use avfs_vault::fork::Deletion;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::version::History;

use crate::support;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;
use crate::support::{Scratch, fork, main_fork, path, reference, snapshot};
use crate::worker::Worker;

fn file_bytes(path: &Path) -> u64 {
    [path.to_owned(), sibling(path, "-wal")]
        .iter()
        .filter_map(|path| Some(fs::metadata(path).ok()?.len()))
        .sum()
}

#[test]
fn deleting_a_fork_and_sweeping_frees_space() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    support::write(&vault, "kept", &support::noise(1, 500_000));
    vault.gc(&|_| {}).unwrap();
    let small = file_bytes(&file);
    vault.create_fork(&fork("side"), &reference("main"), Life::Persistent).unwrap();
    for n in 0..4 {
        let content = support::noise(10 + n, 5 << 20);
        vault.write_file(&fork("side"), &path(&format!("f{n}")), content.as_slice(), None, "w").unwrap();
    }
    let large = file_bytes(&file);
    assert!(large > small + (20 << 20));
    vault.delete_fork(&fork("side"), Deletion::Careful).unwrap();
    let swept = vault.gc(&|_| {}).unwrap();
    assert!(swept.versions >= 4 && swept.blobs > 100, "{swept:?}");
    let after = file_bytes(&file);
    assert!(after < small + (1 << 20), "{small} bytes grew to {large} and shrank only to {after}");
    support::assert_clean(&vault);
    support::export(&vault, "main", &scratch.join("out"));
    assert!(fs::read(scratch.join("out/kept")).unwrap() == support::noise(1, 500_000));
}

/// A vault with many files, a fork that changes two of them, and the counts that a sweep saved.
fn swept_vault(scratch: &Scratch) -> (avfs_vault::Vault, std::path::PathBuf) {
    let dir = scratch.dir("dir");
    support::many_files(&dir, 600);
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    vault.create_fork(&fork("side"), &reference("main"), Life::Persistent).unwrap();
    let chunked = support::noise(5, 3 << 20);
    vault.write_file(&fork("side"), &path("d003/large"), chunked.as_slice(), None, "w").unwrap();
    vault.write_file(&fork("side"), &path("d003/f00120"), &b"new"[..], None, "w").unwrap();
    // The same content as on main: it must outlive the fork.
    vault.write_file(&fork("side"), &path("copy"), &b"file 0\n"[..], None, "w").unwrap();
    let counts = scratch.join("counts");
    assert_eq!(vault.gc_since(Some(&counts), &|_| {}).unwrap(), avfs_vault::gc::Swept::default());
    (vault, counts)
}

/// Damages a page and a blob that main needs: a sweep that counts every reference fails.
fn damage_main(scratch: &Scratch) {
    let sql = support::sql(&scratch.join("vault.db"));
    assert_eq!(sql.execute("UPDATE tree SET data = x'00' WHERE id = 2", []).unwrap(), 1);
}

#[test]
fn sweep_with_saved_counts_reads_only_what_changed() {
    let scratch = Scratch::new();
    let (vault, counts) = swept_vault(&scratch);
    let trees_before = vault.read().unwrap().usage().unwrap().trees;
    damage_main(&scratch);
    vault.delete_fork(&fork("side"), Deletion::Forced).unwrap();
    let examined = std::cell::Cell::new(0);
    let swept = vault.gc_since(Some(&counts), &|count| examined.set(count)).unwrap();
    // The large file, its chunks and chunk list, and the changed file.
    assert!(swept.versions == 3 && swept.trees >= 4 && swept.blobs > 20, "{swept:?}");
    assert_eq!(examined.get(), swept.trees + swept.blobs, "objects that are still in use were examined");
    assert_eq!(vault.read().unwrap().usage().unwrap().trees, trees_before - swept.trees);
    assert!(vault.gc(&|_| {}).is_err(), "the damage is not where a full sweep looks");
}

#[test]
fn sweep_with_saved_counts_frees_the_same_as_a_full_sweep() {
    let scratch = Scratch::new();
    let (vault, counts) = swept_vault(&scratch);
    // New content on main, some of it the same as on the fork that is deleted.
    let large = support::noise(5, 3 << 20);
    vault.write_file(&main_fork(), &path("kept"), &large[..2 << 20], None, "w").unwrap();
    vault.delete_fork(&fork("side"), Deletion::Forced).unwrap();
    assert!(vault.gc_since(Some(&counts), &|_| {}).unwrap().blobs > 4);
    support::assert_clean(&vault);
    // A version is pruned, and objects are stored that nothing refers to.
    support::write(&vault, "kept", b"short");
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    let mut writer = vault.backend().write().unwrap();
    let stray = support::noise(9, 1000);
    let stray = avfs_vault::content::encode(avfs_vault::content::id_of(&stray), stray);
    writer.put_blobs(&[stray]).unwrap();
    writer.commit(avfs_vault::backend::Durability::Synced).unwrap();
    assert!(vault.gc_since(Some(&counts), &|_| {}).unwrap().blobs > 10);
    support::assert_clean(&vault);
    assert_eq!(vault.gc(&|_| {}).unwrap(), avfs_vault::gc::Swept::default(), "something was left");
}

/// Counts that cannot be used cost time only.
#[test]
fn sweep_without_usable_counts_counts_everything() {
    type Spoil = fn(&Scratch, &Path);
    let spoil: [(&str, Spoil); 4] = [
        ("missing", |_, counts| fs::remove_file(counts).unwrap()),
        ("damaged", |_, counts| {
            let mut bytes = fs::read(counts).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(counts, bytes).unwrap();
        }),
        ("cut", |_, counts| fs::write(counts, &fs::read(counts).unwrap()[..100]).unwrap()),
        ("of another vault", |scratch, counts| {
            let other = support::create_vault(&scratch.join("other.db"));
            other.gc_since(Some(counts), &|_| {}).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        let scratch = Scratch::new();
        let (vault, counts) = swept_vault(&scratch);
        vault.delete_fork(&fork("side"), Deletion::Forced).unwrap();
        spoil(&scratch, &counts);
        assert!(vault.gc_since(Some(&counts), &|_| {}).unwrap().blobs > 20, "{what}");
        support::assert_clean(&vault);
        assert_eq!(vault.gc(&|_| {}).unwrap(), avfs_vault::gc::Swept::default(), "{what}");
    }
}

/// Another program sweeps without the counts; then content returns that the counts still have.
#[test]
fn saved_counts_stay_correct_after_a_sweep_without_them() {
    let scratch = Scratch::new();
    let (vault, counts) = swept_vault(&scratch);
    let large = support::noise(5, 3 << 20);
    vault.delete_fork(&fork("side"), Deletion::Forced).unwrap();
    assert!(vault.gc(&|_| {}).unwrap().blobs > 20);
    vault.write_file(&main_fork(), &path("d003/large"), large.as_slice(), None, "w").unwrap();
    assert_eq!(vault.gc_since(Some(&counts), &|_| {}).unwrap(), avfs_vault::gc::Swept::default());
    support::assert_clean(&vault);
    vault.gc_since(Some(&counts), &|_| {}).unwrap();
    assert_eq!(vault.gc(&|_| {}).unwrap(), avfs_vault::gc::Swept::default());
    support::export(&vault, "main", &scratch.join("out"));
    assert!(fs::read(scratch.join("out/d003/large")).unwrap() == large);
}

#[test]
fn forks_expire() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let day = |seconds| Life::Ephemeral { expires_at: support::START.plus_seconds(seconds) };
    vault.create_fork(&fork("past"), &reference("main"), day(-1)).unwrap();
    vault.create_fork(&fork("future"), &reference("main"), day(3600)).unwrap();
    assert_eq!(vault.gc(&|_| {}).unwrap().forks, 1);
    let names: Vec<String> = vault.forks().unwrap().iter().map(|fork| fork.name.to_string()).collect();
    assert_eq!(names, ["main", "future"]);
}

#[test]
fn prune_deletes_files_and_keeps_the_record() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(support::write(&vault, "f", &support::noise(n, 200_000)).version.id);
        if n == 3 {
            let name = CheckpointName::parse("pinned").unwrap();
            vault.save_checkpoint(&main_fork(), Some(name), "", Origin::ByHand).unwrap();
        }
    }
    let keep = Keep { last: Some(2), since: None };
    let dry = vault.prune(&keep, None, Trial::DryRun).unwrap();
    let pruned = vault.prune(&keep, None, Trial::Real).unwrap();
    assert_eq!(dry, pruned);
    // Ten and the empty first one; the last two and the pinned one stay.
    assert_eq!(pruned.versions.len(), 8);
    let swept = vault.gc(&|_| {}).unwrap();
    assert_eq!(swept.versions, 0, "records stay");
    assert!(swept.blobs >= 7);
    support::assert_clean(&vault);
    let reader = vault.read().unwrap();
    let history: Vec<_> = History::new(&*reader, ids[9]).map(|version| version.unwrap()).collect();
    assert_eq!(history.len(), 11);
    let kept: HashSet<_> = history.iter().filter(|v| v.pruned_at.is_none()).map(|v| v.id).collect();
    assert_eq!(kept, HashSet::from([ids[9], ids[8], ids[3]]));
    drop(reader);
    let refused = vault.restore(&main_fork(), &reference("main~3"), None);
    assert!(matches!(refused, Err(VaultError::Pruned { .. })), "{refused:?}");
    vault.restore(&main_fork(), &reference("main@pinned"), None).unwrap();
    support::export(&vault, "main", &scratch.join("out"));
    assert!(fs::read(scratch.join("out/f")).unwrap() == support::noise(3, 200_000));
    // Nothing is older than the time limit.
    let since = Keep { last: None, since: Some(Timestamp(0)) };
    assert_eq!(vault.prune(&since, None, Trial::Real).unwrap().versions, []);
}

/// Content that has just become garbage is used again while it is swept: any new version must have it.
#[test]
fn sweep_keeps_objects_that_a_new_version_uses() {
    let scratch = Scratch::new();
    let (dir, file) = (scratch.dir("dir"), scratch.join("vault.db"));
    support::many_files(&dir, 12);
    fs::write(dir.join("large"), support::noise(4, 3 << 19)).unwrap();
    let vault = support::create_real_vault(&file);
    let settings = [("VAULT", file.to_str().unwrap()), ("DIR", dir.to_str().unwrap())];
    let counts = scratch.join("counts");
    let settings_with_counts = [settings[0], settings[1], ("COUNTS", counts.to_str().unwrap())];
    // Leaves all imported content as garbage; with `counts`, as garbage that the last sweep has counted.
    let make_garbage = |counts: Option<&Path>| {
        support::import(&vault, &dir);
        if counts.is_some() {
            vault.gc_since(counts, &|_| {}).unwrap();
        }
        let everything = [path("d000"), path("large")];
        vault.remove(&main_fork(), &everything, avfs_vault::ops::Depth::Recursive, "rm").unwrap();
        vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    };
    let assert_imported = |what: &str| {
        let out = tempfile::tempdir_in(scratch.path()).unwrap();
        support::assert_clean(&vault);
        support::export(&vault, "main", &out.path().join(what));
        snapshot::assert_same(&dir, &out.path().join(what));
    };
    let start_with = |settings: &[(&str, &str)], role: &str, point: Option<&str>| {
        let pauses = Pauses::new(scratch.path());
        point.iter().for_each(|point| {
            pauses.hold(point);
        });
        let mut worker = Worker::paused(&pauses, role, settings);
        point.iter().for_each(|point| pauses.wait(point, &mut worker.child));
        (pauses, worker)
    };
    let start = |role: &str, point: Option<&str>| start_with(&settings, role, point);
    // An import starts during a sweep.
    let points = ["marked", "sweep#1", "sweep#2", "sweep#3", "sweep#4"];
    let without = points.map(|point| (None, &settings[..], point));
    // One step deletes what the counts had, and one for each kind looks for more.
    let with = [0, 1, 2, 3].map(|n| (Some(&*counts), &settings_with_counts[..], points[n]));
    for (counts, settings, point) in without.into_iter().chain(with) {
        make_garbage(counts);
        let (pauses, sweep) = start_with(settings, "sweep", Some(point));
        let (_, import) = start("scan", None);
        wait_for("the import waits", || import.waits_for_lock());
        pauses.release(point);
        let swept = sweep.finish().acks().remove(0);
        assert!(!swept.ends_with("blobs=0"), "{point}: {swept}");
        assert_eq!(import.finish().acks().len(), 1, "{point}");
        assert_imported(point);
    }
    // A sweep starts during an import that relies on, or has stored, blobs that no version refers to.
    for (point, stores) in
        [("scan-dir#2", false), ("commit#1", false), ("committed#1", true), ("commit#2", true)]
    {
        make_garbage(None);
        if stores {
            vault.gc(&|_| {}).unwrap();
        }
        let (pauses, import) = start("scan", Some(point));
        let (sweeping, sweep) = start("sweep", None);
        wait_for("the sweep waits", || sweeping.reached().iter().any(|point| point == "sweep-gate"));
        pauses.release(point);
        assert_eq!(import.finish().acks().len(), 1, "{point}");
        assert_eq!(sweep.finish().acks().len(), 1, "{point}");
        assert_imported(point);
    }
    // A version that no fork referred to when the sweep marked the objects in use.
    let id = vault.fork(&main_fork()).unwrap().head;
    vault.create_fork(&fork("side"), &reference("main"), Life::Persistent).unwrap();
    let version = vault.write_file(&fork("side"), &path("new"), &b"new"[..], None, "w").unwrap().version.id;
    vault.delete_fork(&fork("side"), Deletion::Forced).unwrap();
    let (pauses, sweep) = start("sweep", Some("marked"));
    vault.create_fork(&fork("again"), &reference(&version.to_hex()), Life::Persistent).unwrap();
    pauses.release("marked");
    sweep.finish();
    assert_eq!(vault.fork(&main_fork()).unwrap().head, id);
    support::export(&vault, "again", &scratch.join("again"));
    assert_eq!(fs::read(scratch.join("again/new")).unwrap(), b"new");
    support::assert_clean(&vault);
}

/// Another tool has turned off incremental vacuum: a sweep still ends.
#[test]
fn sweep_ends_without_incremental_vacuum() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    drop(support::create_vault(&file));
    support::sql(&file)
        .execute_batch(
            "PRAGMA journal_mode=DELETE; PRAGMA auto_vacuum=NONE; VACUUM; PRAGMA journal_mode=WAL;",
        )
        .unwrap();
    let vault = support::open_vault(&file);
    support::write(&vault, "f", &support::noise(1, 2 << 20));
    support::write(&vault, "f", b"short");
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    assert!(vault.gc(&|_| {}).unwrap().blobs > 10);
    support::assert_clean(&vault);
}

#[test]
fn versions_in_use_are_neither_pruned_nor_swept() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    let old = support::write(&vault, "f", b"old").version;
    support::write(&vault, "f", b"new");
    let gone = avfs_types::ids::VersionId([7; 32]);
    let (id, keep) = (old.id, Keep { last: Some(1), since: None });
    let vault = vault.sparing(move || Ok(vec![id, gone]));
    vault.prune(&keep, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    support::export(&vault, &old.id.to_hex(), &scratch.join("out"));
    assert_eq!(fs::read(scratch.join("out/f")).unwrap(), b"old");
    drop(vault);
    let vault = support::open_vault(&file);
    assert_eq!(vault.prune(&keep, None, Trial::Real).unwrap().versions, [old.id]);
}

/// The changes of a fork are listed and applied relative to its base, however old the base is.
#[test]
fn prune_keeps_the_bases_of_forks() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let base = support::write(&vault, "f", b"0").version.id;
    vault.create_fork(&fork("kept"), &reference("main"), Life::Persistent).unwrap();
    support::write(&vault, "f", b"1");
    support::write(&vault, "f", b"2");
    let one = Keep { last: Some(1), since: None };
    let pruned = vault.prune(&one, None, Trial::Real).unwrap().versions;
    assert!(pruned.len() == 2 && !pruned.contains(&base), "{pruned:?}");
    vault.delete_fork(&fork("kept"), Deletion::Careful).unwrap();
    assert_eq!(vault.prune(&one, None, Trial::Real).unwrap().versions, [base]);
}

/// A joined version whose own fork is deleted is as old as the join makes it.
#[test]
fn versions_reachable_only_through_a_join_are_pruned() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::write(&vault, "f", b"0");
    vault.create_fork(&fork("side"), &reference("main"), Life::Persistent).unwrap();
    let write = |on: &str, text: &[u8]| {
        vault.write_file(&fork(on), &path(on), text, None, "write").unwrap().version.id
    };
    let (one, other) = (write("side", b"1"), write("side", b"2"));
    let main = write("main", b"1");
    vault.join(&fork("both"), &[main, other], Life::Persistent).unwrap();
    vault.delete_fork(&fork("side"), Deletion::Careful).unwrap();
    let last = Keep { last: Some(1), since: None };
    write("both", b"3");
    write("both", b"4");
    let pruned = vault.prune(&last, None, Trial::Real).unwrap().versions;
    assert!(pruned.contains(&one) && pruned.contains(&other), "{pruned:?}");
    support::assert_clean(&vault);
}

/// Their pins always overlap; the sweep still gets its turn.
#[test]
fn sweep_is_not_starved_by_many_pins() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_real_vault(&file);
    support::write(&vault, "kept", b"kept");
    let done = AtomicBool::new(false);
    let started = std::sync::Barrier::new(49);
    std::thread::scope(|scope| {
        let _end = support::RaiseOnDrop(&done);
        for _ in 0..48 {
            scope.spawn(|| {
                let vault = support::open_vault(&file);
                drop(vault.backend().pin().unwrap());
                started.wait();
                while !done.load(Ordering::Relaxed) {
                    drop(vault.backend().pin().unwrap());
                }
            });
        }
        started.wait();
        vault.gc(&|_| {}).unwrap();
    });
    support::assert_clean(&vault);
}
