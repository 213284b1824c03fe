//! Tried: keeping avfs busy with a version that is deep, or that claims millions of entries in a few stored bytes.
//! Stopped by: the work grows with the number of paths, not with their depth, and the loops look for a signal, which
//! ends avfs with nothing written, until the first name changes.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::env::{Answer, Running, TestEnv, avfs, wait_for};
use crate::support::inject;
use crate::support::pause::Pauses;
use crate::support::snapshot;

/// More entries than loops may pass before they look for a signal.
const LOOKED_AFTER_MAX: usize = 1024;

/// A project, and a fork with a directory that has two names, both of which have two names, and so on.
fn grown(rounds: u32) -> TestEnv {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.avfs(&["fork", "create", "f"]).expect(0);
    let edit = |words: &[&str]| env.avfs(&[words, &["--fork", "f"]].concat()).expect(0);
    edit(&["mkdir", "-p", "d/x"]);
    for _ in 0..rounds {
        edit(&["cp", "-r", "d", "e"]);
        edit(&["mkdir", "t"]);
        edit(&["mv", "d", "t/a"]);
        edit(&["mv", "e", "t/b"]);
        edit(&["mv", "t", "d"]);
    }
    env
}

fn command(env: &TestEnv, words: &[&str]) -> Command {
    let mut command = env.clean(&avfs());
    command.args(words);
    command
}

/// Sends SIGINT while the command is at a pause point.
#[track_caller]
fn interrupted(env: &TestEnv, command: &mut Command, point: &str) -> (Answer, Vec<String>) {
    let pauses = Pauses::new(&env.at(""));
    pauses.hold(point);
    let mut running = Running::start(pauses.set(command));
    pauses.wait(point, &mut running.child);
    running.signal(Signal::INT);
    // avfs has a thread for signals; avfs-run reads them where it looks.
    if command.get_program() == avfs().as_os_str() {
        let mut noticed = || pauses.reached().iter().any(|point| point == "stopped") || running.has_ended();
        wait_for("the signal is noticed", &mut noticed);
    }
    pauses.release(point);
    (running.answer(), pauses.reached())
}

fn looks(points: &[String]) -> usize {
    points.iter().filter(|point| *point == "look").count()
}

/// The number of looks of a command that is not interrupted.
#[track_caller]
fn looks_of(env: &TestEnv, command: &mut Command) -> usize {
    let pauses = Pauses::new(&env.at(""));
    Running::start(pauses.set(command)).answer().expect(0);
    looks(&pauses.reached())
}

fn state(env: &TestEnv) -> snapshot::Snapshot {
    snapshot::take_without(&env.project(), &[".avfs"])
}

fn staged(env: &TestEnv) -> usize {
    let names = std::fs::read_dir(env.project().join(".avfs")).unwrap().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".avfs-export-")).count()
}

#[test]
fn comparing_and_applying_many_entries_can_be_interrupted() {
    let env = grown(9);
    let entries = env.avfs_result(&["diff", "main", "f"])["change_counts"]["added"].as_u64().unwrap();
    let entries = usize::try_from(entries).unwrap();
    assert!(entries > LOOKED_AFTER_MAX, "{entries}");
    // Show compares with the first parent: a version that gets everything at once.
    env.avfs(&["fork", "create", "g"]).expect(0);
    env.avfs(&["restore", "f", "--fork", "g"]).expect(0);
    let before = state(&env);
    for words in [
        &["diff", "main", "f"][..],
        &["show", "g"],
        &["apply", "f", "--dry-run"],
        &["apply", "f"],
        &["apply", "f", "--exclude", "b"],
    ] {
        let is_apply = words.starts_with(&["apply"]) && !words.contains(&"--dry-run");
        // Control: without a signal it ends, and the loops look often enough.
        let all = looks_of(&env, &mut command(&env, words));
        assert!(all * LOOKED_AFTER_MAX >= entries, "{words:?}: {all} looks, {entries} entries");
        if is_apply {
            assert_ne!(snapshot::differences(&before, &state(&env)), Vec::<String>::new());
            env.avfs(&["unapply", "f"]).expect(0);
        }
        let before = state(&env);
        for number in [1, all / 2, all - 1] {
            let point = format!("look#{number}");
            let words = [&["--json"], words].concat();
            let (answer, points) = interrupted(&env, &mut command(&env, &words), &point);
            let answer = answer.expect(130).envelope();
            assert_eq!(answer["error"]["code"], json!("interrupted"), "{answer}");
            assert!(looks(&points) <= number + 1, "{words:?}: {} looks after {point}", looks(&points));
            assert_eq!(snapshot::differences(&before, &state(&env)), Vec::<String>::new(), "{words:?}");
            assert_eq!(staged(&env), 0, "{words:?}");
        }
    }
    env.assert_sound();
}

