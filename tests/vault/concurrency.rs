//! Many real processes on one vault: nothing is lost, nobody starves, nobody sees "busy".

use std::collections::HashSet;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use avfs::backend::BackendError;
use avfs::backend::sqlite::{OpenOptions, sibling};
use avfs::hostfs::lock::{FileLock, Mode};
use avfs::vault::materialize::{BaseCache, Trust};
use avfs::vault::meter::Meter;
use avfs::vault::version::History;
use avfs::vault::{Vault, VaultError, audit};

use crate::support::{self, Scratch, snapshot};
use crate::worker::{BOOT, Worker};

const WRITERS: usize = 32;
/// Most versions of a writer against fewest.
const FAIRNESS_MAX: f64 = 1.5;

/// One run of all writers; gives how many versions each was promised.
fn run_writers(vault_path: &Path, writers: usize, seconds: &str) -> Vec<usize> {
    drop(support::create_real_vault(vault_path));
    let mut workers: Vec<Worker> = (0..writers)
        .map(|n| {
            let name = format!("w{n:02}");
            let settings = [
                ("VAULT", vault_path.to_str().unwrap()),
                ("FORK", "main"),
                ("NAME", name.as_str()),
                ("SECONDS", seconds),
            ];
            Worker::start("write", &settings)
        })
        .collect();
    workers.iter_mut().for_each(Worker::wait_ready);
    workers.iter_mut().for_each(Worker::go);
    let acks: Vec<Vec<String>> = workers.into_iter().map(Worker::finish).collect();

    let vault = support::open_vault(vault_path);
    let reader = vault.read().unwrap();
    let head = vault.fork(&support::main_fork()).unwrap().head;
    let history: Vec<String> = History::new(&*reader, head).map(|v| v.unwrap().id.to_hex()).collect();
    let promised: HashSet<&String> = acks.iter().flatten().collect();
    let count = acks.iter().map(Vec::len).sum::<usize>();
    assert_eq!(promised.len(), count, "a version was promised twice");
    let there: HashSet<&String> = history.iter().collect();
    let lost = promised.difference(&there).count();
    assert_eq!(lost, 0, "{lost} of {count} acknowledged versions are lost");
    // Every version in the history but the first was promised to somebody: none came in twice or by itself.
    assert_eq!(history.len(), count + 1);
    let verdict = audit::verify(&*reader, None).unwrap();
    assert_eq!(verdict.problems, []);
    assert_eq!(verdict.rows, count as u64 + 1);
    drop(reader);
    support::assert_clean(&vault);
    acks.iter().map(Vec::len).collect()
}

#[test]
fn thirty_two_writers_lose_nothing_and_are_served_fairly() {
    let mut seen = Vec::new();
    // What must not be lost is checked in every run; a noisy machine may spoil the fairness of one.
    for _ in 0..6 {
        let scratch = Scratch::new();
        let counts = run_writers(&scratch.join("vault.db"), WRITERS, "5");
        let (most, fewest) = (*counts.iter().max().unwrap(), *counts.iter().min().unwrap());
        assert!(fewest > 0, "a writer was never served: {counts:?}");
        let ratio = most as f64 / fewest as f64;
        if ratio <= FAIRNESS_MAX {
            return;
        }
        seen.push((ratio, counts));
    }
    panic!("writers are not served fairly: {seen:?}");
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
        .create_fork(&support::fork("work"), &support::reference("main"), avfs::backend::Life::Persistent)
        .unwrap();
    drop(vault);
    let (dest, cache) = (scratch.dir("dest"), scratch.dir("cache"));
    let common = [
        ("VAULT", path.to_str().unwrap()),
        ("FORK", "work"),
        ("NAME", "writer"),
        ("DEST", dest.to_str().unwrap()),
        ("CACHE", cache.to_str().unwrap()),
        ("EVICT", "no"),
        ("SECONDS", "4"),
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
    // Each fails if anything it asked for was refused.
    let acks: Vec<Vec<String>> = workers.into_iter().map(Worker::finish).collect();
    for (role, acks) in roles.iter().zip(&acks) {
        assert!(!acks.is_empty() || *role == "evict", "{role} never came to an end");
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
    assert_eq!(lost, 0, "a sweep took versions that were acknowledged");
}

#[test]
fn concurrent_users_share_one_base() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("cache"));
    support::many_files(&dir, 150);
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    let root = support::root(&vault, "main");
    for round in 0..6 {
        let bases = BaseCache::new(&cache, &format!("boot-{round}"));
        let barrier = std::sync::Barrier::new(6);
        // Every round finds the base of another boot in the way, and six users that want it replaced at once.
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    let base = vault.materialize(&root, &bases, Trust::Seal, &Meter::default()).unwrap();
                    for _ in 0..20 {
                        assert!(base.root.join("d000/f00001").is_file(), "a base went while it was leased");
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
        });
        assert_eq!(bases.list().unwrap().len(), 1);
        let again = vault.materialize(&root, &bases, Trust::Nothing, &Meter::default()).unwrap();
        snapshot::assert_same(&dir, &again.root);
    }
    let last = BaseCache::new(&cache, BOOT);
    last.evict(0).unwrap();
    assert_eq!(std::fs::read_dir(cache.join("base")).unwrap().count(), 0, "retired bases were not removed");
}

fn impatient(path: &Path, patience: Duration) -> Vault {
    let options = OpenOptions { patience, ..OpenOptions::default() };
    Vault::open(path, options, support::real_context()).unwrap()
}

