//! Many real processes on one vault: nothing is lost, no process starves or gets "busy".

use std::collections::HashSet;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::{OpenOptions, sibling};
use avfs_vault::materialize::{BaseCache, Trust};
use avfs_vault::meter::Meter;
use avfs_vault::version::History;
use avfs_vault::{Vault, VaultError, audit};

use crate::support;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;
use crate::support::{Scratch, snapshot};
use crate::worker::{BOOT, Worker};

/// Longer than any expected wait.
const HANG: Duration = Duration::from_secs(200);

/// Runs all writers at once; each writes `rounds` versions.
fn run_writers(vault_path: &Path, writers: usize, rounds: usize) {
    drop(support::create_real_vault(vault_path));
    let mut workers: Vec<Worker> = (0..writers)
        .map(|n| {
            let (name, rounds) = (format!("w{n:02}"), rounds.to_string());
            let vault = vault_path.to_str().unwrap();
            let settings = [("VAULT", vault), ("FORK", "main"), ("NAME", &name), ("ROUNDS", &rounds)];
            Worker::start("write", &settings)
        })
        .collect();
    workers.iter_mut().for_each(Worker::wait_ready);
    workers.iter_mut().for_each(Worker::go);
    let acks: Vec<Vec<String>> = workers.into_iter().map(|worker| worker.finish().acks()).collect();
    assert!(acks.iter().all(|acks| acks.len() == rounds), "a writer was not served: {acks:?}");

    let vault = support::open_vault(vault_path);
    let reader = vault.read().unwrap();
    let head = vault.fork(&support::main_fork()).unwrap().head;
    let history: Vec<String> = History::new(&*reader, head).map(|v| v.unwrap().id.to_hex()).collect();
    let promised: HashSet<&String> = acks.iter().flatten().collect();
    let count = writers * rounds;
    assert_eq!(promised.len(), count, "a version was acknowledged twice");
    let there: HashSet<&String> = history.iter().collect();
    let lost = promised.difference(&there).count();
    assert_eq!(lost, 0, "{lost} of {count} acknowledged versions are lost");
    // Every version in the history except the first was acknowledged to one writer: none was added twice.
    assert_eq!(history.len(), count + 1);
    let verdict = audit::verify(&*reader, None).unwrap();
    assert_eq!(verdict.problems, []);
    assert_eq!(verdict.rows, count as u64 + 1);
    drop(reader);
    support::assert_clean(&vault);
}

#[test]
fn thirty_two_writers_all_finish_and_lose_nothing() {
    let scratch = Scratch::new();
    run_writers(&scratch.join("vault.db"), 32, support::usual_or_long(6, 60));
}

/// Each writer queues for the lock before the next one starts.
#[test]
fn writers_are_served_in_request_order() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    drop(support::create_real_vault(&path));
    let pauses = Pauses::new(scratch.path());
    pauses.hold("write-begun");
    let settings = |name| [("VAULT", path.to_str().unwrap()), ("FORK", "main"), ("NAME", name)];
    let mut first = Worker::paused(&pauses, "write", &settings("first"));
    pauses.wait("write-begun", &mut first.child);
    let mut workers = vec![first];
    for name in ["second", "third", "fourth", "fifth", "sixth"] {
        let mut worker = Worker::start("write", &settings(name));
        worker.go();
        wait_for(name, || worker.waits_for_lock());
        workers.push(worker);
    }
    pauses.release("write-begun");
    let asked: Vec<String> = workers.into_iter().flat_map(|worker| worker.finish().acks()).collect();
    let vault = support::open_vault(&path);
    let reader = vault.read().unwrap();
    let head = vault.fork(&support::main_fork()).unwrap().head;
    let mut served: Vec<String> = History::new(&*reader, head).map(|v| v.unwrap().id.to_hex()).collect();
    served.pop();
    served.reverse();
    assert_eq!(served, asked);
}

