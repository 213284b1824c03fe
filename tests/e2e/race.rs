//! `avfs race`: one winner, whose changes are kept; of the others only the record remains.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, wait_for};
use crate::shared::{Shared, alive, marker};
use crate::support::pause::Pauses;

#[track_caller]
fn race(env: &TestEnv, words: &[&str]) -> Value {
    let mut all = vec!["race"];
    all.extend(words);
    env.avfs_result(&all)
}

/// The envelope of a race without a winner.
#[track_caller]
fn lost(env: &TestEnv, words: &[&str]) -> Value {
    let mut all = vec!["--json", "race"];
    all.extend(words);
    env.avfs(&all).expect(1).envelope()
}

fn forks(env: &TestEnv) -> Vec<String> {
    let list = env.avfs_result(&["fork", "list"]);
    let names = list["forks"].as_array().unwrap().iter();
    names.map(|fork| fork["name"].as_str().unwrap().to_owned()).collect()
}

fn states(result: &Value) -> Vec<&str> {
    let attempts = result["attempts"].as_array().unwrap().iter();
    attempts.map(|attempt| attempt["state"].as_str().unwrap()).collect()
}

#[test]
fn the_successful_attempt_with_the_lowest_number_is_kept_for_review_and_can_be_applied() {
    let env = TestEnv::with_project();
    env.put("new-on-the-host", b"seen\n");
    let line = "cat new-on-the-host; echo $AVFS_ATTEMPT > made; [ $AVFS_ATTEMPT -gt 1 ]";
    let result = race(&env, &["-n", "4", "--shell", line]);
    assert_eq!(result["winner"], 2);
    assert_eq!(states(&result), ["failed", "won", "succeeded", "succeeded"]);
    let fork = result["fork"].as_str().unwrap();
    assert_eq!(forks(&env), ["main", fork]);
    assert_eq!(env.cat(fork, "made"), "2\n");
    assert_eq!(env.cat(result["version"].as_str().unwrap(), "made"), "2\n");
    let runs = env.avfs_result(&["runs", "list"]);
    let runs = runs["runs"].as_array().unwrap();
    let discarded = runs.iter().filter(|run| run["discarded_at"].is_string()).count();
    assert_eq!((runs.len(), discarded), (4, 3));
    env.avfs(&["apply", fork]).expect(0);
    assert_eq!(std::fs::read(env.project().join("made")).unwrap(), b"2\n");
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}

#[test]
fn the_summary_says_how_long_the_changes_of_the_winner_are_kept() {
    let env = TestEnv::with_project();
    env.avfs(&["init"]).expect(0);
    let summary = |more: &[&str]| {
        let text =
            env.avfs(&[&["race", "-n", "1"], more, &["--shell", "echo x > x"]].concat()).expect(0).text();
        (text.contains("  take:    avfs apply "), text.contains("\n  kept until 20"))
    };
    assert_eq!(summary(&[]), (true, true));
    assert_eq!(summary(&["--fork", "best"]), (true, false), "a persistent fork does not expire");
}

#[test]
fn the_summary_offers_no_apply_without_a_directory() {
    let env = TestEnv::with_project();
    let copy = env.at("copy.db");
    env.avfs(&["init"]).expect(0);
    env.avfs(&["vault", "copy", copy.to_str().unwrap()]).expect(0);
    let words = ["--vault", copy.to_str().unwrap(), "race", "-n", "1", "--shell", "echo x > x"];
    let text = env.avfs(&words).expect(0).text();
    assert!(text.contains(" export run:") && !text.contains(" apply "), "{text}");
}

#[test]
fn the_first_attempt_to_succeed_stops_the_others() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    let line = format!("echo $AVFS_ATTEMPT > made; [ $AVFS_ATTEMPT = 2 ] || sleep 1000; : {marker}");
    let result = race(&env, &["-n", "4", "--jobs", "3", "--until-success", "--shell", &line]);
    assert_eq!(states(&result), ["stopped", "won", "stopped", "not_begun"]);
    wait_for("all processes are dead", || alive(&marker).is_empty());
    assert_eq!(forks(&env), ["main", result["fork"].as_str().unwrap()]);
    assert_eq!(env.scratches(), [""; 0]);
    let runs = env.avfs_result(&["runs", "list"]);
    assert_eq!(runs["unsettled"], json!([]));
    let won = runs["runs"].as_array().unwrap().iter().filter(|run| run["state"] == "completed").count();
    assert_eq!(won, 1, "{runs}");
    env.assert_sound();
}

