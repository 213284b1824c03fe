//! An `avfs-run` that dies, a vault that disappears, and concurrent runs: no completed work is lost.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{Answer, Running, TestEnv, wait_for};
use crate::shared::{Shared, alive, children, is_dead, kill_at, marker, points, spread};
use crate::support::pause::Pauses;

/// The number of kills of one test, spread over all points that a run passes.
const KILLS: usize = 24;

fn run_states(env: &TestEnv) -> Vec<String> {
    let list = env.avfs_result(&["runs", "list", "--limit", "1000"]);
    list["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap().to_owned()).collect()
}

/// Kills runs at points spread over their whole duration, then checks the remaining state.
#[track_caller]
fn killed_at_every_moment(options: &[&str]) {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    crate::support::many_files(&env.project().join("many"), 8);
    // With settled timestamps every run trusts the same files and passes the same points.
    crate::support::settle();
    let line = format!(
        ": {marker}; for n in 1 2 3 4 5 6; do echo $n > made-$n; done; head -c 300000 /dev/urandom > big; rm -rf src"
    );
    env.shell(options, &line).expect(0);
    let mut words = options.to_vec();
    words.extend(["--shell", &line]);
    let (answer, points) = points(&env, &mut env.command(&words));
    answer.expect(0);
    for point in ["launched", "executing", "capturing", "commit", "session-Captured"] {
        assert!(points.iter().any(|reached| reached == point), "{points:?}");
    }
    for number in spread(points.len(), KILLS) {
        kill_at(&env, &mut env.command(&words), &format!("#{number}"));
        // The kernel kills the sandbox after its supervisor.
        wait_for("all processes are dead", || alive(&marker).is_empty());
    }
    env.assert_sound();
    assert!(
        std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .all(|line| { !line.contains(env.at("cache").to_str().unwrap()) })
    );
    // The next run removes leftovers and completes interrupted captures; the remaining runs can be recovered.
    let before = env.scratches();
    let next = env.json(options, "echo alive");
    assert_eq!(next["result"]["stdout"], json!("alive\n"), "{next}");
    let recoverable = env.avfs_result(&["recover", "--list"]);
    let ids: Vec<&str> =
        recoverable["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect();
    assert_eq!(env.scratches(), ids, "before the sweep: {before:?}");
    let noted =
        next["result"]["notes"].as_array().unwrap().iter().filter(|note| note["code"] == "run.recoverable");
    assert_eq!(noted.count(), ids.len());
    let finished = next["result"]["notes"].as_array().unwrap();
    let finished = finished.iter().filter(|note| note["code"] == "run.recovered").count();
    let completed = run_states(&env).iter().filter(|state| *state == "completed").count();
    assert!(completed >= finished + 2, "{finished} were finished, {completed} are completed");
    env.avfs(&["recover"]).expect(0);
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
    assert!(run_states(&env).iter().all(|state| state == "completed" || state == "interrupted"));
}

#[test]
fn a_run_in_memory_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--scratch", "memory"]);
}

#[test]
fn a_run_on_disk_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--scratch", "disk"]);
}

#[test]
fn a_run_on_a_fork_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--scratch", "disk", "--fork", "f"]);
}

#[test]
fn a_run_on_a_fork_over_the_directory_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--scratch", "disk", "--fork", "f", "--base", "live"]);
}

#[test]
fn a_run_with_a_touched_base_in_memory_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--scratch", "memory", "--base", "touched"]);
}

#[test]
fn a_run_with_a_touched_base_on_disk_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--scratch", "disk", "--base", "touched"]);
}

#[test]
fn a_run_on_a_copy_can_be_killed_at_any_moment() {
    killed_at_every_moment(&["--backend", "copy"]);
}

#[test]
fn killing_the_supervisor_kills_all_processes() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let line = format!(
        ": {marker}; setsid sh -c 'trap \"\" TERM HUP; : > $S/one; sleep 1000; : {marker}' & : > $S/two; sleep 1000"
    );
    let running = shared.start(&env, &[], &line);
    let running = shared.wait_for_word(running, "one");
    let running = shared.wait_for_word(running, "two");
    assert!(alive(&marker).len() >= 3);
    running.signal(Signal::KILL);
    assert_eq!(running.answer().signal, Some(9));
    wait_for("all processes are dead", || alive(&marker).is_empty());
    assert_eq!(env.scratches().len(), 1);
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
    assert_eq!(run_states(&env), ["completed", "interrupted"]);
}