#[test]
fn writers_exporters_builders_and_sweeps_do_not_disturb_each_other() {
    let scratch = Scratch::new();
    let (path, dir) = (scratch.join("vault.db"), scratch.dir("dir"));
    support::many_files(&dir, 120);
    let vault = support::create_real_vault(&path);
    for back in (0..4).rev() {
        std::fs::write(dir.join("changed"), format!("{back}\n")).unwrap();
        support::import(&vault, &dir);
    }
    vault
        .create_fork(
            &support::fork("work"),
            &support::reference("main"),
            avfs_vault::backend::Life::Persistent,
        )
        .unwrap();
    drop(vault);
    let (dest, cache) = (scratch.dir("dest"), scratch.dir("cache"));
    let common = [
        ("VAULT", path.to_str().unwrap()),
        ("FORK", "work"),
        ("NAME", "writer"),
        ("DEST", dest.to_str().unwrap()),
        ("CACHE", cache.to_str().unwrap()),
        ("ROUNDS", support::usual_or_long("6", "100")),
    ];
    let roles = [
        "write",
        "write",
        "write",
        "export",
        "export",
        "export",
        "materialize",
        "stack",
        "stack",
        "gc",
        "evict",
    ];
    let mut workers: Vec<Worker> = roles.iter().map(|role| Worker::start(role, &common)).collect();
    workers.iter_mut().for_each(Worker::wait_ready);
    workers.iter_mut().for_each(Worker::go);
    // Each worker fails if any of its operations is refused.
    let acks: Vec<Vec<String>> = workers.into_iter().map(|worker| worker.finish().acks()).collect();
    for (role, acks) in roles.iter().zip(&acks) {
        assert_eq!(acks.len().to_string(), common[5].1, "{role}");
    }
    let vault = support::open_vault(&path);
    support::assert_clean(&vault);
    for out in acks[3..6].iter().flatten().take(6) {
        snapshot::assert_same(&dir, Path::new(out));
    }
    let reader = vault.read().unwrap();
    let head = vault.fork(&support::fork("work")).unwrap().head;
    let history: HashSet<String> = History::new(&*reader, head).map(|v| v.unwrap().id.to_hex()).collect();
    let lost = acks[..3].iter().flatten().filter(|id| !history.contains(*id)).count();
    assert_eq!(lost, 0, "a sweep deleted acknowledged versions");
}

#[test]
fn concurrent_users_share_one_base() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("cache"));
    support::many_files(&dir, 50);
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    let root = support::root(&vault, "main");
    for round in 0..4 {
        let bases = BaseCache::new(&cache, &format!("boot-{round}"));
        let barrier = std::sync::Barrier::new(6);
        // In every round a base of another boot is in the way, and six users replace it at the same time.
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    let base = vault.materialize(&root, &bases, Trust::Seal, &Meter::default()).unwrap();
                    barrier.wait();
                    assert!(
                        base.root.join("d000/f00001").is_file(),
                        "a base was removed while it was leased"
                    );
                });
            }
        });
        assert_eq!(bases.list().unwrap().len(), 1);
        let again = vault.materialize(&root, &bases, Trust::Nothing, &Meter::default()).unwrap();
        snapshot::assert_same(&dir, &again.root);
    }
    evict_all(&BaseCache::new(&cache, BOOT), &cache);
}

/// Removes everything from a cache. A process that another test is starting may share a lease until its exec.
fn evict_all(bases: &BaseCache, cache: &Path) {
    wait_for("an empty cache", || {
        bases.evict(0).unwrap();
        std::fs::read_dir(cache.join("base")).unwrap().next().is_none()
    });
}

/// At each of these pause points of a builder another user makes the same base.
#[test]
fn base_made_meanwhile_by_another_user_is_shared() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("cache"));
    support::many_files(&dir, 3);
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    let root = support::root(&vault, "main");
    let settings = [("VAULT", path.to_str().unwrap()), ("CACHE", cache.to_str().unwrap())];
    let bases = BaseCache::new(&cache, BOOT);
    let build = |bases: &BaseCache| vault.materialize(&root, bases, Trust::Seal, &Meter::default()).unwrap();
    // In all cases except the first, the base of an earlier boot is in the way.
    for (point, old) in [("publish", false), ("lease", true), ("retire", true), ("publish", true)] {
        if old {
            drop(build(&BaseCache::new(&cache, "boot-0")));
        }
        let pauses = Pauses::new(scratch.path());
        pauses.hold(point);
        let mut worker = Worker::paused(&pauses, "materialize", &settings);
        pauses.wait(point, &mut worker.child);
        let base = build(&bases);
        pauses.release(point);
        assert_eq!(worker.finish().acks(), ["Reused"], "{point}, old: {old}");
        assert!(base.root.join("d000/f00001").is_file(), "{point}: a base was removed while it was leased");
        assert_eq!(bases.list().unwrap().len(), 1);
        drop(base);
        evict_all(&bases, &cache);
    }
    // An eviction removes the directory that a builder has made and not locked yet: the builder makes another.
    let pauses = Pauses::new(scratch.path());
    pauses.hold("draft-made");
    let mut worker = Worker::paused(&pauses, "materialize", &settings);
    pauses.wait("draft-made", &mut worker.child);
    evict_all(&bases, &cache);
    pauses.release("draft-made");
    assert_eq!(worker.finish().acks(), ["New"]);
}