/// A race of two whose second attempt has succeeded but is held before it answers, while the command of the first
/// waits for `go`.
fn nearly_won(env: &TestEnv, shared: &Shared, scratch: &str) -> (Running, Pauses) {
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("completed#1");
    let set = format!("S={}", shared.text());
    let line = "rm -r src; echo $AVFS_ATTEMPT > made; [ $AVFS_ATTEMPT = 2 ] || \
                while [ ! -e $S/go ]; do sleep 0.02; done";
    let mut command = env.clean(&avfs());
    command.args(["--json", "race", "-n", "2", "--jobs", "2", "--until-success", "--scratch", scratch]);
    command.args(["--rw", shared.text(), "--env", &set, "--shell", line]);
    let mut running = Running::start(pauses.set(&mut command));
    pauses.wait("completed#1", &mut running.child);
    // The last point that the attempt passes before its command ends: from here on the number of points does not
    // change.
    wait_for("the other attempt is running", || {
        pauses.reached().iter().filter(|point| *point == "streams").count() == 2
    });
    (running, pauses)
}

/// Losers are killed at every point that they pass after their command has ended: during the capture, and after it
/// but before they answer.
#[test]
fn losers_that_had_almost_finished_leave_nothing_behind() {
    for scratch in ["memory", "disk"] {
        let env = TestEnv::with_project();
        let shared = Shared::new(&env);
        // Both attempts end, to count the points.
        let (mut running, pauses) = nearly_won(&env, &shared, scratch);
        let before = pauses.reached().len();
        pauses.hold("completed#2");
        shared.put("go");
        pauses.wait("completed#2", &mut running.child);
        let points = pauses.reached().split_off(before);
        pauses.release("completed#2");
        pauses.release("completed#1");
        running.answer().expect(0);
        let mut kept = forks(&env);
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(points.contains(&"commit".to_owned()), "{points:?}");
        let is_first = |(number, point): &(usize, &String)| !points[..*number].contains(point);
        for (number, point) in points.iter().enumerate().filter(is_first) {
            std::fs::remove_file(env.at("shared/go")).unwrap();
            let (mut running, pauses) = nearly_won(&env, &shared, scratch);
            let hold = format!("#{}", pauses.reached().len() + number + 1);
            pauses.hold(&hold);
            shared.put("go");
            pauses.wait(&hold, &mut running.child);
            assert_eq!(pauses.reached().last(), Some(point));
            pauses.release("completed#1");
            let result = running.answer().expect(0).envelope()["result"].take();
            assert_eq!(states(&result), ["stopped", "won"], "{point}: {result}");
            kept.push(result["fork"].as_str().unwrap().to_owned());
            assert_eq!(forks(&env), kept, "{point}: {result}");
            assert_eq!(env.scratches(), [""; 0], "{point}");
            assert_eq!(env.avfs_result(&["recover", "--list"])["runs"], json!([]), "{point}");
        }
        env.assert_sound();
        for fork in kept.iter().skip(1) {
            env.avfs(&["discard", fork]).expect(0);
        }
        env.avfs(&["gc"]).expect(0);
        env.assert_sound();
    }
}

#[test]
fn the_best_score_wins() {
    let env = TestEnv::with_project();
    let line = "echo $((AVFS_ATTEMPT % 3)) > made; [ $AVFS_ATTEMPT != 1 ]";
    let score = "echo the score is; touch not-kept; cat made";
    let highest = race(&env, &["-n", "5", "--score", score, "--shell", line]);
    // Attempts 2 and 5 have the same score.
    assert_eq!((&highest["winner"], &highest["attempts"][1]["score"]), (&json!(2), &json!(2.0)));
    assert_eq!(highest["attempts"][0]["score"], Value::Null);
    assert_eq!(env.avfs(&["cat", highest["fork"].as_str().unwrap(), "not-kept"]).code, Some(1));
    let lowest = race(&env, &["-n", "5", "--score", score, "--lowest", "--shell", line]);
    assert_eq!(lowest["winner"], 3);
    // A score that is not a number disqualifies the attempt, with an error.
    let score = "if [ $AVFS_ATTEMPT = 3 ]; then echo 1; elif [ $AVFS_ATTEMPT = 2 ]; then echo 99; false; else echo best; fi";
    let odd = race(&env, &["-n", "3", "--score", score, "--", "true"]);
    assert_eq!(states(&odd), ["disqualified", "disqualified", "won"]);
    assert_eq!(odd["attempts"][0]["error"]["code"], "race.bad_score");
    assert!(odd["attempts"][0]["error"]["message"].as_str().unwrap().contains("\"best\""), "{odd}");
    env.assert_sound();
}

