//! `avfs batch`: running lists, the version each item starts from, and the reported results.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs};
use crate::lists::{assert_once_each, batch, forks, good, list, refused};
use crate::shared::Shared;

#[test]
fn each_item_of_a_chain_starts_from_the_version_of_the_previous_item() {
    let env = TestEnv::with_project();
    env.put("on-the-host", b"seen\n");
    let text = "# plain lines\n\ncat on-the-host > n; echo out\n  echo two >> n\r\nmkdir d && mv n d/n\n";
    let list = list(&env, "list.txt", text);
    let came = good(&env, &list, &["--jobs", "4"]);
    let result = came.result();
    assert_eq!((&result["mode"], &result["counts"]["succeeded"]), (&json!("chain"), &json!(3)));
    assert_eq!(result["notes"][0]["code"], json!("batch.chain_jobs"), "{result}");
    let fork = result["fork"].as_str().unwrap();
    assert_eq!(fork, format!("batch-{}", result["batch_id"].as_str().unwrap()));
    assert_eq!(env.cat(fork, "d/n"), "seen\ntwo\n");
    assert_eq!(env.cat(came.text("2", "version"), "n"), "seen\ntwo\n");
    assert_eq!(env.cat(came.text("1", "version"), "n"), "seen\n");
    assert_eq!((came.text("1", "stdout"), came.text("2", "command")), ("out\n", "echo two >> n"));
    assert_eq!(forks(&env), ["main", fork]);
    // A chain can use a named fork and start from any version; the next batch on that fork continues from its head.
    let from = came.text("1", "version");
    let named = good(&env, &list, &["--fork", "mine", "--from", from]);
    assert_eq!(named.result()["notes"], Value::Null, "{}", named.result());
    assert_eq!((&named.result()["fork"], &named.result()["base"]), (&json!("mine"), &json!(from)));
    let more = crate::lists::list(&env, "more.txt", "cat d/n\n");
    assert_eq!(good(&env, &more, &["--fork", "mine"]).text("1", "stdout"), "seen\ntwo\n");
    assert!(!env.project().join("d").exists(), "the host directory was changed");
    env.assert_sound();
}

#[test]
fn each_item_of_a_fan_out_starts_from_the_same_version() {
    let env = TestEnv::with_project();
    let list = list(&env, "list.txt", "echo 1 > n; ls\necho 2 > n; ls\nls\n");
    let came = good(&env, &list, &["--mode", "fan-out", "--jobs", "3"]);
    assert_eq!(
        came.all("stdout"),
        ["README.md\nlink\nn\nsrc\n", "README.md\nlink\nn\nsrc\n", "README.md\nlink\nsrc\n"]
    );
    assert_eq!(env.cat(came.text("2", "fork"), "n"), "2\n");
    assert_eq!((&came.item("3")["fork"], &came.item("3")["version"]), (&Value::Null, &came.result()["base"]));
    assert_eq!((forks(&env).len(), &came.result()["fork"]), (3, &Value::Null));
    let came = good(&env, &list, &["--mode", "fan-out", "--discard"]);
    assert_eq!((forks(&env).len(), &came.item("1")["fork"]), (3, &Value::Null));
    let mentions_forks = |more: &[&str]| {
        let words = ["batch", list.to_str().unwrap(), "--mode", "fan-out"];
        let text = env.avfs(&[&words, more].concat()).expect(0).text();
        let forks = text.contains("each item has its own fork: avfs fork list");
        assert_eq!(forks, text.contains("\n  kept at least until 20"), "{text}");
        forks
    };
    assert_eq!((mentions_forks(&["--cache", "off"]), mentions_forks(&["--discard"])), (true, false));
    env.assert_sound();
}

const DIAMOND: &str = r#"
{"id": "last", "needs": ["left", "right"], "command": "cat top left right > all; cat all"}
{"id": "left", "needs": ["top"], "command": "cp top left; echo l >> left; rm src/main.rs"}
{"id": "right", "needs": ["top"], "command": "cp top right; echo r >> right; echo log >> log"}
{"id": "top", "command": ["sh", "-c", "echo $WHO > top"], "env": {"WHO": "me"}}
{"id": "apart", "command": "ls"}
"#;

