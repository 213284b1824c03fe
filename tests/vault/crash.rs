//! kill -9 at any moment: what was acknowledged is there, everything is whole, leftovers are swept.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use avfs::vault::Vault;
use avfs::vault::import::OnTrouble;
use avfs::vault::materialize::{BaseCache, Built, Trust};
use avfs::vault::meter::Meter;
use avfs::vault::version::History;

use crate::support::{self, Dice, Rounds, Scratch, snapshot};
use crate::worker::{BOOT, Worker};

/// Runs a worker again and again and kills it each time at another moment; gives all it was promised.
///
/// On a slow machine no work may come to its end before the kill: then it is given more time, and killed more often.
fn kill_loop(kills: u32, seed: u64, longest_ms: u64, role: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let mut dice = Dice::seeded(seed);
    let mut acks = Vec::new();
    let settings = [settings, &[("SECONDS", "60")]].concat();
    for kill in 0..kills * 5 {
        if kill >= kills && !acks.is_empty() {
            break;
        }
        let longest_ms = if kill < kills { longest_ms } else { longest_ms * 4 };
        let mut worker = Worker::start(role, &settings);
        worker.go();
        // Now and then before it has even opened the vault.
        if dice.below(6) > 0 {
            worker.wait_ready();
        }
        std::thread::sleep(Duration::from_micros(dice.below(longest_ms * 1000)));
        acks.extend(worker.kill());
    }
    acks
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

#[test]
fn killed_writers_lose_nothing_they_were_promised() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    drop(support::create_real_vault(&path));
    let vault_path = path.to_str().unwrap();
    let mut dice = Dice::seeded(11);
    let mut acks = Vec::new();
    let mut rounds = Rounds::at_least(22);
    while let Some(round) = rounds.next(acks.len() > 44) {
        let names = ["one", "two"];
        let mut workers: Vec<Worker> = names
            .iter()
            .map(|name| {
                let settings = [("VAULT", vault_path), ("FORK", "main"), ("NAME", *name), ("SECONDS", "60")];
                let mut worker = Worker::start("write", &settings);
                worker.go();
                worker
            })
            .collect();
        for worker in &mut workers {
            worker.wait_ready();
        }
        // One dies while the other is at work.
        for worker in workers {
            std::thread::sleep(Duration::from_micros(dice.below(60_000)));
            acks.extend(worker.kill());
        }
        if round % 5 == 0 {
            let vault = support::open_vault(&path);
            assert_all_there(&vault, "main", &acks);
            support::assert_clean(&vault);
        }
    }
    assert!(acks.len() > 44, "the writers hardly wrote: {} versions", acks.len());
    let vault = support::open_vault(&path);
    assert_all_there(&vault, "main", &acks);
    support::assert_clean(&vault);
    support::write(&vault, "after", b"still writable");
}

#[test]
fn killed_imports_leave_a_whole_vault_and_a_cache_that_does_not_lie() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.join("stat-cache"));
    drop(support::create_real_vault(&path));
    let settings = [
        ("VAULT", path.to_str().unwrap()),
        ("DIR", dir.to_str().unwrap()),
        ("CACHE", cache.to_str().unwrap()),
    ];
    let acks = kill_loop(14, 23, 350, "import", &settings);
    assert!(!acks.is_empty(), "no import ever came to its end");
    let vault = support::open_vault(&path);
    assert_all_there(&vault, "main", &acks);
    support::assert_clean(&vault);
    // The cache of a killed import must not hide what changed after the last good one.
    support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
    support::assert_clean(&vault);
}

#[test]
fn a_killed_sweep_takes_nothing_that_is_in_use() {
    let scratch = Scratch::new();
    let (path, dir) = (scratch.join("vault.db"), scratch.dir("dir"));
    support::many_files(&dir, 200);
    std::fs::write(dir.join("large"), support::noise(5, 2 << 20)).unwrap();
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    drop(vault);
    let acks = kill_loop(14, 37, 150, "gc", &[("VAULT", path.to_str().unwrap())]);
    assert!(!acks.is_empty(), "no sweep ever came to its end");
    let vault = support::open_vault(&path);
    support::assert_clean(&vault);
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
    for fork in vault.forks().unwrap().iter().filter(|fork| fork.name.as_str() != "main") {
        vault.delete_fork(&fork.name, avfs::vault::fork::Deletion::Forced).unwrap();
    }
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
    let usage = vault.read().unwrap().usage().unwrap();
    assert!(usage.file_bytes < 6 << 20, "garbage of killed sweeps stays: {usage:?}");
}

