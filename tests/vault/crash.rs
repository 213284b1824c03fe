//! kill -9 at any moment: acknowledged versions exist, everything is intact, leftovers are removed.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use avfs_vault::Vault;
use avfs_vault::import::OnTrouble;
use avfs_vault::materialize::{BaseCache, Built, Trust};
use avfs_vault::meter::Meter;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::version::History;

use crate::support;
use crate::support::pause::Pauses;
use crate::support::{Scratch, snapshot, wait};
use crate::worker::{BOOT, Worker, kill_at_points, moments};

/// The number of kills of each test.
fn kills() -> usize {
    support::usual_or_long(16, 200)
}

fn history(vault: &Vault, fork: &str) -> HashSet<String> {
    let reader = vault.read().unwrap();
    let head = vault.fork(&support::fork(fork)).unwrap().head;
    History::new(&*reader, head).map(|version| version.unwrap().id.to_hex()).collect()
}

#[track_caller]
fn assert_all_there(vault: &Vault, fork: &str, acks: &[String]) {
    let history = history(vault, fork);
    let lost: Vec<&String> = acks.iter().filter(|id| !history.contains(*id)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged versions are lost: {lost:?}", lost.len(), acks.len());
}

/// One writer dies while it holds the write lock and another waits for that lock.
#[test]
fn killed_writers_lose_no_acknowledged_version() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    drop(support::create_real_vault(&path));
    let settings = |name: &'static str| {
        [("VAULT", path.to_str().unwrap()), ("FORK", "main"), ("NAME", name), ("ROUNDS", "3")]
    };
    let mut acks = Vec::new();
    for point in ["write-begun#2", "commit#2", "committed#2"] {
        let pauses = Pauses::new(scratch.path());
        pauses.hold(point);
        let mut dies = Worker::paused(&pauses, "write", &settings("one"));
        pauses.wait(point, &mut dies.child);
        let mut lives = Worker::start("write", &settings("two"));
        lives.go();
        wait::wait_for("the other writer waits", || lives.waits_for_lock());
        let promised = dies.kill().acks();
        assert_eq!(promised.len(), 1, "{point}");
        acks.extend(promised);
        let promised = lives.finish().acks();
        assert_eq!(promised.len(), 3, "{point}");
        acks.extend(promised);
        let vault = support::open_vault(&path);
        assert_all_there(&vault, "main", &acks);
        support::assert_clean(&vault);
    }
}

/// The system calls by which SQLite changes the vault file and its log, including those on the last close.
const CALLS: &str = "pwrite64,fdatasync,fsync,ftruncate,?unlink,unlinkat";

#[test]
fn writer_killed_at_any_system_call_loses_no_acknowledged_version() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    support::write(&vault, "before", b"1");
    drop(vault);
    let settings = [("VAULT", path.to_str().unwrap()), ("FORK", "main"), ("NAME", "one"), ("ROUNDS", "3")];
    let write = |trace: &Path, options: &[String]| {
        let mut traced = Command::new("strace");
        traced.args(["-f", "-e", &format!("trace={CALLS}"), "-o"]).arg(trace).args(options);
        traced.arg(std::env::current_exe().unwrap());
        let mut worker = Worker::start_as(traced, "write", &settings);
        worker.go();
        worker.end()
    };
    let (trace, mut acks) = (scratch.join("trace"), Vec::new());
    // The first run adds the files; the second makes as many calls as the runs that are killed.
    for _ in 0..2 {
        let (status, whole) = write(&trace, &[]);
        assert!(status.success() && whole.acks().len() == 3, "{status}: {whole:?}");
        acks.extend(whole.acks());
    }
    // strace counts the calls per thread; a single thread makes all of these.
    let trace = std::fs::read_to_string(&trace).unwrap();
    let thread = trace.split(' ').next().unwrap();
    let calls = trace.lines().filter_map(|line| line.strip_prefix(thread)?.trim_start().split_once('('));
    let calls: Vec<String> = calls.map(|(name, _)| name.to_owned()).collect();
    assert!(calls.len() > 40, "{trace}");
    let mut kept = HashSet::new();
    for moment in moments(&calls, kills()) {
        let (call, number) = moment.split_once('#').unwrap();
        let inject = format!("inject={call}:signal=KILL:when={number}");
        let (status, said) = write(&scratch.join("killed"), &["-e".to_owned(), inject]);
        assert_eq!(status.signal(), Some(9), "{moment} was not reached: {said:?}");
        kept.insert(said.acks().len());
        acks.extend(said.acks());
        let vault = support::open_vault(&path);
        assert_all_there(&vault, "main", &acks);
        support::assert_clean(&vault);
    }
    // Closing a vault makes hardly any calls.
    assert!(
        kept.is_superset(&HashSet::from([0, 1, 2])),
        "expected kills before and between the commits: {kept:?}"
    );
}