#[track_caller]
fn assert_busy<T: std::fmt::Debug>(outcome: avfs::vault::Result<T>) {
    assert!(matches!(outcome, Err(VaultError::Backend(BackendError::Busy { .. }))), "{outcome:?}");
}

#[test]
fn a_vault_that_stays_locked_is_busy_and_stays_well() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    support::write(&vault, "before", b"1");
    let before = vault.fork(&support::main_fork()).unwrap().head;
    let patience = Duration::from_millis(300);
    let hasty = impatient(&path, patience);
    let write =
        |vault: &Vault| vault.write_file(&support::main_fork(), &support::path("x"), &b"2"[..], None, "x");

    // A foreign program that keeps a transaction open.
    let foreign = support::sql(&path);
    foreign.execute_batch("BEGIN IMMEDIATE; CREATE TABLE intruder (x);").unwrap();
    let began = Instant::now();
    assert_busy(write(&hasty));
    assert!(began.elapsed() >= patience, "it gave up after {:?}", began.elapsed());
    assert!(began.elapsed() < patience * 10, "it waited {:?}", began.elapsed());
    // Reading goes on meanwhile.
    assert_eq!(hasty.fork(&support::main_fork()).unwrap().head, before);
    foreign.execute_batch("ROLLBACK").unwrap();

    // One of our own that does not give the turn back.
    let turn = FileLock::acquire(&sibling(&path, "-lock"), Mode::Exclusive, Duration::from_secs(60)).unwrap();
    assert_busy(write(&hasty));
    drop(turn);
    // A sweep that does not end.
    let sweep = FileLock::acquire(&sibling(&path, "-use"), Mode::Exclusive, Duration::from_secs(60)).unwrap();
    assert_busy(write(&hasty));
    drop(sweep);

    assert_eq!(hasty.fork(&support::main_fork()).unwrap().head, before);
    write(&hasty).unwrap();
    support::assert_clean(&vault);
}

#[test]
fn a_lock_held_for_less_than_the_patience_is_waited_for() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    let foreign = support::sql(&path);
    foreign.execute_batch("BEGIN IMMEDIATE; CREATE TABLE intruder (x);").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| support::write(&vault, "x", b"1"));
        std::thread::sleep(Duration::from_millis(400));
        assert!(!writer.is_finished());
        foreign.execute_batch("ROLLBACK").unwrap();
        assert!(writer.join().unwrap().changed());
    });
    support::assert_clean(&vault);
}

/// SQLite's locks belong to the process: closing any descriptor of the file gives all of them back. A second
/// handle must not do that to the first, or another process takes the log away from under it.
#[test]
fn a_second_handle_in_one_process_does_not_unlock_the_first() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let first = support::create_real_vault(&path);
    support::write(&first, "a", b"1");
    let second = support::open_vault(&path);
    support::write(&second, "b", b"2");
    let visit = || {
        let mut visitor = Worker::start("visit", &[("VAULT", path.to_str().unwrap()), ("SECONDS", "0")]);
        visitor.go();
        visitor.finish();
    };
    // It is the last to leave as far as it can see; the log must stay for those who are still here.
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

/// What gc does to the file must not wait for a reader while it keeps every writer out.
#[test]
fn a_long_reader_does_not_make_a_sweep_lock_writers_out() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    for n in 0..8 {
        support::write(&vault, "big", &support::noise(n, 500_000));
    }
    vault
        .prune(&avfs::vault::gc::Keep { last: Some(1), since: None }, None, avfs::vault::gc::Trial::Real)
        .unwrap();
    let reading = support::open_vault(&path);
    let reader = reading.read().unwrap();
    reader.forks().unwrap();
    let sweeper = impatient(&path, Duration::from_secs(8));
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| sweeper.gc(&|_| {}).map(drop));
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        let plan = vault.make_dir(
            &support::main_fork(),
            &support::path("d"),
            avfs::vault::ops::Parents::Required,
            "d",
        );
        assert!(plan.is_ok(), "{plan:?}");
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(4),
            "a writer waited {waited:?} for a sweep that waits for a reader"
        );
        sweep.join().unwrap().unwrap();
    });
    drop(reader);
    support::assert_clean(&vault);
}

#[test]
fn exports_to_one_directory_do_not_sweep_each_other() {
    let scratch = Scratch::new();
    let (path, dir, dest) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("dest"));
    support::many_files(&dir, 3);
    // A socket in the destination's parent is nobody's business.
    let _socket = UnixListener::bind(dest.join("socket")).unwrap();
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (vault, dest, dir) = (&vault, &dest, &dir);
            scope.spawn(move || {
                for n in 0..60 {
                    let out = dest.join(format!("out-{thread}-{n}"));
                    support::export(vault, "main", &out);
                    if n % 20 == 0 {
                        snapshot::assert_same(dir, &out);
                    }
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(&dest).unwrap().count(), 6 * 60 + 1);
}

/// Somebody works for long, and a sweep waits for that: others begin nevertheless.
#[test]
fn a_sweep_that_waits_lets_others_begin() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    let long = vault.backend().pin().unwrap();
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| support::open_vault(&path).gc(&|_| {}).map(drop));
        let gate = sibling(&path, "-gate");
        while FileLock::try_acquire(&gate, Mode::Shared).unwrap().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Refused after its patience if the sweep kept the gate closed until the other is done.
        drop(support::open_vault(&path).backend().pin().unwrap());
        drop(long);
        sweep.join().unwrap().unwrap();
    });
}
