//! `avfs bisect` finds the right version with few probes, which leave nothing behind.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{Answer, Running, TestEnv, avfs, wait_for};
use crate::shared::{Shared, alive, children, is_dead, marker};
use crate::support::pause::Pauses;

/// A fork with one version per number; versions from number `broken` on contain a file named `broken`.
fn with_history(count: u32, broken: u32) -> TestEnv {
    let env = TestEnv::with_project();
    for n in 1..=count {
        let line = format!("echo {n} > n; if [ {n} -ge {broken} ]; then touch broken; fi");
        env.ok(&["--fork", "work"], &line);
    }
    env
}

#[track_caller]
fn bisect(env: &TestEnv, words: &[&str]) -> Answer {
    let mut all = vec!["--json", "bisect", "work"];
    all.extend(words);
    env.avfs(&all)
}

fn forks(env: &TestEnv) -> usize {
    env.avfs_result(&["fork", "list"])["forks"].as_array().unwrap().len()
}

fn verdicts(result: &Value) -> Vec<&str> {
    result["probes"].as_array().unwrap().iter().map(|probe| probe["verdict"].as_str().unwrap()).collect()
}

#[test]
fn the_run_that_introduced_a_failure_is_found() {
    let env = with_history(12, 8);
    let before = env.avfs_result(&["log", "work"]);
    for jobs in ["1", "3"] {
        let answer = bisect(&env, &["--jobs", jobs, "--", "test", "!", "-e", "broken"]).expect(0);
        let result = &answer.envelope()["result"];
        let version = result["first_bad"]["id"].as_str().unwrap();
        assert_eq!(env.cat(version, "n"), "8\n", "{result}");
        assert_eq!(result["suspects"].as_array().unwrap().len(), 1);
        assert_eq!(result["run"]["version_after"], version);
        assert_eq!(result["run"]["exit_code"], 0);
        assert_eq!(result["versions"], 12);
        // Both ends, then at most four rounds of one probe, or two rounds of three.
        assert!(verdicts(result).len() <= if jobs == "1" { 6 } else { 8 }, "{result}");
    }
    assert_eq!(env.avfs_result(&["log", "work"]), before);
    assert_eq!((forks(&env), env.scratches()), (2, vec![]));
    env.assert_sound();
}

#[test]
fn the_output_names_the_bad_version_and_the_command_to_inspect_it() {
    let env = with_history(3, 2);
    let answer = env.avfs(&["bisect", "work", "-v", "--shell", "echo looking; test ! -e broken"]).expect(0);
    let (text, version) = (answer.text(), env.avfs_result(&["show", "work~1"])["version"]["id"].clone());
    let version = version.as_str().unwrap();
    assert!(text.contains(&format!("first bad version  {version}")), "{text}");
    assert!(text.contains(&format!("avfs diff {0}~1 {0}", &version[..12])), "{text}");
    assert!(text.contains("echo 2 > n"), "{text}");
    assert!(answer.stderr.contains("bad      exit 1"), "{answer:?}");
    assert!(answer.stderr.contains("    looking\n"), "{answer:?}");
}

#[test]
fn untestable_versions_are_skipped() {
    let env = with_history(9, 5);
    // A skipped version that is not next to the first bad one costs only a probe.
    let line = "[ $(cat n 2>/dev/null || echo 0) = 7 ] && exit 125; test ! -e broken";
    let answer = bisect(&env, &["--shell", line]).expect(0);
    assert_eq!(env.cat(answer.envelope()["result"]["first_bad"]["id"].as_str().unwrap(), "n"), "5\n");
    // The two skipped versions before the first known bad one could be the first bad one too.
    let line = "case $(cat n 2>/dev/null) in 4|5) exit 125;; esac; test ! -e broken";
    let answer = bisect(&env, &["--jobs", "2", "--shell", line]).expect(1);
    let envelope = answer.envelope();
    assert_eq!(envelope["error"]["code"], json!("bisect.skipped"));
    let suspects = envelope["result"]["suspects"].as_array().unwrap();
    let shown: Vec<String> =
        suspects.iter().map(|version| env.cat(version["id"].as_str().unwrap(), "n")).collect();
    assert_eq!(shown, ["4\n", "5\n", "6\n"]);
    assert_eq!(envelope["result"]["first_bad"], Value::Null);
    let shown = env.avfs(&["bisect", "work", "--shell", line]).expect(1);
    assert!(shown.text().contains("one of these"), "{shown:?}");
}