#[test]
fn the_winner_can_be_kept_on_a_named_fork() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "base"], "echo from here > n");
    let line = "cat n > made; echo $AVFS_ATTEMPT >> made";
    let result = race(&env, &["-n", "2", "--from", "base", "--fork", "best", "--shell", line]);
    assert_eq!((&result["fork"], &result["winner"]), (&json!("best"), &json!(1)));
    assert_eq!(forks(&env), ["main", "base", "best"]);
    assert_eq!(env.cat("best", "made"), "from here\n1\n");
    // An ordinary fork: its run is listed, its head moves, and it can be deleted.
    let runs = env.avfs_result(&["runs", "list", "--fork", "best"]);
    assert_eq!(runs["runs"][0]["id"], result["attempts"][0]["run_id"]);
    let checkpoints = env.avfs_result(&["checkpoint", "list", "--fork", "best"]);
    assert_eq!(checkpoints["checkpoints"].as_array().unwrap().len(), 2);
    assert_eq!(env.ok(&["--fork", "best"], "echo 2 >> made; wc -l < made"), "3\n");
    env.avfs(&["undo", "best"]).expect(0);
    env.assert_sound();
    let taken = lost(&env, &["-n", "2", "--fork", "best", "--", "true"]);
    assert_eq!(taken["error"]["code"], "fork.exists");
    env.avfs(&["fork", "delete", "--force", "best"]).expect(0);
    env.avfs(&["gc"]).expect(0);
    env.assert_sound();
    // A winner without changes ends at the base.
    let same = race(&env, &["-n", "2", "--fork", "best", "--", "true"]);
    assert_eq!(same["version"], same["base"]);
    assert_eq!(env.cat("best", "README.md"), "hello\n");
    let nameless = race(&env, &["-n", "2", "--", "true"]);
    assert_eq!((&nameless["fork"], &nameless["version"]), (&Value::Null, &nameless["base"]));
}

#[test]
fn a_race_without_a_winner_is_reported() {
    let env = TestEnv::with_project();
    let none = lost(&env, &["-n", "3", "--shell", "echo $AVFS_ATTEMPT > made; false"]);
    assert_eq!(none["error"]["code"], "race.no_winner");
    assert_eq!(none["result"]["winner"], Value::Null);
    assert_eq!(forks(&env).len(), 4, "the attempts are kept for review");
    let third = none["result"]["attempts"][2]["fork"].as_str().unwrap();
    assert_eq!(env.cat(third, "made"), "3\n");
    let none = lost(&env, &["-n", "3", "--discard-losers", "--shell", "echo 1 > made; false"]);
    assert_eq!(none["result"]["attempts"][0]["fork"], Value::Null);
    assert_eq!(forks(&env).len(), 4);
    let none = lost(&env, &["-n", "2", "--", "./no-such-command"]);
    assert_eq!(states(&none["result"]), ["not_run", "not_run"]);
    assert_eq!(none["result"]["attempts"][1]["error"]["code"], "command.not_found");
    let none = lost(&env, &["-n", "2", "--timeout", "1ms", "--grace", "1ms", "--", "sleep", "infinity"]);
    assert_eq!(none["result"]["attempts"][0]["timed_out"], true);
    for bad in [
        &["-n", "0", "--", "true"][..],
        &["-n", "2"],
        &["--", "true"],
        &["-n", "2", "--lowest", "--", "true"],
    ] {
        let mut words = vec!["race"];
        words.extend(bad);
        env.avfs(&words).expect(2);
    }
    env.assert_sound();
}