/// Waits inside the sandbox until the test creates `go`.
const MEET: &str = ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done";

/// Lets a run end while its vault is missing: its changes stay in the scratch.
#[track_caller]
fn end_without_vault(env: &TestEnv, shared: &Shared, running: Running) -> Answer {
    let (there, away) = (env.project().join(".avfs"), env.at("away"));
    std::fs::rename(&there, &away).unwrap();
    shared.put("go");
    let failed = running.answer().expect(123);
    std::fs::rename(&away, &there).unwrap();
    failed
}

#[test]
fn the_next_run_completes_an_interrupted_capture() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    env.shell(&["--fork", "f"], "echo early > early").expect(0);
    let running = shared.start(&env, &["--json", "--fork", "f"], &format!("{MEET}; echo kept > kept"));
    let running = shared.wait_for_word(running, "ready");
    let failed = end_without_vault(&env, &shared, running).envelope();
    // It starts from the changes of the previous run, as if nothing had happened.
    let next = env.json(&["--fork", "f"], "cat early kept");
    assert_eq!(next["result"]["stdout"], "early\nkept\n", "{next}");
    let notes = next["result"]["notes"].as_array().unwrap();
    let id = failed["run_id"].as_str().unwrap();
    let note = notes.iter().find(|note| note["code"] == "run.recovered").unwrap_or_else(|| panic!("{next}"));
    let text = note["text"].as_str().unwrap();
    assert!(text.contains(id) && text.contains("now on fork f"), "{text}");
    assert_eq!(env.avfs_result(&["recover", "--list"])["runs"], json!([]));
    assert_eq!(env.scratches(), [""; 0]);
    assert_eq!(run_states(&env), ["completed", "completed", "completed"]);
    env.assert_sound();
}

#[test]
fn changes_survive_if_the_vault_is_moved_away() {
    for options in [
        &["--scratch", "memory"][..],
        &["--scratch", "disk"],
        &["--base", "cached", "--scratch", "memory"],
        &["--backend", "copy"],
        &["--fork", "f", "--scratch", "memory"],
        &["--fork", "f", "--scratch", "disk"],
    ] {
        let env = TestEnv::with_project();
        let shared = Shared::new(&env);
        if options.contains(&"--fork") {
            // A file that a recovery must not add to the main fork.
            env.shell(&["--fork", "f"], "echo early > early").expect(0);
        }
        let mut words = vec!["--json"];
        words.extend(options);
        let line = format!(
            "rm -f early; {MEET}; echo kept > kept; rm -r src; mkfifo p; chmod 000 kept; mkdir d; chmod 500 d"
        );
        let running = shared.start(&env, &words, &line);
        let running = shared.wait_for_word(running, "ready");
        let (there, away) = (env.project().join(".avfs"), env.at("away"));
        std::fs::rename(&there, &away).unwrap();
        shared.put("go");
        let envelope = running.answer().expect(123).envelope();
        assert_eq!(envelope["error"]["code"], json!("capture.failed"), "{options:?}: {envelope}");
        assert!(envelope["error"]["hint"].as_str().unwrap().contains("avfs recover "), "{envelope}");
        assert_eq!(env.scratches().len(), 1, "{options:?}");
        std::fs::rename(&away, &there).unwrap();
        let recovered = env.avfs_result(&["recover"]);
        let run = &recovered["runs"][0];
        assert_eq!(run["action"], json!("captured"), "{options:?}: {recovered}");
        let listed = env.avfs(&["ls", run["fork"].as_str().unwrap()]).expect(0).text();
        let names: Vec<&str> = listed.split_whitespace().collect();
        for (name, there) in [
            ("kept", true),
            ("README.md", true),
            ("src/", false),
            ("early", false),
            ("p", true),
            ("d/", true),
        ] {
            let found =
                names.iter().any(|found| found.trim_end_matches(['/', '|']) == name.trim_end_matches('/'));
            assert_eq!(found, there, "{options:?}: {name}: {listed}");
        }
        assert_eq!(env.cat(run["fork"].as_str().unwrap(), "kept"), "kept\n");
        assert_eq!(env.scratches(), [""; 0]);
        env.assert_sound();
    }
}