#[test]
fn wrong_good_and_bad_versions_are_reported() {
    let env = with_history(3, 2);
    let code = |words: &[&str]| bisect(&env, words).expect(1).envelope()["error"]["code"].clone();
    assert_eq!(code(&["--", "false"]), "bisect.not_good");
    assert_eq!(code(&["--jobs", "2", "--", "true"]), "bisect.not_bad");
    assert_eq!(code(&["--", "sh", "-c", "exit 125"]), "bisect.untestable");
    assert_eq!(code(&["--good", "work", "--", "true"]), "bisect.nothing_between");
    assert_eq!(code(&["--good", "work", "--bad", "work~1", "--", "true"]), "bisect.not_ancestor");
    assert_eq!(code(&["--good", "nowhere", "--", "true"]), "ref.unknown");
    // A missing test command is not a verdict, and neither is an error of avfs.
    let missing = bisect(&env, &["--", "./no-such-test"]).expect(1).envelope();
    assert_eq!(missing["error"]["code"], "command.not_found");
    assert!(missing["error"]["hint"].as_str().unwrap().contains("exit 125"), "{missing}");
    assert_eq!(bisect(&env, &["--timeout", "soon", "--", "true"]).expect(2).envelope()["success"], false);
    bisect(&env, &[]).expect(2);
    env.policy("[[rule]]\nname = 'no'\nprefix = ['cat']\naction = 'deny'\nreason = 'it is a test'\n");
    assert_eq!(code(&["--", "cat", "n"]), "policy.denied");
    assert_eq!(env.avfs(&["bisect", "nobody", "--", "true"]).code, Some(1));
}

#[track_caller]
fn assert_second_is_bad(env: &TestEnv, result: &Value, key: &str, value: &Value) {
    assert_eq!(env.cat(result["first_bad"]["id"].as_str().unwrap(), "n"), "2\n", "{result}");
    let bad = result["probes"].as_array().unwrap().iter().find(|probe| probe["verdict"] == "bad").unwrap();
    assert_eq!(&bad[key], value, "{bad}");
}

#[test]
fn a_probe_killed_by_a_signal_is_bad() {
    let env = with_history(2, 2);
    let result = bisect(&env, &["--shell", "test ! -e broken || kill -9 $$"]).expect(0).envelope();
    assert_second_is_bad(&env, &result["result"], "signal", &json!(9));
}

#[test]
fn a_probe_that_times_out_is_bad() {
    let env = with_history(2, 2);
    let shared = Shared::new(&env);
    let (set, pauses) = (format!("S={}", shared.text()), Pauses::new(&env.at("")));
    let line = "test ! -e broken || { : > $S/bad; sleep infinity; }";
    let mut command = env.clean(&avfs());
    command.args(["--json", "bisect", "work", "--jobs", "1", "--timeout", "1ms", "--grace", "1ms"]);
    command.args(["--rw", shared.text(), "--env", &set, "--shell", line]);
    // The timeout starts when a probe is released: a good probe has ended by then, a bad one never ends.
    let held = |number: usize| format!("executing#{number}");
    for number in 1..10 {
        pauses.hold(&held(number));
    }
    let mut running = Running::start(pauses.set(&mut command));
    let mut probes = 1;
    while pauses.reaches(&held(probes), &mut running.child) {
        let worker = children(running.child.id());
        wait_for("the verdict", || shared.has("bad") || children(worker[0]).into_iter().all(is_dead));
        let _ = std::fs::remove_file(env.at("shared/bad"));
        pauses.release(&held(probes));
        probes += 1;
    }
    let result = running.answer().expect(0).envelope();
    assert_eq!(probes - 1, verdicts(&result["result"]).len());
    assert_second_is_bad(&env, &result["result"], "timed_out", &json!(true));
}

#[test]
fn versions_with_equal_content_are_probed_once() {
    let env = TestEnv::with_project();
    for line in ["echo a > n", "echo b > n", "echo a > n", "echo b > n", "echo a > n; touch broken"] {
        env.ok(&["--fork", "work"], line);
    }
    let result = bisect(&env, &["--shell", "test ! -e broken"]).expect(0).envelope()["result"].take();
    // Both ends, a and b.
    assert!(verdicts(&result).len() <= 4, "{result}");
    assert_eq!(result["first_bad"], env.avfs_result(&["show", "work"])["version"]);
}

#[test]
fn an_interrupted_bisect_leaves_nothing_behind() {
    let env = with_history(4, 3);
    let (shared, marker) = (Shared::new(&env), marker(&env));
    let set = format!("S={}", shared.text());
    let line = format!(": {marker}; : > $S/there; sleep 1000");
    let mut command = env.clean(&avfs());
    command.args(["--json", "bisect", "work", "--jobs", "2", "--rw", shared.text(), "--env", &set]);
    let running = Running::start(command.args(["--shell", &line]));
    let running = shared.wait_for_word(running, "there");
    running.signal(Signal::INT);
    let answer = running.answer().expect(130);
    assert_eq!(answer.envelope()["error"]["code"], "bisect.interrupted");
    wait_for("all processes are dead", || alive(&marker).is_empty());
    assert_eq!((forks(&env), env.scratches()), (2, vec![]));
    let runs = env.avfs_result(&["runs", "list"]);
    assert_eq!((&runs["unsettled"], &runs["runs"][0]["state"]), (&json!([]), &json!("interrupted")));
    env.assert_sound();
}