#[test]
fn an_item_with_several_needs_starts_from_their_join() {
    let env = TestEnv::with_project();
    let path = list(&env, "list.jsonl", DIAMOND);
    let came = good(&env, &path, &["--jobs", "2"]);
    assert_eq!(came.result()["mode"], "needs");
    assert_eq!(came.text("last", "stdout"), "me\nme\nl\nme\nr\n");
    assert_eq!(came.text("apart", "stdout"), "README.md\nlink\nsrc\n");
    let listed = env.avfs(&["ls", came.text("last", "version")]).expect(0).text();
    assert_eq!(
        listed.split_whitespace().map(|name| name.trim_end_matches(['/', '@'])).collect::<Vec<_>>(),
        ["README.md", "all", "left", "link", "log", "right", "src", "top"]
    );
    assert_eq!(env.avfs(&["cat", came.text("last", "version"), "src/main.rs"]).code, Some(1));
    assert_once_each(&env, came.result()["batch_id"].as_str().unwrap(), 5);
    env.assert_sound();
}

/// Joins two items that both joined the same two items. A file that only one of them changed is not a conflict,
/// although both inherited it from the items they need.
#[test]
fn joining_versions_with_two_common_ancestors_does_not_conflict() {
    let env = TestEnv::with_project();
    let text = r#"
{"id": "a", "command": "echo a > a; echo both > same; touch -d @1000 same"}
{"id": "x", "command": "echo x > x; echo both > same; touch -d @2000 same"}
{"id": "one", "needs": ["a", "x"], "command": "echo one >> x; rm README.md"}
{"id": "two", "needs": ["x", "a"], "command": "echo two >> a"}
{"id": "end", "needs": ["one", "two"], "command": "cat a x same; ls README.md || true"}
"#;
    for words in [&["--jobs", "1"][..], &["--jobs", "3"]] {
        let came = good(&env, &list(&env, "list.jsonl", text), words);
        assert_eq!(came.text("end", "stdout"), "a\ntwo\nx\none\nboth\n");
    }
    env.assert_sound();
}

#[test]
fn a_conflict_names_the_item_and_the_paths() {
    let env = TestEnv::with_project();
    let text = r#"
{"id": "a", "command": "echo a > same; mkdir d; echo a > d/also"}
{"id": "b", "command": "echo b > same; mkdir d; echo b > d/also"}
{"id": "c", "needs": ["a", "b"], "command": "true"}
{"id": "d", "needs": ["c"], "command": "true"}
{"id": "e", "command": "true"}
"#;
    let came = batch(&env, &list(&env, "list.jsonl", text), &["--keep-going", "--jobs", "2"]);
    assert_eq!(came.code, Some(1));
    assert_eq!(came.all("state"), ["succeeded", "succeeded", "failed", "left_out", "succeeded"]);
    assert_eq!(came.text("c", "code"), "batch.clash");
    assert_eq!(came.text("c", "reason"), "its needs conflict: b and another item changed d/also, same");
    assert_eq!((came.text("d", "reason"), &came.item("d")["attempts"]), ("c did not succeed", &json!(0)));
    env.assert_sound();
}