#[test]
fn changes_survive_if_the_vault_is_deleted() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let running = shared.start(&env, &["--base", "cached"], &format!("{MEET}; echo kept > kept"));
    let running = shared.wait_for_word(running, "ready");
    std::fs::remove_dir_all(env.project().join(".avfs")).unwrap();
    shared.put("go");
    let answer = running.answer().expect(123);
    assert!(answer.stderr.contains("they are kept in "), "{answer:?}");
    let kept = env.at("cache/avfs/run").join(&env.scratches()[0]).join("upper/kept");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "kept\n");
}

#[test]
fn changes_of_a_run_whose_vault_was_replaced_are_listed_and_can_be_discarded() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let running = shared.start(&env, &["--scratch", "disk"], &format!("{MEET}; echo kept > kept"));
    let running = shared.wait_for_word(running, "ready");
    env.avfs(&["vault", "delete", "--yes"]).expect(0);
    shared.put("go");
    let failed = running.answer().expect(123);
    assert!(failed.stderr.contains("no other vault can record the changes"), "{failed:?}");
    env.avfs(&["init"]).expect(0);
    assert_eq!(env.avfs_result(&["recover", "--list"])["runs"], json!([]));
    // A sweep keeps them, since the vault may come back.
    assert_eq!(env.avfs_result(&["clean"])["scratches"], json!(0));
    let du = env.avfs_result(&["du"]);
    assert_eq!(du["scratch"]["orphaned"]["count"], json!(1), "{du}");
    let text = env.avfs(&["du"]).expect(0).text();
    assert!(text.contains(" 1 scratch to recover\n") && text.contains("avfs clean --orphans"), "{text}");
    assert!(!text.contains("recover --list"), "{text}");
    assert_eq!(env.avfs_result(&["clean", "--orphans"])["scratches"], json!(1));
    assert_eq!(env.scratches(), [""; 0]);
}

#[test]
fn changes_can_be_recovered_from_a_moved_vault_although_another_is_in_its_place() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    env.ok(&[], "true");
    let running = shared.start(&env, &["--scratch", "disk"], &format!("{MEET}; echo kept > kept"));
    let running = shared.wait_for_word(running, "ready");
    let moved = env.at("moved");
    std::fs::rename(env.project().join(".avfs"), &moved).unwrap();
    env.avfs(&["init"]).expect(0);
    shared.put("go");
    let failed = running.answer().expect(123);
    assert!(failed.stderr.contains("if the vault was moved, move it back"), "{failed:?}");
    let vault = moved.join("vault.db");
    let words = ["--vault", vault.to_str().unwrap(), "recover"];
    let recovered = env.avfs_result(&words);
    assert_eq!(recovered["runs"][0]["action"], json!("captured"), "{recovered}");
    assert_eq!(env.scratches(), [""; 0]);
}

/// Runs two commands on a fork that start together; both continue when both have started.
fn meet(env: &TestEnv, first: &str, second: &str) -> [Value; 2] {
    env.ok(&["--fork", "f"], "echo base > base");
    let shared = Shared::new(env);
    let start = |name: &str, line: &str| {
        let line = format!(": > $S/{name}; while [ ! -e $S/go ]; do sleep 0.02; done; {line}");
        shared.start(env, &["--json", "--fork", "f"], &line)
    };
    let runs = [start("one", first), start("two", second)];
    let [one, two] = runs;
    let runs = [shared.wait_for_word(one, "one"), shared.wait_for_word(two, "two")];
    shared.put("go");
    runs.map(|run| run.answer().expect(0).envelope())
}

fn landings(answers: &[Value]) -> Vec<&str> {
    let mut landings: Vec<&str> =
        answers.iter().map(|answer| answer["result"]["landing"].as_str().unwrap()).collect();
    landings.sort_unstable();
    landings
}

