//! Recordings: the exported list describes the runs, and can be run again.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use avfs_lists::list::ListFile;
use avfs_wire::ListItem;

use crate::env::TestEnv;
use crate::person::person;
use crate::shared::Shared;

/// Exports a list of the given runs, validated like any list.
fn export(env: &TestEnv, words: &[&str]) -> (ListFile, Vec<ListItem>) {
    let file = env.at("list.jsonl");
    let all = [&["record", "export", "--output", file.to_str().unwrap()], words].concat();
    env.avfs(&all).expect(0);
    open(env, &file)
}

fn open(env: &TestEnv, file: &Path) -> (ListFile, Vec<ListItem>) {
    let list = ListFile::open(file, &env.at("data")).unwrap();
    let items = (0..list.len()).map(|number| list.item(number).unwrap()).collect();
    (list, items)
}

fn digest(text: &str) -> Option<String> {
    Some(blake3::hash(text.as_bytes()).to_hex().to_string())
}

/// Runs with stdout and stderr redirected to files.
#[track_caller]
fn to_files(env: &TestEnv, options: &[&str], line: &str) -> (String, String) {
    let (out, err) = (env.at("out"), env.at("err"));
    let mut command = env.command(&[&["--quiet"], options, &["--shell", line]].concat());
    let create = |path: &Path| std::fs::File::create(path).unwrap();
    let status = command.stdout(create(&out)).stderr(create(&err)).status().unwrap();
    assert!(status.code().is_some());
    (std::fs::read_to_string(out).unwrap(), std::fs::read_to_string(err).unwrap())
}

#[test]
fn a_recorded_session_is_a_list_that_can_be_run_again() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.avfs(&["record", "start", "session", "--fork", "work"]).expect(0);
    let work = ["--quiet", "--reproducible", "--fork", "work"];
    env.ok(&work, "echo one > n; echo out; echo aside >&2");
    let mut below = env
        .command(&[&work[..], &["--env", "A=b c", "--shell", "pwd; cat ../n; echo $A > a; exit 3"]].concat());
    let below = env.answer(below.current_dir(env.project().join("src"))).expect(3);
    env.ok(&["--quiet", "--fork", "other"], "echo not recorded");
    assert_eq!(env.run(&[&work[..], &["--", "/no/such/program"]].concat()).code, Some(127));
    let stopped = env.avfs_result(&["record", "stop"]);
    assert_eq!((&stopped["recording"]["name"], &stopped["runs"]), (&json!("session"), &json!(3)));
    env.ok(&work, "echo too late");

    let (list, items) = export(&env, &["session"]);
    let header = list.header().unwrap();
    assert_eq!(header.at.as_deref(), env.project().to_str());
    assert_eq!(header.source.as_deref(), Some("session"));
    let [first, second] = &items[..] else { panic!("{items:?}") };
    let expected = |item: &ListItem| item.expected.clone().unwrap();
    assert_eq!((expected(first).stdout, expected(first).stderr), (digest("out\n"), digest("aside\n")));
    assert_eq!(expected(first).exit_code, Some(0));
    assert_eq!((expected(second).exit_code, expected(second).stdout), (Some(3), digest(&below.text())));
    assert_eq!(list.needs(1), [0]);
    assert_eq!(second.start.clone().unwrap().version, expected(first).version);
    assert_eq!(
        (second.request.cwd.as_deref(), second.request.env["A"].as_str()),
        (Some(Path::new("src")), "b c")
    );
    assert!(second.request.fork.is_none() && second.request.vault.is_none());

    // Run each item again from its recorded base: the result is the same, including the time of every file.
    for (number, item) in items.iter().enumerate() {
        let (fork, from) = (format!("again-{number}"), item.start.clone().unwrap().version.unwrap());
        let request = env.at("request.json");
        std::fs::write(&request, avfs_lists::list::request_json(item).unwrap()).unwrap();
        let words = ["--json", "--fork", &fork, "--from", &from, "--request", request.to_str().unwrap()];
        let again = env.run(&words).envelope();
        let result = &again["result"];
        let expected = expected(item);
        assert_eq!(result["exit_code"], json!(expected.exit_code), "{again}");
        assert_eq!(result["stdout_digest"], json!(expected.stdout), "{again}");
        assert_eq!(result["stderr_digest"], json!(expected.stderr), "{again}");
        let version = env.avfs_result(&["show", &fork])["version"].clone();
        assert_eq!(version["root"], json!(expected.tree), "{again}");
    }
    env.assert_sound();
}

