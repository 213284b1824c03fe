//! Output of commands: the last lines of a failure, both ends of long output, and output that is kept for later.

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs};
use crate::lists::list;
use crate::person::person;

#[test]
fn the_last_lines_of_a_failed_item_are_on_the_console_and_in_the_journal() {
    let env = TestEnv::with_project();
    let line = r#"{"id": "noisy", "secrets": ["TOKEN"], "command": "seq 1 50; echo the token is $TOKEN; printf 'bad \\033[31mname\\n' >&2; exit 3"}"#;
    let text = format!("{line}\n{{\"command\": \"echo all is well\"}}\n");
    let list = list(&env, "list.jsonl", &text);
    let words = ["batch", list.to_str().unwrap(), "--mode", "fan-out", "--keep-going"];
    let mut command = env.clean(&avfs());
    command.args(words).env("TOKEN", "a-token-of-some-length");
    let answer = Running::start(&mut command).answer().expect(1);
    let console = &answer.stderr;
    assert!(console.contains("  stdout: 42\n") && !console.contains("  stdout: 41\n"), "{console}");
    assert!(console.contains("  stdout: the token is [secret]\n"), "{console}");
    assert!(console.contains("  stderr: bad \\u{1b}[31mname\n"), "{console}");
    assert!(!console.contains("  stdout: all is well"), "{console}");
    // The failed item is the newest run or the one before it: the items ran concurrently.
    let runs = env.avfs_result(&["runs", "list"]);
    let failed = runs["runs"].as_array().unwrap().iter().find(|run| run["exit_code"] == 3).unwrap();
    let id = failed["id"].as_str().unwrap();
    let shown = env.avfs_result(&["runs", "show", id]);
    let last = &shown["result"]["last_lines"];
    assert_eq!(last["stderr"], "bad \u{1b}[31mname");
    assert_eq!(last["stdout"].as_str().unwrap().lines().count(), 10);
    let people = env.avfs(&["runs", "show", id]).expect(0).text();
    assert!(people.contains("stdout     the token is [secret]\n"), "{people}");
    assert!(people.contains("stderr     bad \\u{1b}[31mname\n"), "{people}");
    // The output of a successful run is not recorded.
    let well = runs["runs"].as_array().unwrap().iter().find(|run| run["exit_code"] == 0).unwrap();
    let shown = env.avfs_result(&["runs", "show", well["id"].as_str().unwrap()]);
    assert_eq!(shown["result"]["last_lines"], Value::Null);
}

const NOISY: &str = "mkdir -p node_modules/a build src; seq 1 30 | while read n; do echo $n > node_modules/a/$n; done; \
    echo x > build/out.o; echo log > trace.log; echo new > src/new.rs; echo readme > README.md; \
    mkdir sub; echo '*.tmp' > sub/.gitignore; echo x > sub/a.tmp; echo x > sub/b.txt";

#[test]
fn files_ignored_by_git_are_listed_last() {
    let env = TestEnv::with_project();
    env.put(".gitignore", b"node_modules/\n/build\n*.log\n!keep.log\n");
    let summary = env.shell(&[], NOISY).expect(0).stderr;
    let listed: Vec<&str> = summary.lines().filter_map(|line| line.strip_prefix("avfs-run:   ")).collect();
    let wanted =
        ["M README.md (7 B)", "A src/new.rs (4 B)", "A sub/", "A sub/.gitignore (6 B)", "A sub/b.txt (2 B)"];
    assert_eq!(listed[..5], wanted, "{summary}");
    assert_eq!(listed[5], "A build/  (ignored by git)", "{summary}");
    assert!(listed[5..10].iter().all(|line| line.ends_with("  (ignored by git)")), "{summary}");
    assert!(summary.contains("\navfs-run:   and 31 more\n"), "{summary}");
    // The changes are kept for review, and their expiry is reported.
    let envelope = env.json(&[], "echo more > more");
    let until = envelope["result"]["kept_until"].as_str().unwrap();
    assert!(until.ends_with('Z'), "{until}");
    assert!(summary.contains("\navfs-run:   kept until 20"), "{summary}");
    let id = envelope["run_id"].as_str().unwrap();
    assert_eq!(env.avfs_result(&["runs", "show", id])["kept_until"], *until);
    assert!(env.avfs(&["runs", "show", id]).expect(0).text().contains("\nkept until 20"));
    // Nothing expires on a persistent fork, or if nothing changed.
    assert_eq!(env.json(&["--fork", "f"], "echo x > x")["result"]["kept_until"], Value::Null);
    assert_eq!(env.json(&[], "true")["result"]["kept_until"], Value::Null);
    let shown = env.avfs(&["runs", "show", "last~3"]).expect(0).text();
    let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text}: {shown}"));
    assert!(place("added     sub/b.txt") < place("added     build/out.o"), "{shown}");
}

