//! Cached results: a hit equals a run, executes nothing, and is reported as a hit.

use std::fs::File;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, wait_for};
use crate::shared::{kill_at, points};
use crate::support::pause::Pauses;

/// Changes of every kind, with output on both streams.
const LINE: &str = "echo out; echo err >&2; echo new > made; mkdir -p dir/sub; echo x > dir/sub/x; rm src/data.bin; \
                    mv README.md moved; chmod 700 src/main.rs; ln -s moved again; ln made hard; mkfifo pipe; exit 3";

pub fn remembered(env: &TestEnv, line: &str) -> Value {
    let envelope = env.json(&["--cache", "write"], line);
    assert_eq!(envelope["result"]["remembered"], json!(true), "{envelope}");
    assert_eq!(envelope["result"]["cached"], json!(false), "{envelope}");
    envelope
}

#[track_caller]
fn assert_hit(envelope: &Value, from: &Value) {
    let result = &envelope["result"];
    assert_eq!(
        (&result["cached"], &result["cached_from"]),
        (&json!(true), &from["result"]["run_id"]),
        "{envelope}"
    );
    assert_eq!(envelope["enforcement"], Value::Null, "nothing was executed");
    for key in ["exit_code", "stdout", "stderr", "stdout_digest", "stderr_digest", "change_counts", "landing"]
    {
        assert_eq!(result[key], from["result"][key], "{key}: {envelope}");
    }
}

/// The digests of a version: with modification times and without.
fn digests(env: &TestEnv, reference: &str) -> (Value, Value) {
    let mut shown = env.avfs_result(&["show", reference]);
    let version = &mut shown["version"];
    (version["root"].take(), version["content"].take())
}

fn run_of(envelope: &Value) -> String {
    format!("run:{}", envelope["result"]["run_id"].as_str().unwrap())
}