/// Between the command and the first name that changes.
#[test]
fn apply_of_a_run_can_be_interrupted() {
    let env = TestEnv::with_project();
    let line = "mkdir new; cd new; i=0; while [ $i -lt 700 ]; do : > f$i; i=$((i+1)); done";
    let run = || env.command(&["--apply", "--json", "--shell", line]);
    let before = state(&env);
    for point in ["look#1", "look#6", "judge#1", "check-again"] {
        let (answer, points) = interrupted(&env, &mut run(), point);
        let envelope = answer.expect(130).envelope();
        assert_eq!(envelope["error"]["code"], json!("interrupted"), "{envelope}");
        assert!(!points.contains(&"rename".to_owned()), "{point}: {points:?}");
        assert_eq!(snapshot::differences(&before, &state(&env)), Vec::<String>::new(), "{point}");
        assert_eq!(staged(&env), 0, "{point}");
        // The run is kept, and nothing of it counts as applied.
        let runs = env.avfs_result(&["runs", "list"]);
        assert_eq!(
            (&runs["runs"][0]["state"], &runs["runs"][0]["applied_at"]),
            (&json!("completed"), &json!(null))
        );
        let nothing = env.avfs(&["--json", "unapply", "last"]).expect(1).envelope();
        assert_eq!(nothing["error"]["code"], json!("unapply.nothing"), "{nothing}");
    }
    // Control: without a signal it is applied.
    env.avfs(&["apply", "last"]).expect(0);
    assert!(env.project().join("new/f699").exists());
    env.assert_sound();
}

#[test]
fn making_a_large_base_is_announced_and_can_be_interrupted() {
    let env = grown(22);
    let log = env.avfs_result(&["log", "f"]);
    let entries = log["versions"][0]["entries"].as_u64().unwrap_or_else(|| panic!("{log}"));
    assert!(entries > 12_000_000, "{entries}");
    let announced = format!("the base has {entries} files and directories");
    let bases = || {
        std::fs::read_dir(env.at("cache/avfs/base")).map_or(0, |names| {
            names.flatten().filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
        })
    };
    for point in ["look#1", "look#9"] {
        let mut run = env.command(&["--fork", "f", "--base", "cached", "--", "true"]);
        let (answer, points) = interrupted(&env, &mut run, point);
        let answer = answer.expect(130);
        assert!(answer.stderr.contains(&announced), "{answer:?}");
        assert!(looks(&points) <= 10, "{point}: {} looks", looks(&points));
        let (answer, points) = interrupted(&env, &mut command(&env, &["materialize", "f"]), point);
        let answer = answer.expect(130);
        assert!(answer.stderr.contains(&announced), "{answer:?}");
        assert!(looks(&points) <= 10, "{point}: {} looks", looks(&points));
        assert_eq!(bases(), 0);
    }
    // Control: a base that is not large is made without a word.
    let answer =
        Running::start(&mut env.command(&["--fork", "g", "--base", "cached", "--", "true"])).answer();
    let answer = answer.expect(0);
    assert!(!answer.stderr.contains("the base has"), "{answer:?}");
    assert_eq!(bases(), 1);
    // Nothing is left of the unfinished ones.
    assert_eq!(std::fs::read_dir(env.at("cache/avfs/base")).unwrap().count(), 1);
}

/// The calls of `apply` and `unapply` of a directory of this depth, without those of the runtime.
fn calls(depth: usize) -> [usize; 2] {
    let env = TestEnv::with_project();
    // Long names, so that a path is soon too long for one call.
    let program = format!(
        "import os
for number in range({depth}):
    os.mkdir('d' * 100)
    os.chdir('d' * 100)
    open('file', 'w').close()"
    );
    env.run(&["--fork", "f", "--", "python3", "-c", &program]).expect(0);
    ["apply", "unapply"].map(|verb| {
        let trace = env.at(&format!("trace-{verb}"));
        let mut strace = inject::traced(env.clean(Path::new("strace")), &trace);
        Running::start(strace.arg(avfs()).args([verb, "f"])).answer().expect(0);
        let text = std::fs::read_to_string(trace).unwrap();
        // Calls on files. Those on memory and for threads depend on other things.
        let counted =
            ["openat2(", "newfstatat(", "fstat(", "getdents64(", "unlinkat(", "mkdirat(", "faccessat2("];
        text.lines().filter(|line| counted.iter().any(|name| line.contains(name))).count()
    })
}

#[test]
fn work_of_an_apply_grows_with_the_number_of_paths() {
    let [small, middle, large] = [75, 150, 300].map(calls);
    for verb in 0..2 {
        let (first, second) = (middle[verb] - small[verb], large[verb] - middle[verb]);
        // 75 levels, then 150 more: twice as many calls, and four times as many if the work were quadratic. Control:
        // opening each path from the root takes five times as many.
        assert!(second <= 3 * first, "{small:?} {middle:?} {large:?}");
    }
}