fn names(dir: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(dir).unwrap();
    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_killed_export_leaves_nothing_half_written() {
    let scratch = Scratch::new();
    let (path, dir, dest) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("dest"));
    support::many_files(&dir, 400);
    std::fs::write(dir.join("large"), support::noise(5, 8 << 20)).unwrap();
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    drop(vault);
    let settings = [("VAULT", path.to_str().unwrap()), ("DEST", dest.to_str().unwrap())];
    let acks = kill_loop(14, 41, 250, "export", &settings);
    assert!(!acks.is_empty(), "no export ever came to its end");
    let found = names(&dest);
    let original = snapshot::take(&dir);
    for name in found.iter().filter(|name| name.starts_with("out-")) {
        let differences = snapshot::differences(&original, &snapshot::take(&dest.join(name)));
        assert!(differences.is_empty(), "{name} is not whole: {differences:#?}");
    }
    // Each export sweeps what the dead ones before it left; only the last one's leftovers may be there.
    let leftovers = found.iter().filter(|name| !name.starts_with("out-")).count();
    assert!(leftovers <= 1, "leftovers pile up: {found:?}");
    let vault = support::open_vault(&path);
    support::export(&vault, "main", &dest.join("out-last"));
    assert!(names(&dest).iter().all(|name| name.starts_with("out-")), "the next export swept nothing");
    snapshot::assert_same(&dir, &dest.join("out-last"));
}

#[test]
fn a_killed_build_leaves_a_base_that_is_whole_or_none() {
    let scratch = Scratch::new();
    let (path, dir, cache) = (scratch.join("vault.db"), scratch.dir("dir"), scratch.dir("cache"));
    support::many_files(&dir, 400);
    let vault = support::create_real_vault(&path);
    support::import(&vault, &dir);
    drop(vault);
    let settings = [
        ("VAULT", path.to_str().unwrap()),
        ("CACHE", cache.to_str().unwrap()),
        ("EVICT", "yes"),
        ("SECONDS", "60"),
    ];
    let original = snapshot::take(&dir);
    let (mut whole, mut absent) = (0, 0);
    let mut dice = Dice::seeded(53);
    let mut rounds = Rounds::at_least(14);
    while let Some(round) = rounds.next(absent > 0) {
        let mut worker = Worker::start("materialize", &settings);
        worker.go();
        worker.wait_ready();
        // Some die while they build, some later, and the first only after it has built one.
        std::thread::sleep(Duration::from_micros(dice.below(if round % 2 == 0 { 30_000 } else { 300_000 })));
        if round == 0 {
            worker.wait_for("ack built");
        }
        worker.kill();
        let bases = names(&cache).iter().any(|name| name == "base").then(|| names(&cache.join("base")));
        let bases = bases.unwrap_or_default();
        let built: Vec<&String> = bases.iter().filter(|name| !name.starts_with('.')).collect();
        for base in &built {
            let base = cache.join("base").join(base);
            assert!(base.join("sealed").is_file(), "a base is visible without its seal");
            let differences = snapshot::differences(&original, &snapshot::take(&base.join("root")));
            assert!(differences.is_empty(), "a visible base is not whole: {differences:#?}");
        }
        if built.is_empty() { absent += 1 } else { whole += 1 }
    }
    assert!(absent > 0, "no kill came while a base was built ({whole} times it was there)");
    let vault = support::open_vault(&path);
    let bases = BaseCache::new(&cache, BOOT);
    bases.evict(0).unwrap();
    assert_eq!(names(&cache.join("base")), Vec::<String>::new(), "leftovers of dead builders stay");
    let base =
        vault.materialize(&support::root(&vault, "main"), &bases, Trust::Seal, &Meter::default()).unwrap();
    assert_eq!(base.built, Built::New);
    snapshot::assert_same(&dir, &base.root);
}