/// Sets the modification time of a file in the project.
fn touch(env: &TestEnv, path: &str, seconds: u64) {
    let file = File::options().append(true).open(env.project().join(path)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

fn mtime(env: &TestEnv, dir: &str, path: &str) -> u64 {
    let modified = env.at(dir).join(path).symlink_metadata().unwrap().modified().unwrap();
    modified.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn streamed_output_is_cached() {
    let env = TestEnv::with_project();
    let line = "echo out; echo err >&2; exit 3";
    let streamed = env.shell(&["--quiet", "--cache", "write"], line).expect(3);
    assert_eq!((streamed.text(), streamed.stderr), ("out\n".to_owned(), "err\n".to_owned()));
    let hit = env.json(&["--cache", "read"], line);
    assert_eq!(
        (&hit["result"]["cached"], &hit["result"]["stdout"]),
        (&json!(true), &json!("out\n")),
        "{hit}"
    );
    // Both streams go to one pipe, as in CI; they are still recorded separately.
    let runner = crate::env::runner();
    let both = format!("{} --quiet --cache write --shell 'echo one; echo two >&2' 2>&1", runner.display());
    let both =
        Running::start(env.clean(std::path::Path::new("/bin/sh")).args(["-c", &both])).answer().expect(0);
    let mut lines: Vec<String> = both.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "two"]);
    let hit = env.shell(&["--quiet", "--cache", "read"], "echo one; echo two >&2").expect(0);
    assert_eq!((hit.text(), hit.stderr), ("one\n".to_owned(), "two\n".to_owned()));
}

#[test]
fn a_hit_equals_a_run() {
    let env = TestEnv::with_project();
    env.put("src/other", b"not touched\n");
    let first = remembered(&env, LINE);
    assert_eq!(first["result"]["exit_code"], json!(3));
    let again = env.json(&["--cache", "read"], LINE);
    assert_hit(&again, &first);
    // The same files with the same times.
    assert_eq!(digests(&env, &run_of(&again)), digests(&env, &run_of(&first)));
    assert_ne!(again["result"]["run_id"], first["result"]["run_id"]);
    // Equal content with different times is a hit, and the times are kept.
    for (path, seconds) in [("README.md", 1000), ("src/main.rs", 2000), ("src/other", 3000)] {
        touch(&env, path, seconds);
    }
    let touched = env.json(&["--cache", "read"], LINE);
    assert_hit(&touched, &first);
    let executed = env.json(&["--cache", "off"], LINE);
    assert_eq!(executed["result"]["cached"], json!(false));
    assert_eq!(digests(&env, &run_of(&touched)).1, digests(&env, &run_of(&executed)).1);
    for (envelope, dir) in [(&touched, "hit"), (&executed, "run")] {
        env.export(&run_of(envelope), dir);
    }
    for (path, seconds) in [("moved", 1000), ("src/main.rs", 2000), ("src/other", 3000)] {
        assert_eq!((mtime(&env, "hit", path), mtime(&env, "run", path)), (seconds, seconds), "{path}");
    }
    // A hit on a fork works too, even if the directory has changed.
    env.avfs(&["fork", "create", "task"]).expect(0);
    env.put("README.md", b"something else\n");
    let on_fork = env.json(&["--cache", "read", "--fork", "task"], LINE);
    assert_hit(&on_fork, &first);
    assert_eq!(on_fork["result"]["fork"], json!("task"));
    assert_eq!(digests(&env, "task").1, digests(&env, &run_of(&first)).1);
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
    let log = env.avfs_result(&["audit", "verify"]);
    assert_eq!(log["problems"], json!([]), "{log}");
}

#[test]
fn cached_output_is_written_again() {
    let env = TestEnv::with_project();
    remembered(&env, "echo out; echo err >&2; exit 7");
    let hit = env.shell(&["--cache", "read"], "echo out; echo err >&2; exit 7").expect(7);
    assert_eq!(hit.text(), "out\n");
    assert!(
        hit.stderr.starts_with("err\n") && hit.stderr.contains("cached: the command was not executed"),
        "{hit:?}"
    );
    let quiet = env.shell(&["--cache", "read", "--quiet"], "echo out; echo err >&2; exit 7").expect(7);
    assert_eq!(quiet.stderr, "err\n");
    // Large output is stored completely; a hit returns as much of it as requested.
    let line = "yes 0123456789 | head -c 3000000";
    let large = remembered(&env, line);
    let again = env.shell(&["--cache", "read"], line).expect(0);
    assert_eq!(again.stdout.len(), 3_000_000);
    let cut = env.json(&["--cache", "read", "--output-max", "100"], line);
    assert_eq!(cut["result"]["cached_from"], large["result"]["run_id"]);
    assert_eq!(
        (&cut["result"]["stdout_truncated"], cut["result"]["stdout"].as_str().unwrap().len()),
        (&json!(true), 100)
    );
    assert_eq!(cut["result"]["stdout_omitted"], json!({ "offset": 50, "bytes": 2_999_900 }));
    // Output that is not text is returned byte for byte.
    let bytes = remembered(&env, "printf '\\377\\000\\n'");
    let again = env.json(&["--cache", "read"], "printf '\\377\\000\\n'");
    assert_hit(&again, &bytes);
    assert_eq!(again["result"]["stdout_encoding"], json!("base64"));
}

#[test]
fn changes_of_a_hit_are_discarded_kept_or_applied_like_those_of_a_run() {
    let env = TestEnv::with_project();
    let line = "echo new > made; rm README.md";
    let first = remembered(&env, line);
    // Discarded: no fork, no version.
    let dropped = env.json(&["--cache", "read", "--discard"], line);
    assert_eq!(dropped["result"]["cached"], json!(true), "{dropped}");
    assert_eq!(
        (&dropped["result"]["landing"], &dropped["result"]["fork"]),
        (&json!("nothing"), &Value::Null)
    );
    // Each run on a fork starts from the previous one, so the result of the first does not apply to the second.
    let options = ["--cache", "write", "--fork", "task"];
    assert_hit(&env.json(&options, line), &first);
    let second = env.json(&options, line);
    assert_eq!(second["result"]["cached"], json!(false), "{second}");
    // Checkpoints are saved.
    let saved = env.avfs_result(&["checkpoint", "list", "--fork", "task"]);
    assert!(saved["checkpoints"].as_array().unwrap().len() >= 2, "{saved}");
    // A read-only run has a different sandbox, and its cached result has no changes.
    let looked = env.json(&["--cache", "write", "--readonly"], "cat README.md");
    assert_eq!(looked["result"]["remembered"], json!(true), "{looked}");
    assert_hit(&env.json(&["--cache", "read", "--readonly"], "cat README.md"), &looked);
    // Applied: the directory changes.
    let mut applied = env.command(&["--json", "--cache", "read", "--apply", "--shell", line]);
    let applied = Running::start(&mut applied).answer().expect(0).envelope();
    assert_hit(&applied, &first);
    assert!(applied["result"]["applied"].as_u64().unwrap() >= 2, "{applied}");
    assert_eq!(std::fs::read_to_string(env.project().join("made")).unwrap(), "new\n");
    assert!(!env.project().join("README.md").exists());
    env.assert_sound();
}

#[test]
fn a_hit_is_marked_in_every_listing() {
    let env = TestEnv::with_project();
    let first = remembered(&env, "echo new > made");
    let hit = env.json(&["--cache", "read"], "echo new > made");
    let (own, from) = (hit["result"]["run_id"].clone(), first["result"]["run_id"].clone());
    let runs = env.avfs_result(&["runs", "list"]);
    assert_eq!((&runs["runs"][0]["id"], &runs["runs"][0]["cached_from"]), (&own, &from), "{runs}");
    assert_eq!(runs["runs"][1]["cached_from"], Value::Null);
    let text = env.avfs(&["runs", "list"]).expect(0).text();
    assert!(text.lines().next().unwrap().contains("(cached)"), "{text}");
    let shown = env.avfs_result(&["runs", "show", own.as_str().unwrap()]);
    assert_eq!(shown["result"]["cache"]["cached_from"], from, "{shown}");
    let text = env.avfs(&["runs", "show", own.as_str().unwrap()]).expect(0).text();
    assert!(text.contains(&format!("cached     from run {}", from.as_str().unwrap())), "{text}");
    // The audit log does not record a start.
    let log = env.avfs_result(&["audit", "list", "--run", own.as_str().unwrap()]);
    let actions: Vec<&str> =
        log["rows"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert!(actions.contains(&"run.recall") && !actions.contains(&"run.start"), "{actions:?}");
    let explained = env.avfs_result(&["cache", "explain", &format!("run:{}", own.as_str().unwrap())]);
    assert_eq!((&explained["outcome"], &explained["cached_from"]), (&json!("hit"), &from));
}

#[test]
fn the_policy_applies_to_a_hit() {
    let env = TestEnv::with_project();
    remembered(&env, "echo new > made");
    env.policy("[[rule]]\naction = 'deny'\nreason = 'not any more'\n");
    let denied = env.shell(&["--json", "--cache", "read"], "echo new > made").expect(122).envelope();
    assert_eq!((&denied["state"], &denied["result"]), (&json!("denied"), &Value::Null), "{denied}");
    env.policy("[[rule]]\naction = 'require_approval'\nreason = 'ask'\n");
    let asked = env.shell(&["--json", "--cache", "read"], "echo new > made").expect(120).envelope();
    assert_eq!(asked["state"], json!("approval_required"), "{asked}");
    let explained = env.avfs_result(&["cache", "explain", "--shell", "echo new > made"]);
    assert_eq!(explained["missed"][0]["code"], json!("policy"), "{explained}");
    // A cap changes the sandbox of the same request, for `cache explain` as for a run.
    env.policy("[[rule]]\naction = 'allow_with_checkpoint'\n[caps]\ntimeout = '1h'\nmemory = '1GiB'\n");
    let capped = remembered(&env, "echo new > made");
    let explained = env.avfs_result(&["cache", "explain", "--shell", "echo new > made"]);
    assert_eq!(explained["cached_from"], capped["result"]["run_id"], "{explained}");
}

#[test]
fn standard_input_is_empty_when_the_cache_is_used() {
    let env = TestEnv::with_project();
    let words = |cache| ["--cache", cache, "--json", "--shell", "wc -c"];
    for (cache, read) in [("off", "4\n"), ("write", "0\n"), ("read", "0\n")] {
        let answer = env.fed(&words(cache), b"four").expect(0).envelope();
        assert_eq!(answer["result"]["stdout"], json!(read), "{cache}");
    }
}

#[test]
fn a_result_removed_by_gc_is_a_miss() {
    let env = TestEnv::with_project();
    let first = remembered(&env, "echo new > made");
    env.avfs(&["discard", &run_of(&first)]).expect(0);
    let before_gc = env.json(&["--cache", "read"], "echo new > made");
    assert_eq!(before_gc["result"]["cached"], json!(true), "the versions are still there");
    env.avfs(&["discard", &run_of(&before_gc)]).expect(0);
    let swept = env.avfs_result(&["gc"]);
    assert_eq!(swept["results"], json!(1), "{swept}");
    let miss = env.json(&["--cache", "write"], "echo new > made");
    assert_eq!(miss["result"]["cached"], json!(false));
    assert_eq!(miss["result"]["remembered"], json!(true));
    // Files removed by a prune, and an expired result.
    let on_fork = env.json(&["--cache", "write", "--fork", "task"], "echo one > one");
    assert_eq!(on_fork["result"]["remembered"], json!(true), "{on_fork}");
    env.ok(&["--fork", "task"], "echo two > two");
    env.avfs(&["prune", "--keep-last", "1"]).expect(0);
    let pruned = env.json(&["--cache", "read", "--fork", "other", "--from", "main"], "echo one > one");
    assert_eq!(pruned["result"]["cached"], json!(false), "{pruned}");
    let expiring = |line: &str| {
        env.answer(
            env.command(&["--json", "--cache", "write", "--shell", line]).env("AVFS_RUN_CACHE_EXPIRES", "0s"),
        )
        .expect(0)
        .envelope()
    };
    assert_eq!(expiring("echo short")["result"]["remembered"], json!(true));
    let late = expiring("echo short");
    assert_eq!(late["result"]["cached"], json!(false), "{late}");
    assert_eq!(late["result"]["cache"]["missed"][0]["code"], json!("lost"), "{late}");
    env.assert_sound();
}

#[test]
fn results_can_be_listed_and_forgotten() {
    let env = TestEnv::with_project();
    let first = remembered(&env, "echo one");
    remembered(&env, "echo two");
    let list = env.avfs_result(&["cache", "list"]);
    let results = list["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{list}");
    assert_eq!(
        (&results[1]["run_id"], &results[1]["command"]),
        (&first["result"]["run_id"], &json!("echo one"))
    );
    assert_eq!(results[1]["stdout_digest"], first["result"]["stdout_digest"]);
    assert!(results[0]["parts"]["base"].is_string() && results[0]["lost"].is_null(), "{list}");
    let text = env.avfs(&["cache", "list", "--limit", "1"]).expect(0);
    assert!(text.text().contains("echo two") && text.stderr.contains("older results"), "{text:?}");
    let gone = env.avfs_result(&["cache", "forget", &run_of(&first)]);
    assert_eq!(gone["forgotten"][0]["run_id"], first["result"]["run_id"]);
    assert_eq!(env.json(&["--cache", "read"], "echo one")["result"]["cached"], json!(false));
    assert_eq!(env.json(&["--cache", "read"], "echo two")["result"]["cached"], json!(true));
    env.avfs(&["cache", "forget", "--all"]).expect(0);
    assert_eq!(env.avfs_result(&["cache", "list"])["results"], json!([]));
    assert_eq!(env.json(&["--cache", "read"], "echo two")["result"]["cached"], json!(false));
    env.avfs(&["cache", "forget", "run:ffff"]).expect(1);
    env.avfs(&["cache", "forget"]).expect(2);
    env.assert_sound();
}

#[test]
fn a_hit_killed_at_any_moment_lands_completely_or_not_at_all() {
    let env = TestEnv::with_project();
    let line = "for n in 1 2 3 4 5 6; do echo $n > made-$n; done; head -c 300000 /dev/zero | tr '\\0' x > big; cat big";
    let first = remembered(&env, line);
    let words = ["--cache", "read", "--fork", "task", "--json", "--shell", line];
    env.avfs(&["fork", "create", "task", "--from", "main"]).expect(0);
    let (hit, points) = points(&env, &mut env.command(&words));
    assert_hit(&hit.expect(0).envelope(), &first);
    let entries = |fork: &str| env.avfs_result(&["ls", fork])["entries"].as_array().unwrap().len();
    let landed: Vec<bool> = (1..=points.len())
        .map(|number| {
            env.avfs(&["fork", "delete", "--force", "task"]).expect(0);
            env.avfs(&["fork", "create", "task", "--from", "main"]).expect(0);
            kill_at(&env, &mut env.command(&words), &format!("#{number}"));
            // Either all changes or none.
            let (made, main) = (entries("task"), entries("main"));
            assert!(made == main || made == main + 7, "{made} of {main}");
            made > main
        })
        .collect();
    assert!(landed.is_sorted() && !landed[0] && landed[points.len() - 1], "{landed:?} at {points:?}");
    assert_eq!(env.scratches(), [""; 0], "a hit leaves no scratch");
    let runs = env.avfs_result(&["runs", "list", "--limit", "1000"]);
    assert!(runs["runs"].as_array().unwrap().iter().all(|run| run["state"] == "completed"), "{runs}");
    assert_hit(&env.json(&["--cache", "read"], line), &first);
    env.assert_sound();
}

#[test]
fn concurrent_runs_store_and_use_the_same_result() {
    let env = TestEnv::with_project();
    let line = "echo new > made; echo said";
    // Six runs meet at this point: all have looked for a result, and none has committed anything yet.
    let all = |mode: &str, forks: &str, point: &str| -> Vec<Value> {
        let pauses = Pauses::new(&env.at(""));
        pauses.hold(point);
        let start = |n: usize| {
            let fork = format!("{forks}-{n}");
            let words = ["--json", "--cache", mode, "--fork", &fork, "--from", "main", "--shell", line];
            Running::start(pauses.set(&mut env.command(&words)))
        };
        let running: Vec<Running> = (0..6).map(start).collect();
        wait_for(point, || pauses.reached().iter().filter(|reached| *reached == point).count() == 6);
        pauses.release(point);
        running.into_iter().map(|one| one.answer().expect(0).envelope()).collect()
    };
    env.avfs(&["import"]).expect(0);
    for envelope in all("write", "first", "executing") {
        assert_eq!(envelope["result"]["cached"], json!(false), "{envelope}");
        assert_eq!(envelope["result"]["stdout"], json!("said\n"), "{envelope}");
        assert_eq!(envelope["result"]["remembered"], json!(true), "{envelope}");
    }
    assert_eq!(env.avfs_result(&["cache", "list"])["results"].as_array().unwrap().len(), 1);
    for envelope in all("read", "second", "capturing") {
        assert_eq!(envelope["result"]["cached"], json!(true), "{envelope}");
    }
    let contents: Vec<Value> = (0..6)
        .flat_map(|n| [format!("first-{n}"), format!("second-{n}")])
        .map(|fork| digests(&env, &fork).1)
        .collect();
    assert!(contents.iter().all(|content| *content == contents[0]), "{contents:?}");
    env.assert_sound();
}

#[test]
fn pure_without_the_cache_is_wrong_usage() {
    let env = TestEnv::with_project();
    let envelope = env.run(&["--json", "--pure", "--", "true"]).expect(125).envelope();
    assert_eq!(envelope["error"]["code"], json!("usage"));
    assert!(envelope["error"]["hint"].as_str().unwrap().contains("--cache read"), "{envelope}");
    env.run(&["--pure", "--cache", "read", "--", "true"]).expect(0);
    env.answer(env.command(&["--pure", "--", "true"]).env("AVFS_RUN_CACHE", "read")).expect(0);
    // A recorded request keeps the key, also if the cache is off now.
    env.put("request.json", br#"{"command": ["true"], "pure": true, "cache_mode": "off"}"#);
    env.run(&["--request", "request.json"]).expect(0);
    env.avfs(&["cache", "explain", "--pure", "--", "true"]).expect(0);
}