#[test]
fn concurrent_runs_that_change_different_paths_both_land() {
    let env = TestEnv::with_project();
    let answers = meet(&env, "echo one > one; rm README.md", "echo two > two; echo x > src/new");
    assert_eq!(landings(&answers), ["advanced", "rebased"]);
    let seen = env.ok(&["--fork", "f"], "cat base one two src/new; ls");
    assert_eq!(seen, "base\none\ntwo\nx\nbase\nlink\none\nsrc\ntwo\n");
    // Only its own changes are reported for a run.
    for answer in &answers {
        assert_eq!(answer["result"]["change_counts"]["total"], json!(2), "{answer}");
    }
    env.assert_sound();
}

#[test]
fn concurrent_runs_that_create_the_same_directory_both_land() {
    let env = TestEnv::with_project();
    let answers = meet(&env, "mkdir -p q/deep; echo 1 > q/one", "mkdir -p q/deep; echo 2 > q/deep/two");
    assert_eq!(landings(&answers), ["advanced", "rebased"]);
    assert_eq!(env.ok(&["--fork", "f"], "cat q/one q/deep/two"), "1\n2\n");
    env.assert_sound();
}

#[test]
fn concurrent_runs_that_change_the_same_path_lose_nothing() {
    let env = TestEnv::with_project();
    let answers = meet(&env, "echo one > same", "echo two > same");
    assert_eq!(landings(&answers), ["advanced", "diverted"]);
    let diverted = answers.iter().find(|answer| answer["result"]["landing"] == "diverted").unwrap();
    assert_eq!(diverted["result"]["notes"][0]["code"], json!("fork.diverted"));
    let fork = diverted["result"]["fork"].as_str().unwrap();
    let mut both = [env.cat("f", "same"), env.cat(fork, "same")];
    both.sort();
    assert_eq!(both, ["one\n", "two\n"]);
    env.assert_sound();
}

#[test]
fn a_run_on_a_fork_that_moved_names_the_command_that_drops_its_changes() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    env.ok(&["-q", "--fork", "f"], "true");
    let line = "echo one > same; : > $S/started; while [ ! -e $S/go ]; do sleep 0.02; done";
    let first = shared.start(&env, &["--fork", "f"], line);
    shared.wait_for("started");
    let second = env.shell(&["--fork", "f"], "echo two > same").expect(0).stderr;
    assert!(second.contains("  back:    avfs undo f\n"), "{second}");
    shared.put("go");
    let first = first.answer().expect(0).stderr;
    let (_, id) = first.split_once("  drop:    avfs discard run:").unwrap_or_else(|| panic!("{first}"));
    env.avfs(&["discard", &format!("run:{}", id.lines().next().unwrap().trim())]).expect(0);
    assert!(!first.contains("  back: "), "{first}");
}

#[test]
fn many_concurrent_runs_do_not_disturb_each_other() {
    let env = TestEnv::new();
    crate::support::many_files(&env.project(), 80);
    env.avfs(&["init"]).expect(0);
    let shared = Shared::new(&env);
    let runs: Vec<_> = (0..8)
        .map(|n| {
            let line = format!(
                ": > $S/{n}; while [ ! -e $S/go ]; do sleep 0.02; done; echo {n} > mine; \
                                find . -name 'f*' -exec cat {{}} + | cksum"
            );
            let base = if n % 2 == 0 { "live" } else { "cached" };
            shared.start(&env, &["--json", "--base", base], &line)
        })
        .collect();
    let runs: Vec<_> = (0..8).zip(runs).map(|(n, run)| shared.wait_for_word(run, &n.to_string())).collect();
    shared.put("go");
    let answers: Vec<Value> = runs.into_iter().map(|run| run.answer().expect(0).envelope()).collect();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["result"]["stdout"], answers[0]["result"]["stdout"]);
        let run = format!("run:{}", answer["result"]["run_id"].as_str().unwrap());
        assert_eq!(env.cat(&run, "mine"), format!("{n}\n"));
    }
    env.assert_sound();
    assert_eq!(env.scratches(), [""; 0]);
}

/// Holds the write lock of the vault until `release` is created.
const HOLD: &str = "import os, sqlite3, sys, time\n\
vault = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
vault.execute('BEGIN IMMEDIATE')\n\
open(sys.argv[2] + '/held', 'w').close()\n\
while not os.path.exists(sys.argv[2] + '/release'): time.sleep(0.02)\n\
vault.execute('ROLLBACK')\n";