fn impatient(path: &Path, patience: Duration) -> Vault {
    let options = OpenOptions { patience, ..OpenOptions::default() };
    Vault::open(path, options, support::real_context()).unwrap()
}

#[track_caller]
fn assert_busy<T: std::fmt::Debug>(outcome: avfs_vault::Result<T>) {
    assert!(matches!(outcome, Err(VaultError::Backend(BackendError::Busy { .. }))), "{outcome:?}");
}

#[test]
fn vault_that_stays_locked_is_busy_and_undamaged() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    support::write(&vault, "before", b"1");
    let before = vault.fork(&support::main_fork()).unwrap().head;
    let patience = Duration::from_millis(100);
    let hasty = impatient(&path, patience);
    let write =
        |vault: &Vault| vault.write_file(&support::main_fork(), &support::path("x"), &b"2"[..], None, "x");

    // Another program that keeps a transaction open.
    let foreign = support::sql(&path);
    foreign.execute_batch("BEGIN IMMEDIATE; CREATE TABLE intruder (x);").unwrap();
    let began = Instant::now();
    assert_busy(write(&hasty));
    assert!(began.elapsed() >= patience, "it gave up after {:?}", began.elapsed());
    // Reads still work.
    assert_eq!(hasty.fork(&support::main_fork()).unwrap().head, before);
    foreign.execute_batch("ROLLBACK").unwrap();

    // An avfs process that does not release the write lock.
    let turn = FileLock::acquire(&sibling(&path, "-lock"), Mode::Exclusive, HANG).unwrap();
    assert_busy(write(&hasty));
    drop(turn);
    // A sweep that does not end.
    let sweep = FileLock::acquire(&sibling(&path, "-use"), Mode::Exclusive, HANG).unwrap();
    assert_busy(write(&hasty));
    drop(sweep);

    assert_eq!(hasty.fork(&support::main_fork()).unwrap().head, before);
    write(&vault).unwrap();
    support::assert_clean(&vault);
}

/// The writer finds the vault locked by another program, which then releases it.
#[test]
fn writer_waits_for_a_lock_released_before_the_timeout() {
    let scratch = Scratch::new();
    let (path, trace) = (scratch.join("vault.db"), scratch.join("trace"));
    let vault = support::create_real_vault(&path);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=fcntl", "-o"]).arg(&trace).arg(std::env::current_exe().unwrap());
    let settings = [("VAULT", path.to_str().unwrap()), ("FORK", "main"), ("NAME", "one")];
    let mut writer = Worker::start_as(traced, "write", &settings);
    writer.wait_ready();
    let foreign = support::sql(&path);
    foreign.execute_batch("BEGIN IMMEDIATE; CREATE TABLE intruder (x);").unwrap();
    let refusals = || std::fs::read_to_string(&trace).unwrap().matches("EAGAIN").count();
    let before = refusals();
    writer.go();
    wait_for("a refused lock", || refusals() > before);
    foreign.execute_batch("ROLLBACK").unwrap();
    assert_eq!(writer.finish().acks().len(), 1);
    support::assert_clean(&vault);
}