#[test]
fn digests_of_output_are_recorded_only_if_the_output_was_captured() {
    let env = TestEnv::with_project();
    let digests = |fork: &str| {
        let (_, items) = export(&env, &[fork]);
        let expected = items.last().unwrap().expected.clone().unwrap();
        (expected.stdout, expected.stderr)
    };
    let line = "echo out; echo err >&2";
    // The output was not captured, so its digests are unknown.
    to_files(&env, &["--fork", "before"], line);
    assert_eq!(digests("before"), (None, None));
    env.json(&["--fork", "captured"], line);
    assert_eq!(digests("captured"), (digest("out\n"), digest("err\n")));
    env.avfs(&["record", "start"]).expect(0);
    // To files, to pipes, and to /dev/null.
    assert_eq!(to_files(&env, &["--fork", "files"], line), ("out\n".to_owned(), "err\n".to_owned()));
    assert_eq!(digests("files"), (digest("out\n"), digest("err\n")));
    let piped = env.shell(&["--quiet", "--fork", "pipes"], line).expect(0);
    assert_eq!((piped.text(), piped.stderr.as_str()), ("out\n".to_owned(), "err\n"));
    assert_eq!(digests("pipes"), (digest("out\n"), digest("err\n")));
    let mut nowhere = env.command(&["--quiet", "--fork", "nowhere", "--shell", line]);
    assert!(nowhere.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    assert_eq!(digests("nowhere"), (digest("out\n"), digest("err\n")));
    // If both streams go to the same file or pipe, their order is preserved.
    let turns = "for n in 1 2 3 4 5 6 7 8; do echo out $n; echo err $n >&2; done";
    let in_order: String = (1..=8).map(|n| format!("out {n}\nerr {n}\n")).collect();
    let together = env.at("together");
    let file = std::fs::File::create(&together).unwrap();
    let mut command = env.command(&["--quiet", "--fork", "one-file", "--shell", turns]);
    assert!(command.stdout(file.try_clone().unwrap()).stderr(file).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(&together).unwrap(), in_order);
    assert_eq!(digests("one-file"), (None, None));
    let mut shell = env.clean(Path::new("/bin/sh"));
    shell
        .args(["-c", "\"$0\" --quiet --fork one-pipe --shell \"$1\" 2>&1 | cat"])
        .arg(crate::env::runner())
        .arg(turns);
    assert_eq!(String::from_utf8(shell.output().unwrap().stdout).unwrap(), in_order);
    assert_eq!(digests("one-pipe"), (None, None));
}

#[test]
fn a_recording_does_not_affect_the_streams() {
    let env = TestEnv::with_project();
    env.avfs(&["record", "start"]).expect(0);
    // More output than is stored: all of it arrives, and a truncated stream has no digest.
    let much =
        env.shell(&["--quiet", "--fork", "much"], "head -c 15000000 /dev/zero; echo end >&2").expect(0);
    assert_eq!((much.stdout.len(), much.stderr.as_str()), (15_000_000, "end\n"));
    let (_, items) = export(&env, &["much"]);
    let expected = items[0].expected.clone().unwrap();
    assert_eq!((expected.stdout, expected.stderr), (None, digest("end\n")));
    // A reader that closes the pipe has the same effect as without a recording.
    let mut gone = env.command(&["--quiet", "--fork", "gone", "--shell", "yes; echo kept > kept"]);
    let mut gone = gone.stdout(Stdio::piped()).spawn().unwrap();
    drop(gone.stdout.take());
    assert_eq!(gone.wait().unwrap().code(), Some(0));
    assert_eq!(env.cat("gone", "kept"), "kept\n");
    // A reader that does not read blocks the command, and nothing is lost.
    let shared = Shared::new(&env);
    let mut slow =
        shared.command(&env, &["--quiet", "--fork", "slow"], ": > $S/begun; seq 200000; : > $S/done");
    let mut slow = slow.stdout(Stdio::piped()).spawn().unwrap();
    shared.wait_for("begun");
    let mut stdout = slow.stdout.take().unwrap();
    let mut written = [0; 1];
    stdout.read_exact(&mut written).unwrap();
    assert!(!shared.has("done"), "the command wrote 1.3 MB, more than is buffered");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\n200000\n") && rest.len() == 1_288_894, "{} bytes", rest.len());
    assert!(shared.has("done") && slow.wait().unwrap().success());
}

#[test]
fn a_terminal_stays_a_terminal_during_a_recording() {
    let env = TestEnv::with_project();
    env.avfs(&["record", "start"]).expect(0);
    let line = "test -t 0 && test -t 1 && test -t 2 && echo all three";
    let answer = person(&env, "", &["-q", "--fork", "w", "--shell", line]);
    assert!(answer.text().contains("all three"), "{answer:?}");
    let (_, items) = export(&env, &["w"]);
    let expected = items[0].expected.clone().unwrap();
    assert_eq!((expected.exit_code, expected.stdout, expected.stderr), (Some(0), None, None));
}

#[test]
fn secret_values_are_never_written_to_a_list() {
    let env = TestEnv::with_project();
    let file = env.at("variables");
    std::fs::write(&file, "FROM_FILE=from-a-file\n").unwrap();
    let mut command = env.command(&[
        "--quiet",
        "--fork",
        "w",
        "--secret",
        "TOKEN",
        "--env",
        "PLAIN=plain",
        "--env",
        "DB_PASSWORD=swordfish",
        "--env",
    ]);
    command.arg("API_KEY=ghp_0123456789abcdefghijklmnopqrstuvwxyz").arg("--env").arg("HIDDEN=x-hush-hush-x");
    command.arg("--env-file").arg(&file).args(["--", "sh", "-c", "echo $FROM_FILE"]);
    let answer = env.answer(command.env("TOKEN", "hush-hush")).expect(0);
    assert_eq!(answer.text(), "from-a-file\n");
    let (_, items) = export(&env, &["w"]);
    let request = &items[0].request;
    assert_eq!(request.env.iter().collect::<Vec<_>>(), [(&"PLAIN".to_owned(), &"plain".to_owned())]);
    assert_eq!(request.secrets, ["TOKEN"]);
    for name in ["API_KEY", "DB_PASSWORD", "HIDDEN", "FROM_FILE"] {
        assert!(request.environment.contains(&name.to_owned()), "{name}: {request:?}");
    }
    let list = std::fs::read_to_string(env.at("list.jsonl")).unwrap();
    for value in ["hush-hush", "ghp_", "swordfish", "from-a-file"] {
        assert!(!list.contains(value), "{value}: {list}");
    }
}

#[test]
fn arguments_that_are_not_utf8_are_exported_exactly() {
    use std::os::unix::ffi::OsStrExt;
    let env = TestEnv::with_project();
    let odd = std::ffi::OsStr::from_bytes(b"x\xff y");
    let mut command = env.command(&["--quiet", "--fork", "w", "--", "touch"]);
    env.answer(command.arg(odd)).expect(0);
    let (_, items) = export(&env, &["w"]);
    let words = items[0].request.command_line().unwrap().words();
    assert_eq!(words, ["touch".as_ref(), odd]);
}

#[test]
fn an_export_reports_deleted_versions() {
    let env = TestEnv::with_project();
    let envelope = env.json(&[], "echo x > x");
    let id = envelope["result"]["run_id"].as_str().unwrap();
    env.avfs(&["discard", &format!("run:{id}")]).expect(0);
    env.avfs(&["gc"]).expect(0);
    let (_, items) = export(&env, &["--runs", id]);
    let expected = items[0].expected.clone().unwrap();
    assert_eq!((expected.tree, expected.version, expected.exit_code), (None, None, Some(0)));
    let result = env.avfs_result(&["record", "export", "--runs", id]);
    assert_eq!((&result["items"], &result["without_versions"]), (&json!(1), &json!(1)));
    assert_eq!(result["list"].as_array().unwrap().len(), 2);
    let human = env.avfs(&["record", "export", id]).expect(0);
    assert!(human.stderr.contains("1 item has no digests of trees"), "{human:?}");
    assert_eq!(human.text().lines().count(), 2);
    // A discarded tree is not known either.
    let discarded: Value = env.json(&["--discard"], "echo x > x");
    let id = discarded["result"]["run_id"].as_str().unwrap();
    assert_eq!(export(&env, &[id]).1[0].expected.clone().unwrap().tree, None);
}