#[test]
fn a_failed_item_stops_the_batch_without_keep_going() {
    let env = TestEnv::with_project();
    let (chain, needs) = (
        list(&env, "chain.txt", "echo 1 > n\necho half > n; exit 7\ncat n\n./no-such-command\ntrue\n"),
        list(
            &env,
            "needs.jsonl",
            "{\"id\":\"a\",\"command\":\"exit 3\"}\n{\"id\":\"b\",\"command\":\"kill -9 $$\"}\n{\"needs\":[\"a\"],\"command\":\"true\"}\n{\"needs\":[2.0],\"command\":\"true\"}\n",
        ),
    );
    let came = batch(&env, &chain, &[]);
    assert_eq!((came.code, &came.envelope["error"]["code"]), (Some(1), &json!("batch.failed")));
    assert_eq!(came.all("state"), ["succeeded", "failed", "left_out", "left_out", "left_out"]);
    assert_eq!((&came.item("2")["exit_code"], &came.item("2")["run_id"].is_string()), (&json!(7), &true));
    let hint = format!(
        "resume with: avfs batch {} --resume {}",
        chain.display(),
        came.result()["batch_id"].as_str().unwrap()
    );
    assert_eq!(came.envelope["error"]["hint"], json!(hint));
    let came = batch(&env, &chain, &["--keep-going"]);
    assert_eq!(came.all("state"), ["succeeded", "failed", "succeeded", "failed", "succeeded"]);
    assert_eq!(
        (came.text("3", "stdout"), came.item("4")["exit_code"].to_string().as_str()),
        ("half\n", "127")
    );
    let counts = &came.result()["counts"];
    assert_eq!(
        (&counts["items"], &counts["succeeded"], &counts["failed"]),
        (&json!(5), &json!(3), &json!(2))
    );
    assert_eq!(came.result()["unsuccessful"].as_array().unwrap().len(), 2);
    assert_eq!(refused(&env, &["batch", needs.to_str().unwrap()]).0, "list.malformed");
    let text = std::fs::read_to_string(&needs).unwrap().replace("[2.0]", "[3]");
    std::fs::write(&needs, text).unwrap();
    let came = batch(&env, &needs, &["--jobs", "1"]);
    assert_eq!(came.all("state"), ["failed", "not_run", "left_out", "left_out"]);
    let came = batch(&env, &needs, &["--keep-going"]);
    assert_eq!(came.all("state"), ["failed", "failed", "left_out", "left_out"]);
    assert_eq!((&came.item("b")["signal"], came.text("4", "reason")), (&json!(9), "3 did not succeed"));
    env.assert_sound();
}

/// Succeeds at the third attempt; files written by a failed attempt are dropped before the next one.
const THIRD: &str = "echo tried >> log; echo x >> $S/N; [ $(wc -l < $S/N) -ge 3 ]";

#[test]
fn a_retry_starts_from_the_same_version_as_the_failed_attempt() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let set = format!("S={}", shared.text());
    let run = |name: &str, text: String, words: &[&str]| {
        let mut all = vec!["--rw", shared.text(), "--env", &set];
        all.extend(words);
        batch(&env, &list(&env, name, &text), &all)
    };
    let (one, two) = (THIRD.replace('N', "one"), THIRD.replace('N', "two"));
    let came = run("chain.txt", format!("echo first > log\n{one}\n{two}\ncat log\n"), &["--retry", "2"]);
    assert_eq!((came.code, came.all("state")), (Some(0), vec!["succeeded"; 4]));
    assert_eq!(came.text("4", "stdout"), "first\ntried\ntried\n");
    let attempts: Vec<&Value> = came.items.iter().map(|item| &item["attempts"]).collect();
    assert_eq!(attempts, [1, 3, 3, 1]);
    assert_once_each(&env, came.result()["batch_id"].as_str().unwrap(), 4);
    // An item's own `retries` takes precedence.
    let item = |name: &str, retries: u32| {
        json!({ "command": THIRD.replace('N', name), "retries": retries, "id": name }).to_string() + "\n"
    };
    let came =
        run("needs.jsonl", item("five", 5) + &item("one-more", 1), &["--mode", "fan-out", "--keep-going"]);
    assert_eq!(came.all("state"), ["succeeded", "failed"]);
    assert_eq!(env.cat(came.text("five", "fork"), "log"), "tried\n");
    assert_eq!((&came.item("five")["attempts"], &came.item("one-more")["attempts"]), (&json!(3), &json!(2)));
    // A denied command is not retried.
    env.policy("[[rule]]\nprefix = ['touch']\naction = 'deny'\nreason = 'no'\n[[rule]]\naction = 'allow'\n");
    let came = run("denied.txt", "touch x\n".to_owned(), &["--retry", "3"]);
    assert_eq!((came.text("1", "state"), &came.item("1")["attempts"]), ("denied", &json!(1)));
    env.assert_sound();
}