/// SQLite's locks belong to the process: closing any descriptor of the file releases all of them. A second handle
/// must not do that to the first, or another process may remove the log of a vault in use.
#[test]
fn second_handle_in_one_process_does_not_unlock_the_first() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let first = support::create_real_vault(&path);
    support::write(&first, "a", b"1");
    let second = support::open_vault(&path);
    support::write(&second, "b", b"2");
    let visit = || {
        let mut visitor = Worker::start("visit", &[("VAULT", path.to_str().unwrap())]);
        visitor.go();
        visitor.finish();
    };
    // The visitor believes that it is the last user; the log must stay for the remaining ones.
    visit();
    let log = sibling(&path, "-wal");
    assert!(log.exists(), "another process removed the log of a vault in use");
    support::write(&first, "c", b"3");
    drop(second);
    visit();
    let acked = support::write(&first, "d", b"4").version.id;
    visit();
    drop(first);
    let vault = support::open_vault(&path);
    assert_eq!(vault.fork(&support::main_fork()).unwrap().head, acked);
    support::assert_clean(&vault);
}

/// gc must not wait for a reader while it locks all writers out.
#[test]
fn sweep_does_not_lock_writers_out_during_a_long_read() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    support::write(&vault, "big", &support::noise(1, 500_000));
    support::write(&vault, "big", b"small");
    vault
        .prune(&avfs_vault::gc::Keep { last: Some(1), since: None }, None, avfs_vault::gc::Trial::Real)
        .unwrap();
    let reading = support::open_vault(&path);
    let reader = reading.read().unwrap();
    reader.forks().unwrap();
    let pauses = Pauses::new(scratch.path());
    pauses.hold("settle");
    let settings = [("VAULT", path.to_str().unwrap()), ("FORK", "main"), ("NAME", "one")];
    let mut sweeper = Worker::paused(&pauses, "sweep", &settings);
    pauses.wait("settle", &mut sweeper.child);
    let mut writer = Worker::start("write", &settings);
    writer.go();
    wait_for("the writer waits", || writer.waits_for_lock());
    pauses.release("settle");
    // Both end while the reader is still active.
    assert_eq!(writer.finish().acks().len(), 1);
    assert_eq!(sweeper.finish().acks().len(), 1);
    drop(reader);
    support::assert_clean(&vault);
}

/// Three threads export to one directory repeatedly; another process pauses at each step of creating its staging
/// directory.
#[test]
fn concurrent_exports_do_not_remove_each_others_staging() {
    let scratch = Scratch::new();
    let (path, dir, dest) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("dest"));
    support::many_files(&dir, 3);
    // A socket in the destination's parent is left alone.
    let _socket = UnixListener::bind(dest.join("socket")).unwrap();
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    let settings = [("VAULT", path.to_str().unwrap()), ("DEST", dest.to_str().unwrap())];
    // Created and not locked yet, half filled, and complete.
    for (n, point) in ["staging-made", "work#2", "publish"].into_iter().enumerate() {
        let pauses = Pauses::new(scratch.path());
        pauses.hold(point);
        let mut worker = Worker::paused(&pauses, "export", &settings);
        pauses.wait(point, &mut worker.child);
        support::export(&vault, "main", &dest.join(format!("out-{n}")));
        pauses.release(point);
        let acks = worker.finish().acks();
        assert_eq!(acks.len(), 1, "{point}");
        snapshot::assert_same(&dir, Path::new(&acks[0]));
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (vault, dest) = (&vault, &dest);
            scope.spawn(move || {
                (0..10).for_each(|n| support::export(vault, "main", &dest.join(format!("out-{thread}-{n}"))));
            });
        }
    });
    assert_eq!(std::fs::read_dir(&dest).unwrap().count(), 1 + 2 * 3 + 3 * 10);
}

/// One process works for a long time, and a sweep waits for it: other processes still start.
#[test]
fn waiting_sweep_does_not_block_other_processes() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    let long = vault.backend().pin().unwrap();
    let pauses = Pauses::new(scratch.path());
    let sweeper = Worker::paused(&pauses, "sweep", &[("VAULT", path.to_str().unwrap())]);
    wait_for("the sweep waits", || pauses.reached().iter().any(|point| point == "sweep-gate"));
    // Would be refused after a timeout if the sweep kept the gate closed until the other process ended.
    drop(impatient(&path, HANG).backend().pin().unwrap());
    drop(long);
    assert_eq!(sweeper.finish().acks().len(), 1);
}
