//! The cache stays within its limit automatically, entries that are in use or recoverable are kept, and users can see
//! their disk usage.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, wait_for};
use crate::limits::{notes, on_a_host};
use crate::lists::{good, list};
use crate::shared::{Shared, kill_at};
use crate::support::noise;

const MEET: &str = ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done";

/// Everything in the cache, as `avfs du` measures it.
fn cache_bytes(env: &TestEnv) -> u64 {
    env.avfs_result(&["du"])["cache"]["bytes"].as_u64().unwrap()
}

fn settings(env: &TestEnv, text: &str) {
    std::fs::write(env.at("config/avfs/avfs.toml"), text).unwrap();
}

/// Makes the next run check the whole cache.
fn long_ago(env: &TestEnv) {
    let checked = std::fs::File::open(env.at("cache/avfs/checked")).unwrap();
    checked.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
}

fn shelf(env: &TestEnv, name: &str) -> Vec<PathBuf> {
    let Ok(listing) = std::fs::read_dir(env.at("cache/avfs").join(name)) else { return Vec::new() };
    listing.map(|entry| entry.unwrap().path()).collect()
}

/// A chain whose items each write half a megabyte over files of earlier items.
fn chain(env: &TestEnv, name: &str) -> PathBuf {
    let line = |n: usize| format!("head -c 500000 /dev/urandom > file-{}\n", n % 3);
    let lines: String = (0..24).map(line).collect();
    list(env, name, &lines)
}

/// A killed process leaves files in the stat cache, not only directories.
#[test]
fn files_of_killed_processes_are_removed_from_the_stat_cache() {
    let env = TestEnv::with_project();
    env.avfs(&["gc"]).expect(0);
    let counts = shelf(&env, "stat").into_iter().find(|path| path.to_str().unwrap().ends_with("-references"));
    let counts = counts.unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let left = counts.with_file_name(format!(
        "{}.new-{}",
        counts.file_name().unwrap().to_str().unwrap(),
        ended.id()
    ));
    let plant = || std::fs::copy(&counts, &left).unwrap();
    plant();
    let cleaned = env.avfs_result(&["clean"]);
    assert_eq!(cleaned["leftovers"], json!(1), "{cleaned}");
    assert!(!left.exists());
    env.ok(&[], "true");
    env.avfs(&["gc"]).expect(0);
    plant();
    long_ago(&env);
    let answer = env.shell(&[], "echo done").expect(0);
    assert_eq!((answer.text().as_str(), answer.stderr.contains("warning")), ("done\n", false), "{answer:?}");
    assert!(!left.exists());
}

#[test]
fn the_cache_stays_within_its_limit_over_many_runs() {
    const MAX: u64 = 6 << 20;
    let env = TestEnv::with_project();
    settings(&env, "cache.max = 'none'");
    good(&env, &chain(&env, "unbounded.txt"), &[]);
    assert!(cache_bytes(&env) > MAX, "without a limit the cache grows: {}", cache_bytes(&env));
    // The limit applies from the next run that writes to the cache.
    settings(&env, &format!("cache.max = {MAX}"));
    let came = good(&env, &chain(&env, "bounded.txt"), &[]);
    let du = env.avfs_result(&["du"]);
    assert!(du["cache"]["bytes"].as_u64().unwrap() <= MAX, "{du}");
    assert_eq!(du["cache"]["max_bytes"], json!(MAX));
    assert!(du["cache"]["layers"]["count"].as_u64().unwrap() > 0, "some layers are kept: {du}");
    // Evicted entries are rebuilt from the vault.
    let fork = came.result()["fork"].as_str().unwrap().to_owned();
    let (first, last) = (came.text("1", "version").to_owned(), came.text("24", "version").to_owned());
    assert_eq!(env.ok(&["--from", &first], "ls | grep -c file-"), "1\n");
    assert_eq!(env.ok(&["--from", &last], "ls | grep -c file-"), "3\n");
    assert_eq!(env.ok(&["--fork", &fork], "cat file-* | wc -c"), "1500000\n");
    env.assert_sound();
    let shown = env.avfs(&["du"]).expect(0).text();
    assert!(shown.contains("vault ") && shown.contains("(of 6.0 MiB at most)"), "{shown}");
}