#[test]
fn item_fields_and_options_determine_how_commands_run() {
    let env = TestEnv::with_project();
    env.policy("[[rule]]\nname = 'no-rm'\nprefix = ['rm']\naction = 'deny'\nreason = 'it is a test'\n[[rule]]\naction = 'allow'\n");
    let text = r#"
{"id": "slow", "command": "sleep infinity", "timeout_ms": 1, "grace_ms": 1}
{"id": "long", "command": "while [ ! -e \"$S/go\" ]; do sleep 0.02; done; echo woke", "timeout": "none"}
{"id": "denied", "command": "rm README.md"}
{"id": "below", "command": "pwd; echo $A$B", "cwd": "src", "env": {"A": "a", "B": "b"}}
{"id": "large", "command": "head -c 3000000 /dev/zero > big", "file_size": "1MiB"}
{"id": "no-cwd", "command": "true", "cwd": "no/such/directory"}
{"id": "secretive", "command": "true", "secret_files": ["KEY=/no/such/file"]}
{"id": "no-ref", "command": "true", "from": "of-no-account", "fork": "neither-this"}
{"id": "no-such", "command": ["./no-such-command"]}
{"id": "no-program", "command": ["./README.md"]}
"#;
    let path = list(&env, "list.jsonl", text);
    let shared = Shared::new(&env);
    let set = format!("S={}", shared.text());
    let words = ["--mode", "fan-out", "-k", "--rw", shared.text(), "--env", &set];
    shared.put("go");
    let came = batch(&env, &path, &[&words[..], &["--env", "B=2"]].concat());
    assert_eq!(came.code, Some(1));
    assert_eq!((came.text("slow", "state"), &came.item("slow")["timed_out"]), ("failed", &json!(true)));
    assert_eq!(came.text("long", "stdout"), "woke\n");
    assert_eq!(
        (came.text("denied", "state"), came.text("denied", "reason")),
        ("denied", "denied: it is a test")
    );
    assert!(came.text("below", "stdout").ends_with("project/src\na2\n"), "{}", came.item("below"));
    assert_eq!(came.text("large", "state"), "failed");
    assert_eq!((came.text("no-cwd", "state"), came.text("no-cwd", "code")), ("failed", "command.no_cwd"));
    assert_eq!(came.text("secretive", "state"), "failed", "{}", came.item("secretive"));
    assert_eq!(came.text("no-ref", "state"), "succeeded");
    assert_eq!(
        (came.text("no-such", "state"), came.text("no-such", "code")),
        ("failed", "command.not_found")
    );
    assert_eq!(came.text("no-program", "code"), "command.not_executable");
    let counts = &came.result()["counts"];
    assert_eq!((&counts["denied"], &counts["error"], &counts["not_run"]), (&json!(1), &json!(0), &json!(0)));
    // Options override the fields of an item.
    std::fs::remove_file(env.at("shared/go")).unwrap();
    let came = batch(&env, &path, &[&words[..], &["--timeout", "1ms", "--grace", "1ms"]].concat());
    assert_eq!(came.item("long")["timed_out"], true);
    env.assert_sound();
}