#[test]
fn each_item_of_a_list_is_an_attempt() {
    let env = TestEnv::with_project();
    env.put("attempts.txt", b"# in order\nfalse\necho two > made\necho three > made\n");
    let result = race(&env, &["attempts.txt"]);
    assert_eq!(
        (&result["winner"], &result["attempts"][1]["command"]),
        (&json!(2), &json!("echo two > made"))
    );
    let fork = result["fork"].as_str().unwrap().to_owned();
    assert_eq!(env.cat(&fork, "made"), "two\n");
    let lines = "{\"command\": [\"false\"]}\n{\"command\": \"echo $X$AVFS_ATTEMPT > made\", \"env\": {\"X\": \"x\"}, \"fork\": \"main\"}\n";
    env.put("attempts.jsonl", lines.as_bytes());
    let result = race(&env, &["attempts.jsonl", "--jobs", "1", "--fork", "best"]);
    assert_eq!((result["winner"].as_u64(), env.cat("best", "made").as_str()), (Some(2), "x2\n"));
    for (list, code) in [
        ("{\"command\": [\"a\"]}\n{\"comand\": 1}\n", "list.malformed"),
        ("{\"command\": [\"a\"]}\n{\"command\": [\"b\"], \"needs\": [1]}\n", "race.needs"),
        ("# nothing\n", "race.empty_list"),
    ] {
        env.put("list", list.as_bytes());
        assert_eq!(lost(&env, &["list"])["error"]["code"], code);
    }
    assert_eq!(lost(&env, &["no-such-list"])["error"]["code"], "list.unreadable");
    env.avfs(&["race", "-n", "2", "list"]).expect(2);
}

/// A race with two attempts that wait and one that has ended.
fn under_way(env: &TestEnv, shared: &Shared, marker: &str) -> Running {
    let set = format!("S={}", shared.text());
    let line = format!(
        ": {marker}; echo $AVFS_ATTEMPT > made; [ $AVFS_ATTEMPT = 1 ] && exit; : > $S/$AVFS_ATTEMPT; sleep 1000"
    );
    let mut command = env.clean(&avfs());
    command.args(["--json", "race", "-n", "3", "--rw", shared.text(), "--env", &set, "--shell", &line]);
    let running = Running::start(&mut command);
    let running = shared.wait_for_word(running, "2");
    let running = shared.wait_for_word(running, "3");
    wait_for("the first attempt is captured and its scratch removed", || {
        forks(env).len() == 2 && env.scratches().len() == 2
    });
    running
}

#[test]
fn an_interrupted_race_keeps_attempts_that_had_ended() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let running = under_way(&env, &shared, &marker);
    running.signal(Signal::TERM);
    assert_eq!(running.answer().expect(130).envelope()["error"]["code"], "race.interrupted");
    wait_for("all processes are dead", || alive(&marker).is_empty());
    assert_eq!((forks(&env).len(), env.scratches()), (2, vec![]));
    env.assert_sound();
}

#[test]
fn killing_a_race_kills_all_its_attempts() {
    let env = TestEnv::with_project();
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let running = under_way(&env, &shared, &marker);
    running.signal(Signal::KILL);
    assert_eq!(running.answer().signal, Some(9));
    wait_for("all processes are dead", || alive(&marker).is_empty());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(env.at("cache").to_str().unwrap()), "{mounts}");
    env.assert_sound();
    assert_eq!(env.scratches().len(), 2);
    // The next run removes the scratches; the attempt that had ended is kept.
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
    let runs = env.avfs_result(&["runs", "list"]);
    let states: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
    let mut sorted = states.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["completed", "completed", "interrupted", "interrupted"]);
    assert_eq!(forks(&env).len(), 2);
    env.assert_sound();
}

#[test]
fn hints_and_notes_of_attempts_are_shown_once() {
    let env = TestEnv::with_project();
    let words = ["race", "-n", "2", "--shell", "test -n \"$FOO\""];
    let said = Running::start(env.clean(&avfs()).args(words).env("FOO", "1")).answer().expect(1).stderr;
    assert_eq!(said.matches("note: FOO is set on the host but not passed").count(), 1, "{said}");
    let words = [&["--json"], &words[..]].concat();
    let envelope =
        Running::start(env.clean(&avfs()).args(words).env("FOO", "1")).answer().expect(1).envelope();
    for attempt in envelope["result"]["attempts"].as_array().unwrap() {
        assert_eq!(attempt["notes"][0]["code"], json!("env.withheld"), "{attempt}");
    }
    let said = env.avfs(&["race", "-n", "2", "--memory", "512", "--", "true"]).expect(1).stderr;
    assert_eq!(said.matches("hint: did you mean 512MiB?").count(), 1, "{said}");
}