#[test]
fn killed_imports_leave_vault_and_stat_cache_intact() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.join("stat-cache"));
    drop(support::create_real_vault(&path));
    let settings = [
        ("VAULT", path.to_str().unwrap()),
        ("DIR", dir.to_str().unwrap()),
        ("CACHE", cache.to_str().unwrap()),
    ];
    let acks = kill_at_points(&scratch, kills(), "import", &settings, |_| {});
    let vault = support::open_vault(&path);
    assert_all_there(&vault, "main", &acks);
    support::assert_clean(&vault);
    // The cache of a killed import must not hide changes since the last successful one.
    support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
    support::assert_clean(&vault);
}

#[test]
fn killed_sweep_deletes_no_object_in_use() {
    let scratch = Scratch::new();
    let (path, dir) = (scratch.join("vault.db"), scratch.dir("dir"));
    support::many_files(&dir, 40);
    std::fs::write(dir.join("large"), support::noise(5, 3 << 19)).unwrap();
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    drop(vault);
    let counts = scratch.join("counts");
    for settings in [&[("VAULT", &path)][..], &[("VAULT", &path), ("COUNTS", &counts)]] {
        let settings: Vec<_> = settings.iter().map(|(name, path)| (*name, path.to_str().unwrap())).collect();
        kill_at_points(&scratch, kills(), "gc", &settings, |moment| {
            let vault = support::open_vault(&path);
            let report = vault.fsck(avfs_vault::fsck::Thoroughness::Quick, &Meter::default()).unwrap();
            assert_eq!(report.findings, [], "killed at {moment}");
        });
    }
    assert!(counts.exists());
    let vault = support::open_vault(&path);
    support::assert_clean(&vault);
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
    for fork in vault.forks().unwrap().iter().filter(|fork| fork.name.as_str() != "main") {
        vault.delete_fork(&fork.name, avfs_vault::fork::Deletion::Forced).unwrap();
    }
    vault.gc_since(Some(&counts), &|_| {}).unwrap();
    support::assert_clean(&vault);
    assert_eq!(vault.gc(&|_| {}).unwrap(), avfs_vault::gc::Swept::default(), "the counts hid garbage");
    let usage = vault.read().unwrap().usage().unwrap();
    assert!(usage.file_bytes < 3 << 20, "garbage of killed sweeps was not removed: {usage:?}");
}

fn names(dir: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(dir).into_iter().flatten();
    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn killed_export_leaves_no_partial_output() {
    let scratch = Scratch::new();
    let (path, dir, dest) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("dest"));
    let cache = scratch.dir("cache");
    support::many_files(&dir, 60);
    std::fs::write(dir.join("large"), support::noise(5, 3 << 19)).unwrap();
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    let settings = [
        ("VAULT", path.to_str().unwrap()),
        ("DEST", dest.to_str().unwrap()),
        ("CACHE", cache.to_str().unwrap()),
    ];
    let acks = kill_at_points(&scratch, kills(), "export", &settings, |moment| {
        // Each export removes the leftovers of the killed ones before it.
        let found = names(&dest);
        let is_out = |name: &&String| name.starts_with("out-");
        assert_eq!(found.iter().filter(is_out).count(), 1, "killed at {moment}: {found:?}");
        assert_eq!(found.iter().filter(|name| !is_out(name)).count(), 1, "killed at {moment}: {found:?}");
    });
    assert_eq!(acks.len(), 1, "only the export that was not killed finishes");
    snapshot::assert_same(&dir, Path::new(&acks[0]));
    support::export(&vault.noting(Unfinished::new(&cache)), "main", &dest.join("out-last"));
    assert!(names(&dest).iter().all(|name| name.starts_with("out-")), "the next export removed nothing");
    snapshot::assert_same(&dir, &dest.join("out-last"));
}

#[test]
fn killed_build_leaves_a_complete_base_or_no_base() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("cache"));
    support::many_files(&dir, 60);
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    let settings = [("VAULT", path.to_str().unwrap()), ("CACHE", cache.to_str().unwrap()), ("EVICT", "yes")];
    let original = snapshot::take(&dir);
    let bases = BaseCache::new(&cache, BOOT);
    let (mut whole, mut absent) = (0, 0);
    kill_at_points(&scratch, kills(), "materialize", &settings, |moment| {
        let found = names(&cache.join("base"));
        let built: Vec<&String> = found.iter().filter(|name| !name.starts_with('.')).collect();
        for base in &built {
            let base = cache.join("base").join(base);
            assert!(base.join("sealed").is_file(), "{moment}: a base is visible without its seal");
            let differences = snapshot::differences(&original, &snapshot::take(&base.join("root")));
            assert!(differences.is_empty(), "{moment}: a visible base is incomplete: {differences:#?}");
        }
        if built.is_empty() {
            absent += 1
        } else {
            whole += 1
        }
        // Each starts with an empty cache.
        bases.evict(0).unwrap();
        assert_eq!(
            names(&cache.join("base")),
            [""; 0],
            "{moment}: leftovers of a dead builder were not removed"
        );
    });
    assert!(absent > 0 && whole > 0, "{absent} kills left no base, {whole} left one");
    let base =
        vault.materialize(&support::root(&vault, "main"), &bases, Trust::Seal, &Meter::default()).unwrap();
    assert_eq!(base.built, Built::New);
    snapshot::assert_same(&dir, &base.root);
}