#[test]
fn a_second_batch_of_the_same_list_uses_cached_results() {
    let env = TestEnv::with_project();
    let path = list(&env, "list.txt", "echo 1 > n; echo out\necho 2 >> n; cat n\ntrue\n");
    let fresh = good(&env, &path, &["--cache", "write"]);
    let again = good(&env, &path, &["--cache", "read"]);
    assert_eq!(
        (&fresh.result()["counts"]["cached"], &again.result()["counts"]["cached"]),
        (&json!(0), &json!(3))
    );
    assert_eq!(fresh.all("stdout"), again.all("stdout"));
    let trees = |came: &crate::lists::Came| crate::lists::digests(&env, came.text("3", "version"));
    assert_eq!(trees(&fresh), trees(&again));
    // A failure is cached too, but a retry runs the command again.
    let path = list(&env, "fails.txt", "echo x > x; false\n");
    assert_eq!(batch(&env, &path, &["--cache", "write"]).code, Some(1));
    let came = batch(&env, &path, &["--cache", "read"]);
    assert_eq!((&came.item("1")["cached"], &came.item("1")["attempts"]), (&json!(true), &json!(1)));
    assert_eq!(came.result()["counts"]["cached"], json!(0), "only successful items are counted");
    let came = batch(&env, &path, &["--cache", "read", "--retry", "1"]);
    assert_eq!((&came.item("1")["cached"], &came.item("1")["attempts"]), (&json!(false), &json!(2)));
    env.assert_sound();
}

#[test]
fn lists_are_read_from_files_or_stdin_and_errors_name_the_line() {
    let env = TestEnv::with_project();
    let mut command = env.clean(&avfs());
    command.args(["--json", "batch", "-", "--results", "/dev/null"]).stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    running.child.stdin.take().unwrap().write_all(b"echo from stdin > n\ncat n\n").unwrap();
    let envelope = running.answer().expect(0).envelope();
    assert_eq!(envelope["result"]["counts"]["succeeded"], 2);
    for (text, code, place) in [
        ("{\"command\": [\"a\"]}\n{\"comand\": 1}\n", "list.malformed", "line 2, column 9"),
        ("{\"command\": [\"a\"]}\n\nls\n", "list.malformed", "line 3"),
        ("{\"avfs_list\": 2}\n", "list.newer", "line 1"),
        (
            "{\"id\": 1, \"command\": \"a\"}\n{\"id\": \"1\", \"command\": \"b\"}\n",
            "list.duplicate_id",
            "line 2",
        ),
        ("{\"command\": \"a\", \"needs\": [\"x\"]}\n", "list.unknown_need", "line 1"),
        (
            "{\"id\": \"a\", \"needs\": [\"b\"], \"command\": \"a\"}\n{\"id\": \"b\", \"needs\": [\"a\"], \"command\": \"b\"}\n",
            "list.cycle",
            "a → b → a",
        ),
        ("# nothing\n\n", "list.empty", "list.txt"),
    ] {
        let path = list(&env, "list.txt", text);
        let (actual, message) = refused(&env, &["batch", path.to_str().unwrap()]);
        assert_eq!(actual, code, "{message}");
        assert!(message.contains(place), "{message}");
    }
    let path = list(&env, "list.txt", "true\n");
    let path = path.to_str().unwrap();
    for (words, code) in [
        (&["batch", "no-such-list"][..], "list.unreadable"),
        (&["batch", path, "--from", "no-such"], "ref.unknown"),
        (&["batch", path, "--discard"], "usage"),
        (&["batch", path, "--mode", "fan-out", "--fork", "f"], "usage"),
        (&["batch", path, "--resume"], "batch.not_found"),
        (&["batch", path, "--resume", "0123456789"], "batch.not_found"),
    ] {
        assert_eq!(refused(&env, words).0, code, "{words:?}");
    }
    assert_eq!(env.avfs_result(&["batch", "--list"])["batches"].as_array().unwrap().len(), 1);
}

/// Reads a JUnit report as CI does.
const JUNIT: &str = r#"
import json, sys, xml.etree.ElementTree as tree
suites = tree.parse(sys.argv[1]).getroot()
suite = suites.find('testsuite')
cases = [[case.get('name'), [part.tag for part in case], case.findtext('system-out')] for case in suite.findall('testcase')]
print(json.dumps({'totals': {key: int(suite.get(key)) for key in ('tests', 'failures', 'errors', 'skipped')}, 'cases': cases}))
"#;