#[test]
fn a_compact_envelope_contains_the_essentials_and_is_bounded() {
    let env = TestEnv::with_project();
    env.put(".gitignore", b"node_modules/\n/build\n*.log\n");
    let compact = |line: &str| {
        let answer = env.shell(&["--json=compact"], line);
        assert!(answer.stdout.len() <= 16 << 10, "{} bytes", answer.stdout.len());
        let value = answer.envelope();
        assert!(!answer.text().contains("null"), "{value}");
        (answer.code, value)
    };
    let (code, small) = compact("echo out; echo err >&2; echo x > x; exit 3");
    assert_eq!(code, Some(3));
    assert_eq!(
        (&small["kind"], &small["success"], &small["exit_code"], &small["stdout"], &small["stderr"]),
        (&json!("execution.compact"), &json!(false), &json!(3), &json!("out\n"), &json!("err\n"))
    );
    assert_eq!(small["changes"], json!({ "counts": { "added": 1 }, "paths": ["A x (2 B)"] }));
    assert!(small["kept_until"].is_string() && small["fork"].is_string(), "{small}");
    // Empty fields are omitted.
    let (_, nothing) = compact("true");
    for absent in ["stdout", "stderr", "changes", "signal", "timed_out", "notes", "error", "fork", "left_off"]
    {
        assert!(nothing.get(absent).is_none(), "{absent}: {nothing}");
    }
    let (_, noisy) = compact(NOISY);
    assert_eq!(noisy["changes"]["paths"].as_array().unwrap().len(), 5, "{noisy}");
    let ignored = json!([
        { "path": "node_modules", "changes": 32 },
        { "path": "build", "changes": 2 },
        { "path": "sub/a.tmp", "changes": 1 },
        { "path": "trace.log", "changes": 1 },
    ]);
    assert_eq!(noisy["changes"]["ignored"], ignored, "{noisy}");
    // Large amounts of everything, all of which have to be escaped.
    let many = "mkdir -p a/b c; seq 1 500 | while read n; do echo $n > a/b/$n; echo $n > c/$n; done; \
        long=$(printf 'x%.0s' $(seq 1 200)); seq 1 50 | while read n; do > \"$(printf '\\033\\001')$long$n\"; done; \
        yes \"$(printf '\\033[31m')\" | head -c 100000; yes \"$(printf '\\377')\" | head -c 100000 >&2";
    let (_, much) = compact(many);
    let dirs: Vec<&str> =
        much["changes"]["dirs"].as_array().unwrap().iter().map(|dir| dir["path"].as_str().unwrap()).collect();
    assert!(dirs.contains(&"a/b") && dirs.contains(&"c"), "{much}");
    let omitted = &much["stdout_omitted"];
    assert!(omitted["bytes"].as_u64().unwrap() > 90_000, "{much}");
    let at = usize::try_from(omitted["offset"].as_u64().unwrap()).unwrap();
    let marker = format!("\n[{} bytes omitted]\n", omitted["bytes"]);
    assert!(much["stdout"].as_str().unwrap()[at..].starts_with(&marker), "{much}");
    assert!(much["stderr"].as_str().unwrap().starts_with("\\xff\n"), "{much}");
    // Errors are compact too, including usage errors.
    let error = env.run(&["--json=compact", "--no-such-option", "ls"]).expect(125).envelope();
    assert_eq!((&error["kind"], &error["error"]["code"]), (&json!("execution.compact"), &json!("usage")));
    let (code, missing) = compact("exec no-such-program");
    assert_eq!((code, missing["exit_code"].as_u64()), (Some(127), Some(127)), "{missing}");
    // `avfs run` prints the same; other verbs have only one form.
    let other = env.avfs(&["run", "--json=compact", "--", "echo", "hi"]).expect(0).envelope();
    assert_eq!((&other["kind"], &other["stdout"]), (&json!("execution.compact"), &json!("hi\n")));
    env.avfs(&["--json=compact", "log"]).expect(2);
    assert_eq!(env.json(&[], "true")["kind"], "execution");
}

/// Line ends are those of text, and everything else is escaped, however long a line is.
#[test]
fn kept_error_output_is_printed_in_lines() {
    let env = TestEnv::with_project();
    let line =
        "printf 'one\\r\\ntwo\\rx\\r\\r\\n' >&2; head -c 300000 /dev/zero | tr '\\0' y >&2; printf '\\r' >&2";
    env.shell(&["--keep-output"], line).expect(0);
    let shown = env.avfs(&["runs", "show", "--output"]).expect(0);
    assert_eq!(shown.stderr, format!("one\ntwo\\rx\\r\n{}\\r\n", "y".repeat(300_000)));
}