#[test]
fn a_run_that_writes_nothing_to_the_cache_does_not_check_it() {
    let env = TestEnv::with_project();
    env.ok(&[], "true");
    // A leftover stays until the next check, which happens at most once an hour.
    let left = env.at("cache/avfs/base/.new-0");
    std::fs::create_dir_all(&left).unwrap();
    env.ok(&[], "echo x > x");
    assert!(left.exists());
    long_ago(&env);
    env.ok(&[], "true");
    assert!(!left.exists());
}

#[test]
fn entries_in_use_and_recoverable_scratches_are_never_evicted() {
    let env = TestEnv::with_project();
    env.put("large", &noise(1, 1 << 20));
    settings(&env, "cache.max = '64KiB'\ncache.dirs = ['target']");
    // The vault refuses the changes of this run; they stay in its scratch.
    env.avfs(&["import"]).expect(0);
    env.avfs(&["quota", "set", "--files", "1"]).expect(0);
    env.shell(&["--fork", "lost", "--scratch", "disk"], "head -c 300000 /dev/urandom > kept").expect(123);
    let scratches = env.scratches();
    assert_eq!(scratches.len(), 1);
    let shared = Shared::new(&env);
    let line = format!("echo built > target/object; {MEET}; cat large | wc -c; cat target/object");
    let running = shared.start(&env, &["--fork", "held", "--from", "main"], &line);
    let running = shared.wait_for_word(running, "ready");
    // Neither `clean` nor eviction removes the base and the cache directory of the running command.
    let du = env.avfs_result(&["du"]);
    assert_eq!(du["scratch"]["running"]["count"], json!(1), "{du}");
    assert_eq!(du["scratch"]["recoverable"]["count"], json!(1), "{du}");
    let would = env.avfs_result(&["clean", "--dry-run"]);
    assert_eq!(
        (&would["dry_run"], &would["bases"], &would["dirs"]),
        (&json!(true), &json!(0), &json!(0)),
        "{would}"
    );
    let words = env.avfs(&["clean", "--dry-run"]).expect(0).text();
    assert!(words.starts_with("would remove 0 bases, 0 layers, 0 directories of cache.dirs, "), "{words}");
    let words = env.avfs(&["du"]).expect(0).text();
    assert!(words.contains(" 1 base") && words.contains("of cache.dirs\n"), "{words}");
    let cleaned = env.avfs_result(&["clean"]);
    assert_eq!(
        (&cleaned["bases"], &cleaned["dirs"], &cleaned["scratches"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert!(cleaned["kept_bytes"].as_u64().unwrap() > 1 << 20, "{cleaned}");
    shared.put("go");
    let answer = running.answer().expect(0);
    assert_eq!(answer.text(), "1048576\nbuilt\n");
    // When the run has ended they are removed; the changes of the failed run are kept.
    wait_for("the leases are released", || {
        env.avfs(&["clean"]).expect(0);
        shelf(&env, "base").is_empty() && shelf(&env, "dirs").is_empty()
    });
    assert_eq!(env.scratches(), scratches);
    env.avfs(&["quota", "set", "--files", "none"]).expect(0);
    let recovered = env.avfs_result(&["recover"]);
    assert_eq!(recovered["runs"][0]["action"], json!("captured"), "{recovered}");
    env.avfs(&["cat", "lost", "kept"]).expect(0);
    // A removed cache directory is created again.
    assert_eq!(env.ok(&[], "ls target | wc -l"), "0\n");
    env.assert_sound();
}

#[test]
fn cache_directories_count_and_the_least_recently_used_is_evicted() {
    let env = TestEnv::with_project();
    settings(&env, "cache.max = '3MiB'\ncache.dirs = ['target']");
    env.ok(&[], "head -c 1000000 /dev/urandom > target/a");
    assert_eq!(env.ok(&[], "ls target"), "a\n", "within the limit");
    let dir =
        &shelf(&env, &format!("dirs/{}", shelf(&env, "dirs")[0].file_name().unwrap().to_str().unwrap()))[0];
    assert_eq!(std::fs::metadata(dir.join("a")).unwrap().len(), 1_000_000);
    env.ok(&[], "head -c 4000000 /dev/urandom > target/b");
    wait_for("the lease is released", || {
        env.ok(&[], "true");
        cache_bytes(&env) < 3 << 20
    });
}

#[test]
fn leftovers_of_killed_processes_are_removed() {
    let env = TestEnv::with_project();
    crate::support::many_files(&env.project().join("many"), 50);
    env.avfs(&["import"]).expect(0);
    // Killed while building a base, and while removing one.
    kill_at(&env, &mut env.command(&["--from", "main", "--", "true"]), "publish");
    env.avfs(&["materialize", "main"]).expect(0);
    let mut clean = env.clean(&avfs());
    kill_at(&env, clean.arg("clean"), "move-aside");
    kill_at(&env, &mut clean, "remove-tree");
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        name.starts_with(".new-") || name.starts_with(".old-")
    };
    let left = || shelf(&env, "base").iter().filter(|path| is_left(path)).count();
    assert!(left() >= 1, "{:?}", shelf(&env, "base"));
    assert_eq!(env.scratches().len(), 1, "the scratch of the killed run");
    let du = env.avfs_result(&["du"]);
    assert!(du["cache"]["unfinished"]["count"].as_u64().unwrap() >= 1, "{du}");
    std::fs::write(env.at("cache/avfs/checked"), "").unwrap();
    long_ago(&env);
    // The next run, in any vault.
    let other = env.at("other");
    std::fs::create_dir(&other).unwrap();
    let mut command = env.command(&["--shell", "echo x > x"]);
    Running::start(command.current_dir(&other)).answer().expect(0);
    assert_eq!(left(), 0, "{:?}", shelf(&env, "base"));
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
}

/// The next sweep, of any vault, removes the files that a killed run wrote; its own vault journals that it was
/// killed.
#[test]
fn files_of_a_killed_run_are_freed_before_its_vault_is_used_again() {
    let env = TestEnv::with_project();
    let line = "head -c 2000000 /dev/urandom > big";
    kill_at(&env, &mut env.command(&["--scratch", "disk", "--shell", line]), "session-Released");
    let run = env.scratches().pop().unwrap();
    assert!(env.at("cache/avfs/run").join(&run).join("upper/big").exists());
    let cleaned = env.avfs_result(&["clean"]);
    assert_eq!(cleaned["scratches"], json!(1), "{cleaned}");
    assert!(cleaned["freed_bytes"].as_u64().unwrap() >= 2_000_000, "{cleaned}");
    assert_eq!(env.avfs_result(&["clean"])["scratches"], json!(0));
    env.ok(&[], "true");
    let shown = env.avfs_result(&["runs", "show", &run]);
    assert_eq!(shown["state"], json!("interrupted"), "{shown}");
    assert_eq!(env.scratches(), [""; 0]);
}

fn base_of_new_vault(env: &TestEnv, name: &str) -> PathBuf {
    let dir = env.at(name);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), noise(7, 400_000)).unwrap();
    let mut command = env.command(&["--fork", "f", "--shell", "echo x > x"]);
    Running::start(command.current_dir(&dir)).answer().expect(0);
    dir
}