#[test]
fn junit_and_summary_reports_can_be_read_by_ci() {
    let env = TestEnv::with_project();
    let text =
        "printf 'a<b>&\"\\001\\033[1m\\377'; printf '<|`x`|>\\n' >&2; false\necho fine\nno-such-command\n";
    let path = list(&env, "list.txt", text);
    let (junit, summary, github) = (env.at("junit.xml"), env.at("summary.md"), env.at("github.md"));
    std::fs::write(&github, "before\n").unwrap();
    let mut command = env.clean(&avfs());
    command
        .args(["batch", path.to_str().unwrap(), "-k", "--junit"])
        .arg(&junit)
        .arg("--summary")
        .arg(&summary);
    let answer = Running::start(command.env("GITHUB_STEP_SUMMARY", &github)).answer().expect(1);
    assert!(answer.stderr.contains("[2/3] 2  ok"), "{answer:?}");
    assert!(answer.text().contains("1 of 3 succeeded, 2 failed"), "{answer:?}");
    let mut python = env.clean(std::path::Path::new("python3"));
    let read = Running::start(python.args(["-c", JUNIT]).arg(&junit)).answer().expect(0);
    let read: Value = serde_json::from_str(&read.text()).unwrap();
    assert_eq!(read["totals"], json!({ "tests": 3, "failures": 2, "errors": 0, "skipped": 0 }));
    assert_eq!(read["cases"][1], json!(["2: echo fine", ["system-out"], "fine\n"]));
    assert_eq!(read["cases"][0][1], json!(["failure", "system-out", "system-err"]));
    let (summary, github) =
        (std::fs::read_to_string(summary).unwrap(), std::fs::read_to_string(github).unwrap());
    assert_eq!(github, format!("before\n{summary}"));
    assert!(summary.contains("1 of 3 succeeded, 2 failed") && summary.contains("exit code 1"), "{summary}");
}

#[test]
fn results_can_be_written_to_a_pipe_that_cannot_be_read_back() {
    let env = TestEnv::with_project();
    let path = list(&env, "list.txt", "echo fine\n");
    let junit = env.at("junit.xml");
    let mut command = env.clean(&avfs());
    command.args(["batch", path.to_str().unwrap(), "--results", "/dev/stdout", "--junit"]).arg(&junit);
    let answer = Running::start(&mut command).answer().expect(0);
    let line: Value = serde_json::from_str(answer.text().lines().next().unwrap()).unwrap();
    assert_eq!((&line["state"], &line["stdout"]), (&json!("succeeded"), &json!("fine\n")));
    assert!(std::fs::read_to_string(junit).unwrap().contains("1: echo fine"));
}

/// An error in one item is reported for that item; an error that affects every item stops the batch.
#[test]
fn an_error_that_affects_every_item_stops_the_batch() {
    let env = TestEnv::with_project();
    let path = list(&env, "list.txt", &"true\n".repeat(20));
    let words = ["--mode", "fan-out", "-k", "--jobs", "1"];
    let stopped = |env: &TestEnv, why: &str| {
        let came = batch(env, &path, &words);
        let counts = &came.result()["counts"];
        assert_eq!((came.code, &came.envelope["error"]["code"]), (Some(1), &json!("batch.stopped")));
        assert_eq!((&counts["error"], &counts["not_run"]), (&json!(1), &json!(19)), "{}", came.envelope);
        assert!(came.result()["stopped"].as_str().unwrap().contains(why), "{}", came.envelope);
    };
    env.policy("[[rule]]\nno-such-key = 1\n");
    stopped(&env, "policy.toml");
}