#[test]
fn a_run_waits_for_a_locked_vault() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let shared = Shared::new(&env);
    let mut holder = env.clean(std::path::Path::new("python3"));
    let holding = Running::start(holder.args(["-c", HOLD]).arg(env.vault_file()).arg(shared.text()));
    let holding = shared.wait_for_word(holding, "held");
    let pauses = Pauses::new(&env.at(""));
    let mut command = shared.command(&env, &["--json"], ": > $S/ran; echo x > x");
    let running = Running::start(pauses.set(&mut command));
    let mut running = shared.wait_for_word(running, "ran");
    // Init is reaped after the changes have landed, and is dead long before.
    wait_for("the command has ended", || children(running.child.id()).into_iter().all(is_dead));
    wait_for("the run is about to write", || pauses.reached().last().is_some_and(|point| point == "write"));
    // Its changes cannot land yet.
    assert!(!running.has_ended(), "the run did not wait for the vault");
    shared.put("release");
    holding.answer().expect(0);
    let envelope = running.answer().expect(0).envelope();
    assert_eq!(envelope["result"]["change_counts"]["added"], json!(1), "{envelope}");
    env.assert_sound();
}

#[test]
fn a_run_that_keeps_no_changes_is_completed_without_a_capture() {
    for options in [&["--readonly"][..], &["--fork", "f", "--readonly"], &["--fork", "f", "--discard"]] {
        let env = TestEnv::with_project();
        let shared = Shared::new(&env);
        let mut words = vec!["--json"];
        words.extend(options);
        let running = shared.start(&env, &words, MEET);
        let running = shared.wait_for_word(running, "ready");
        end_without_vault(&env, &shared, running);
        let recovered = env.avfs_result(&["recover"]);
        assert_eq!(recovered["runs"][0]["action"], json!("captured"), "{options:?}: {recovered}");
        assert_eq!(run_states(&env), ["completed"], "{options:?}");
        assert_eq!(env.scratches(), [""; 0]);
        env.assert_sound();
    }
}

/// A run can continue after its fork was deleted and unreferenced objects were removed.
#[test]
fn gc_keeps_the_version_that_a_run_started_from() {
    for prune in [false, true] {
        let env = TestEnv::with_project();
        let shared = Shared::new(&env);
        env.shell(&["--fork", "f"], "echo early > early").expect(0);
        let running = shared.start(&env, &["--json", "--fork", "f"], &format!("{MEET}; echo kept > kept"));
        let running = shared.wait_for_word(running, "ready");
        if prune {
            env.avfs(&["write", "--fork", "f", "later", "--text", "later"]).expect(0);
            env.avfs(&["prune", "--keep-last", "1"]).expect(0);
        } else {
            env.avfs(&["fork", "delete", "f", "--force"]).expect(0);
        }
        env.avfs(&["gc"]).expect(0);
        shared.put("go");
        let answer = running.answer().expect(0);
        let fork = answer.envelope()["result"]["fork"].as_str().unwrap().to_owned();
        assert_eq!(env.avfs(&["cat", &fork, "early"]).expect(0).stdout, b"early\n", "prune: {prune}");
        assert_eq!(env.avfs(&["cat", &fork, "kept"]).expect(0).stdout, b"kept\n", "prune: {prune}");
        env.assert_sound();
    }
}

/// The same for a run that died and can be recovered.
#[test]
fn gc_keeps_the_version_that_a_recovery_needs() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    env.shell(&["--fork", "f"], "echo early > early").expect(0);
    let running = shared.start(&env, &["--fork", "f"], &format!("{MEET}; echo kept > kept"));
    let running = shared.wait_for_word(running, "ready");
    end_without_vault(&env, &shared, running);
    env.avfs(&["fork", "delete", "f", "--force"]).expect(0);
    env.avfs(&["gc"]).expect(0);
    let recovered = env.avfs_result(&["recover"]);
    let fork = recovered["runs"][0]["fork"].as_str().unwrap().to_owned();
    assert_eq!(env.avfs(&["cat", &fork, "early"]).expect(0).stdout, b"early\n", "{recovered}");
    assert_eq!(env.avfs(&["cat", &fork, "kept"]).expect(0).stdout, b"kept\n", "{recovered}");
    env.assert_sound();
}