fn avfs_in(env: &TestEnv, dir: &Path, words: &[&str]) -> Value {
    let mut command = env.clean(&avfs());
    let answer = Running::start(command.current_dir(dir).arg("--json").args(words)).answer();
    answer.expect(0).envelope()["result"].take()
}

#[test]
fn a_deleted_vault_leaves_nothing_in_the_cache() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "mine"], "echo mine > mine");
    let own = (shelf(&env, "base"), shelf(&env, "stat"), shelf(&env, "layer").len());
    let dir = base_of_new_vault(&env, "other");
    assert_eq!(shelf(&env, "base").len(), 2);
    let deleted = avfs_in(&env, &dir, &["vault", "delete", "--yes"]);
    assert!(deleted["cache_freed_bytes"].as_u64().unwrap() >= 400_000, "{deleted}");
    assert_eq!((shelf(&env, "base"), shelf(&env, "stat"), shelf(&env, "layer").len()), own);
    // If the vault file is removed by hand, the next check of the cache removes its entries.
    let dir = base_of_new_vault(&env, "third");
    assert_eq!(shelf(&env, "base").len(), 2);
    std::fs::remove_dir_all(dir.join(".avfs")).unwrap();
    long_ago(&env);
    env.ok(&[], "true");
    assert_eq!((shelf(&env, "base"), shelf(&env, "stat"), shelf(&env, "layer").len()), own);
    assert_eq!(env.ok(&["--fork", "mine"], "cat mine"), "mine\n");
}