#[test]
fn kept_output_can_be_printed_later() {
    let env = TestEnv::with_project();
    let mut command = env.command(&["--keep-output", "--secret", "TOKEN", "--shell"]);
    command.arg("echo out; printf 'tok %s\\377\\n' $TOKEN; printf 'err \\033[1m\\n' >&2; echo x > x; exit 4");
    let answer = env.answer(command.env("TOKEN", "a-token-of-some-length")).expect(4);
    // Streamed output is passed on unchanged.
    assert_eq!(answer.stdout, b"out\ntok a-token-of-some-length\xff\n");
    let shown = env.avfs(&["runs", "show", "--output"]).expect(0);
    assert_eq!(shown.stdout, b"out\ntok [secret]\xff\n");
    assert_eq!(shown.stderr, "err \\u{1b}[1m\n");
    let json = env.avfs_result(&["runs", "show", "last", "--output"]);
    assert_eq!((&json["stderr"], &json["merged"]), (&json!("err \u{1b}[1m\n"), &json!(false)));
    assert_eq!((&json["stdout_encoding"], &json["stdout_omitted"]), (&json!("base64"), &Value::Null));
    assert!(
        env.avfs(&["runs", "show"])
            .expect(0)
            .text()
            .contains("\noutput     kept; print it with: avfs runs show ")
    );
    // Kept output is not a cached result, and is removed with the changes.
    assert_eq!(env.avfs_result(&["cache", "list"])["results"], json!([]));
    env.avfs(&["gc"]).expect(0);
    env.assert_sound();
    assert!(env.avfs(&["runs", "show", "--output"]).expect(0).text().starts_with("out\n"));
    env.avfs(&["discard", "last"]).expect(0);
    env.avfs(&["gc"]).expect(0);
    let gone = env.avfs(&["--json", "runs", "show", "last", "--output"]).expect(1).envelope();
    assert_eq!(gone["error"]["code"], "output.not_kept");
    // Output is kept only on request.
    env.shell(&[], "echo not kept").expect(0);
    env.avfs(&["runs", "show", "--output"]).expect(1);
    env.assert_sound();
}

#[test]
fn output_is_kept_with_json_and_with_the_cache_and_is_bounded() {
    let env = TestEnv::with_project();
    let kept = |run: &str| env.avfs_result(&["runs", "show", run, "--output"]);
    env.json(&["--keep-output", "--output-max", "100"], "seq 1 1000");
    let long = kept("last");
    assert!(long["stdout"].as_str().unwrap().starts_with("1\n2\n"), "{long}");
    assert!(long["stdout"].as_str().unwrap().ends_with("\n1000\n"), "{long}");
    assert_eq!(long["stdout_omitted"], json!({ "offset": 50, "bytes": 3793 }));
    // Also for a cached run, and for a run that stores its result.
    env.json(&["--cache", "write", "--keep-output"], "echo twice");
    let hit = env.json(&["--cache", "read", "--keep-output"], "echo twice");
    assert_eq!(hit["result"]["cached"], json!(true));
    assert_eq!((&kept("last")["stdout"], &kept("last~1")["stdout"]), (&json!("twice\n"), &json!("twice\n")));
    assert_eq!(env.avfs_result(&["cache", "list"])["results"].as_array().unwrap().len(), 1);
    env.avfs(&["cache", "forget", "--all"]).expect(0);
    env.avfs(&["gc"]).expect(0);
    assert_eq!(kept("last")["stdout"], "twice\n");
    // Items of a list.
    let list = list(&env, "list.txt", "echo one\necho two; exit 1\n");
    env.avfs(&["batch", list.to_str().unwrap(), "--keep-output"]).expect(1);
    assert_eq!((&kept("last")["stdout"], &kept("last~1")["stdout"]), (&json!("two\n"), &json!("one\n")));
    env.assert_sound();
}

#[test]
fn output_to_one_pipe_or_a_terminal_is_kept_in_order() {
    let env = TestEnv::with_project();
    let line = "for n in 1 2 3; do echo out $n; echo err $n >&2; done";
    let mut both = env.clean(std::path::Path::new("/bin/sh"));
    both.arg("-c").arg("\"$RUN\" --quiet --keep-output --shell \"$LINE\" 2>&1 | cat");
    both.env("RUN", crate::env::runner()).env("LINE", line);
    let wanted = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n";
    assert_eq!(env.answer(&mut both).expect(0).text(), wanted);
    let kept = env.avfs_result(&["runs", "show", "--output"]);
    assert_eq!((&kept["stdout"], &kept["merged"]), (&json!(wanted), &json!(true)));
    let seen = person(&env, "", &["--quiet", "--keep-output", "--shell", "tty; echo seen; echo too >&2"]);
    assert!(seen.text().contains("/dev/pts/"), "{seen:?}");
    let kept = env.avfs_result(&["runs", "show", "--output"]);
    assert!(kept["stdout"].as_str().unwrap().ends_with("seen\r\ntoo\r\n"), "{kept}");
}