/// Makes the capture of a run in memory fail, recovers the run, and returns the fork that it landed on.
#[track_caller]
fn recovered_from_memory(env: &TestEnv, command: &mut std::process::Command) -> String {
    env.avfs(&["import"]).expect(0);
    env.avfs(&["quota", "set", "--files", "1"]).expect(0);
    let failed = env.answer(command).expect(123);
    assert!(failed.stderr.contains("they are kept in "), "{failed:?}");
    env.avfs(&["quota", "set", "--files", "none"]).expect(0);
    let recovered = env.avfs_result(&["recover"]);
    assert_eq!(recovered["runs"][0]["action"], json!("captured"), "{recovered}");
    env.assert_sound();
    recovered["runs"][0]["fork"].as_str().unwrap().to_owned()
}

#[test]
fn changes_in_memory_are_saved_without_external_programs() {
    let env = TestEnv::with_project();
    let line = "echo kept > kept; /bin/rm -r src; for n in 1 2 3 4 5; do echo $n > $n; done";
    let words = ["--scratch", "memory", "--fork", "f", "--", "/bin/sh", "-c", line];
    let fork = recovered_from_memory(&env, env.command(&words).env("PATH", env.at("home")));
    assert_eq!(env.cat(&fork, "kept"), "kept\n");
    assert_eq!(env.avfs(&["ls", &fork]).expect(0).text(), "1\n2\n3\n4\n5\nREADME.md\nkept\nlink\n");
}

#[test]
fn changes_in_memory_are_saved_from_paths_longer_than_path_max() {
    let env = TestEnv::with_project();
    let name = "d".repeat(200);
    let line = format!(
        "for n in $(seq 30); do mkdir {name}; cd -P {name} || cd ./{name}; done; echo deep > f; chmod 000 f"
    );
    let fork = recovered_from_memory(
        &env,
        &mut env.command(&["--scratch", "memory", "--fork", "f", "--shell", &line]),
    );
    assert_eq!(env.cat(&fork, &format!("{}/f", vec![name; 30].join("/"))), "deep\n");
}

#[test]
fn a_run_with_an_unreadable_record_does_not_block_others() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.avfs(&["quota", "set", "--files", "1"]).expect(0);
    for name in ["bad", "good", "other"] {
        env.shell(&["--scratch", "disk", "--fork", name], &format!("echo {name} > {name}")).expect(123);
    }
    env.avfs(&["quota", "set", "--files", "none"]).expect(0);
    let scratch = |id: &str| env.at("cache/avfs/run").join(id);
    let of_fork = |name: &str| {
        let ids = env.scratches();
        ids.into_iter().find(|id| scratch(id).join("upper").join(name).exists()).unwrap()
    };
    let (bad, good, other) = (of_fork("bad"), of_fork("good"), of_fork("other"));
    std::fs::write(scratch(&bad).join("outcome"), b"\xff{").unwrap();
    let listed = env.avfs(&["recover", "--list"]).expect(0);
    assert!(listed.text().contains(&good) && listed.text().contains(&other), "{listed:?}");
    assert!(listed.stderr.contains(&format!("run {bad} cannot be recovered")), "{listed:?}");
    assert_eq!(env.avfs_result(&["recover", "--list"])["unreadable"][0]["run_id"], json!(bad));
    env.avfs(&["recover", &good]).expect(0);
    assert_eq!(env.cat("good", "good"), "good\n");
    env.avfs(&["recover", "--discard", &other]).expect(0);
    let runs = env.avfs(&["runs", "list"]).expect(0).text();
    let given_up = runs.lines().find(|line| line.starts_with(&other)).unwrap();
    assert!(given_up.contains("  failed  ") && !given_up.contains("no changes"), "{runs}");
    let refused = env.avfs(&["--json", "recover", &bad]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], json!("scratch.bad_record"));
    // Other runs work, and the unreadable scratch stays for inspection.
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [bad]);
}