#[test]
fn item_that_needs_an_approval_names_it() {
    let env = TestEnv::with_project();
    env.policy("[[rule]]\nprefix = ['touch']\naction = 'require_approval'\n");
    let list = list(&env, "list.txt", "touch a\n");
    let came = batch(&env, &list, &[]);
    let id = came.text("1", "approval_id").to_owned();
    assert_eq!((came.text("1", "state"), came.text("1", "code")), ("denied", "approval.required"));
    let text = env.avfs(&["batch", list.to_str().unwrap(), "--resume"]).expect(1).text();
    assert!(
        text.contains(&format!("approve it unchanged with: avfs approvals approve {id}, then run")),
        "{text}"
    );
    let hint = format!("approve with: avfs approvals approve {id}\n");
    let shown = env.avfs(&["runs", "show", came.text("1", "run_id")]).expect(0).text();
    let line = format!("approval   {id}, pending; {hint}");
    assert!(shown.contains(&line) && !shown.contains("\nerror "), "{shown}");
    env.avfs(&["approvals", "deny", &id]).expect(0);
    let shown = env.avfs(&["runs", "show", came.text("1", "run_id")]).expect(0).text();
    assert!(shown.contains(&format!("approval   {id}, denied\n")), "{shown}");
}

#[test]
fn an_approval_of_a_networked_item_is_printed_with_a_network() {
    let env = TestEnv::with_project();
    env.policy("");
    let list = list(&env, "list.txt", "curl example.org\n");
    let text = env.avfs(&["batch", list.to_str().unwrap()]).expect(1).text();
    let (_, command) = text.split_once("approve it with: avfs approvals approve ").unwrap();
    let (id, rest) = command.split_once(' ').unwrap();
    assert!(rest.starts_with("--net allow=DOMAIN,…, then run it again\n"), "{text}");
    let shown = env.avfs(&["runs", "show", "last"]).expect(0).text();
    let line = format!("pending; approve with: avfs approvals approve {id} --net allow=DOMAIN,…\n");
    assert!(shown.contains(&line), "{shown}");
}

#[test]
fn hints_and_notes_of_failed_items_are_shown_once() {
    let env = TestEnv::with_project();
    env.policy("");
    let test = list(&env, "test.txt", "test -n \"$FOO\"\ntest -n \"$FOO\"\n");
    let note = "FOO is set on the host but not passed to the command; pass it with --env FOO";
    let words = ["batch", test.to_str().unwrap(), "--keep-going"];
    let text = Running::start(env.clean(&avfs()).args(words).env("FOO", "1")).answer().expect(1).text();
    assert_eq!(text.matches(&format!("    note: {note}\n")).count(), 1, "{text}");
    let words = ["--json", "batch", test.to_str().unwrap(), "--keep-going"];
    let envelope =
        Running::start(env.clean(&avfs()).args(words).env("FOO", "1")).answer().expect(1).envelope();
    let items = envelope["result"]["unsuccessful"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    for item in items {
        assert_eq!(item["notes"], json!([{"code": "env.withheld", "text": note}]), "{item}");
    }

    let denied = list(&env, "denied.txt", "docker run x\nvim f\ndocker run x\n");
    let came = batch(&env, &denied, &["--keep-going"]);
    assert!(came.text("1", "allow_rule").starts_with("[[rule]]\nprefix = [\"docker\""), "{}", came.item("1"));
    assert!(came.text("2", "hint").contains("vim -es"), "{}", came.item("2"));
    let text = env.avfs(&["batch", denied.to_str().unwrap(), "--keep-going"]).expect(1).text();
    assert_eq!(text.matches("[[rule]]").count(), 1, "{text}");
    assert!(text.contains("    hint: run it on a terminal and without --json, or use vim -es"), "{text}");

    let one = list(&env, "one.txt", "true\n");
    let text = env.avfs(&["batch", one.to_str().unwrap(), "--memory", "512"]).expect(1).text();
    assert!(text.contains("    hint: did you mean 512MiB?"), "{text}");
    // The option that contradicts --fork is not recommended without a remark.
    let words = ["batch", one.to_str().unwrap(), "--jobs", "4", "--fork", "chain"];
    let note = env.avfs(&words).expect(0).stderr;
    assert!(note.contains("with --mode fan-out instead of --fork"), "{note}");
}