#[test]
fn an_unfinished_base_is_listed_with_its_size() {
    let env = TestEnv::with_project();
    env.put("large", &noise(1, 4 << 20));
    env.avfs(&["import"]).expect(0);
    kill_at(&env, &mut env.command(&["--base", "cached", "--", "true"]), "publish");
    let du = env.avfs_result(&["du"]);
    let part = |name: &str| {
        (du["cache"][name]["count"].as_u64().unwrap(), du["cache"][name]["bytes"].as_u64().unwrap())
    };
    assert_eq!(part("unfinished").0, 1, "{du}");
    assert!(part("unfinished").1 > 4 << 20, "{du}");
    assert_eq!(part("bases").0, 0, "{du}");
    assert!(part("bases").1 < 1 << 20, "{du}");
    let text = env.avfs(&["du"]).expect(0).text();
    assert!(
        text.lines().any(|line| line.contains("MiB") && line.ends_with(" 1 unfinished or left behind")),
        "{text}"
    );
}

#[test]
fn orphaned_changes_are_removed_only_on_request() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.avfs(&["quota", "set", "--files", "1"]).expect(0);
    env.shell(&["--scratch", "disk"], "echo kept > kept").expect(123);
    std::fs::rename(env.project().join(".avfs"), env.at("away")).unwrap();
    assert_eq!(env.avfs_result(&["clean"])["scratches"], json!(0));
    let du = env.avfs_result(&["du"]);
    assert_eq!((&du["vault"], &du["scratch"]["orphaned"]["count"]), (&json!(null), &json!(1)), "{du}");
    assert!(env.avfs(&["du"]).expect(0).text().contains("avfs clean --orphans"));
    assert_eq!(env.avfs_result(&["clean", "--orphans", "--dry-run"])["scratches"], json!(1));
    assert_eq!(env.scratches().len(), 1);
    assert_eq!(env.avfs_result(&["clean", "--orphans"])["scratches"], json!(1));
    assert_eq!(env.scratches(), [""; 0]);
}

#[test]
fn entries_are_evicted_if_the_disk_of_the_cache_is_full() {
    let env = TestEnv::with_project();
    env.put("one", &noise(1, 3 << 20));
    // Room for one base with a file of three megabytes and for a scratch, not for two bases.
    let script = "set -e; mount -t tmpfs -o size=6m,mode=700 t \"$CACHE\"; \"$AVFS\" import > /dev/null; \
        \"$RUN\" --quiet --fork a --scratch memory -- true; head -c 3145728 /dev/urandom > one; \
        \"$AVFS\" import --fork main > /dev/null; \
        exec \"$RUN\" --json --fork b --scratch memory -- wc -c one";
    let answer = Running::start(&mut on_a_host(&env, script)).answer().expect(0);
    let envelope = answer.envelope();
    assert_eq!(envelope["result"]["stdout"], json!("3145728 one\n"));
    assert!(notes(&envelope).contains(&"cache.made_room"), "{envelope}");
    env.assert_sound();
}

#[test]
fn directories_kept_for_forks_are_listed_and_deleted_with_the_vault() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "task", "--home", "persistent"], "echo kept > ~/state");
    let kept = |env: &TestEnv| env.avfs_result(&["du"])["cache"]["fork_dirs"].clone();
    assert_eq!(kept(&env)["count"], json!(1));
    assert_ne!(kept(&env)["bytes"], json!(0));
    // The place of a look at a large directory is not one of them, beside a home or alone.
    let home = std::fs::read_dir(env.at("cache/avfs/forks")).unwrap().next().unwrap().unwrap().path();
    let fork = std::fs::read_dir(&home).unwrap().next().unwrap().unwrap().path();
    std::fs::create_dir(home.join("other")).unwrap();
    for fork in [&fork, &home.join("other")] {
        std::fs::write(fork.join("looked"), "x").unwrap();
    }
    assert_eq!(kept(&env)["count"], json!(1));
    // They cannot be recreated, so `clean` keeps them.
    env.avfs(&["clean"]).expect(0);
    assert_eq!(env.ok(&["--fork", "task", "--home", "persistent"], "cat ~/state"), "kept\n");
    env.avfs(&["vault", "delete", "--yes"]).expect(0);
    env.avfs(&["init"]).expect(0);
    assert_eq!(kept(&env)["count"], json!(0));
}
