//! The contract for scripts: exit codes, words after `--`, and the envelope.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::env::{Answer, Running, TestEnv};
use crate::reproducible::has_faketime;
use crate::shared::start_held;
use crate::support;
use crate::support::pause::Pauses;
use crate::support::{as_unknown_user, skip};

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    let env = TestEnv::with_project();
    for code in [0, 1, 42, 120, 123, 124, 125, 126, 127, 128, 255] {
        let answer = env.shell(&["--json"], &format!("exit {code}"));
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let envelope = answer.envelope();
        // The envelope distinguishes a 125 of the command from a 125 of avfs-run.
        assert_eq!(envelope["result"]["exit_code"], json!(code));
        assert_eq!(envelope["success"], json!(code == 0));
        assert_eq!((&envelope["state"], &envelope["error"]), (&json!("completed"), &Value::Null));
    }
}

#[test]
fn a_signal_is_reported_as_128_plus_its_number() {
    let env = TestEnv::with_project();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR1", 10), ("PIPE", 13)] {
        let answer = env.shell(&["--json"], &format!("kill -{name} $$"));
        assert_eq!(answer.code, Some(128 + number), "{answer:?}");
        let result = &answer.envelope()["result"];
        assert_eq!((&result["signal"], &result["exit_code"]), (&json!(number), &Value::Null));
    }
}

#[test]
fn commands_that_cannot_be_executed_have_distinct_exit_codes() {
    let env = TestEnv::with_project();
    env.put("plain", b"#!/bin/sh\n");
    env.put("bad-interpreter", b"#!/no/such/interpreter\n");
    env.put("empty-path/x", b"");
    // An executable for the S/390, and a file that no shell can read.
    env.put(
        "foreign",
        &[&b"\x7fELF\x02\x02\x01\0"[..], &[0; 8], b"\0\x02\0\x16\0\0\0\x01", &[0; 40]].concat(),
    );
    env.put("noise", b"MZ\x90\0\x03\0\0\0");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.project().join("bad-interpreter"), executable).unwrap();
    env.put("of-windows", b"#!/bin/sh\r\necho hi\r\n");
    for name in ["foreign", "noise", "of-windows"] {
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(env.project().join(name), executable).unwrap();
    }
    for (word, code, name) in [
        ("no-such-command", 127, "command.not_found"),
        ("./no-such-file", 127, "command.not_found"),
        ("plain/below-a-file", 127, "command.not_found"),
        ("./bad-interpreter", 127, "command.not_found"),
        ("./of-windows", 127, "command.not_found"),
        ("./plain", 126, "command.not_executable"),
        ("./src", 126, "command.not_executable"),
        ("./foreign", 126, "command.not_executable"),
        ("./noise", 126, "command.not_executable"),
    ] {
        let answer = env.run(&["--json", "--", word]).expect(code);
        let envelope = answer.envelope();
        assert_eq!(envelope["error"]["code"], json!(name), "{word}: {envelope}");
        assert_eq!((&envelope["state"], &envelope["success"]), (&json!("failed"), &json!(false)));
        assert!(envelope["error"]["hint"].is_string(), "{envelope}");
        let human = env.run(&["--quiet", "--", word]).expect(code);
        assert!(human.stderr.starts_with("error: ") && human.stderr.contains("\nhint: "), "{human:?}");
        assert_eq!(env.scratches(), [""; 0]);
    }
    for (word, message, hint) in [
        ("./bad-interpreter", "its interpreter was not found", "--ro PATH"),
        ("./of-windows", "carriage return", "sed -i 's/\\r$//' ./of-windows"),
    ] {
        let said = env.run(&["--", word]).expect(127).stderr;
        assert!(said.contains(message) && said.contains(hint), "{said}");
    }
    let hint = |path: &str, word: &str| env.run(&["--env", path, "--", word]).expect(127).stderr;
    let said = hint("PATH=/nope", "true");
    assert!(
        said.contains("the given PATH does not contain it: add /") && said.contains(", or omit PATH"),
        "{said}"
    );
    assert!(hint("PATH=/nope", "no-such-command").contains("check the spelling"));
    // A file without a `#!` line is run by the shell, as in execvp(3).
    env.put("script", b"echo from a script: $1\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.project().join("script"), executable).unwrap();
    assert_eq!(env.run(&["--", "./script", "one"]).expect(0).text(), "from a script: one\n");
}

#[test]
fn errors_of_the_runner_exit_with_125_and_are_printed_as_text_or_json() {
    let env = TestEnv::with_project();
    for words in [
        &["--fork", "a b", "--", "true"][..],
        &["--from", "no-such-ref", "--", "true"],
        &["--env", "=x", "--", "true"],
        &["--env-file", "no-such-file", "--", "true"],
        &["--ro", "/no/such/path", "--", "true"],
        &["--vault", "/no/such/vault.db", "--", "true"],
        &["--vault", "no-such-name", "--", "true"],
        &["--vault", "", "--", "true"],
        &["--cwd", "..", "--", "true"],
        &["--cwd", "no-such-dir", "--", "true"],
        &["--at", "relative", "--", "true"],
        &["--at", "/", "--", "true"],
        &["--fork", "f", "--from", "no-such-ref", "--", "true"],
        &["--from", "main", "--base", "live", "--", "true"],
    ] {
        let human = env.run(words).expect(125);
        assert!(human.stderr.contains("error: "), "{words:?}: {human:?}");
        let mut with_json = vec!["--json"];
        with_json.extend(words);
        let answer = env.run(&with_json).expect(125);
        // clap rejects some values before the output format is known.
        if answer.stdout.is_empty() {
            assert!(answer.stderr.starts_with("error: invalid value"), "{words:?}: {answer:?}");
            continue;
        }
        let envelope = answer.envelope();
        assert!(envelope["error"]["code"].is_string(), "{words:?}: {envelope}");
    }
    assert_eq!(env.scratches(), [""; 0]);
    for words in
        [&["--no-such-option", "true"][..], &[], &["--timeout", "5", "true"], &["--net", "x", "true"]]
    {
        let answer = env.run(words).expect(125);
        assert!(answer.stderr.starts_with("error: "), "{answer:?}");
    }
    let lacking = env.run(&["--json"]).expect(125).envelope();
    for shown_text in [env.run::<&str>(&[]).stderr, lacking["error"].to_string()] {
        assert!(
            shown_text.contains("missing COMMAND") && shown_text.contains("avfs-run -- make"),
            "{shown_text}"
        );
        assert!(!shown_text.contains("--probe"), "{shown_text}");
    }
    assert!(env.run(&["--help"]).expect(0).text().contains("Usage: avfs-run"));
    assert!(env.run(&["--version"]).expect(0).text().starts_with("avfs-run "));
}

#[test]
fn words_after_two_dashes_belong_to_the_command() {
    let env = TestEnv::with_project();
    let answer = env.run(&["--", "printf", "[%s]", "--json", "--fork", "-x", "", "a b", "$HOME", "*"]);
    assert_eq!(answer.expect(0).text(), "[--json][--fork][-x][][a b][$HOME][*]");
    // Without the dashes the first word that is not an option starts the command.
    assert_eq!(env.run(&["echo", "--json"]).expect(0).text(), "--json\n");
    assert_eq!(env.run(&["--", "--help"]).code, Some(127));
    // A line is passed to the shell unchanged.
    assert_eq!(env.ok(&[], "echo \"$0 $#\" | tr a-z A-Z && echo two"), "/BIN/SH 0\ntwo\n");
}

#[test]
fn arguments_that_are_not_utf8_reach_the_command_unchanged() {
    use std::os::unix::ffi::OsStrExt;
    let env = TestEnv::with_project();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe\n\x01");
    let mut command = env.command(&["--", "printf", "%s"]);
    assert_eq!(env.answer(command.arg(odd)).expect(0).stdout, odd.as_bytes());
    let mut command = env.command(&["--json", "--", "printf", "%s"]);
    let envelope = env.answer(command.arg(odd)).expect(0).envelope();
    assert_eq!(envelope["result"]["stdout_encoding"], json!("base64"));
    assert_eq!(envelope["result"]["stdout"], json!("//4KAQ=="));
    assert!(envelope["request"]["command_base64"].is_array(), "{envelope}");
}

#[test]
fn the_envelope_describes_the_run() {
    let env = TestEnv::with_project();
    let line = "echo out; echo err >&2; echo new > new; echo more >> README.md; rm src/data.bin; chmod 600 src/main.rs";
    let envelope = env.json(&["--timeout", "1h"], line);
    let (request, result) = (&envelope["request"], &envelope["result"]);
    assert_eq!((&request["command"], &request["command_mode"]), (&json!(line), &json!("shell")));
    assert_eq!((&request["timeout_ms"], &request["net"]), (&json!(3_600_000), &json!("none")));
    assert_eq!(request["vault"], json!(env.vault_file().to_str()));
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\n"), &json!("err\n")));
    let digest = blake3::hash(b"out\n").to_hex().to_string();
    assert_eq!(result["stdout_digest"], json!(digest));
    let changes: Vec<(&str, &str)> = result["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["kind"].as_str().unwrap()))
        .collect();
    let expected =
        [("README.md", "modified"), ("new", "added"), ("src/data.bin", "deleted"), ("src/main.rs", "mode")];
    assert_eq!(changes, expected);
    let readme = &result["changes"][0];
    assert_eq!((&readme["size_before"], &readme["size_after"]), (&json!(6), &json!(11)));
    assert_eq!(readme["digest_after"], json!(blake3::hash(b"hello\nmore\n").to_hex().to_string()));
    assert_eq!(result["change_counts"]["total"], json!(4));
    assert_eq!((&result["landing"], &result["timed_out"]), (&json!("advanced"), &json!(false)));
    for phase in ["resolve", "mount", "execute", "capture", "commit"] {
        assert!(result["phases_ms"][phase].is_number(), "{result}");
    }
    let run = format!("run:{}", result["run_id"].as_str().unwrap());
    assert_eq!(env.cat(&run, "README.md"), "hello\nmore\n");
    let shown = env.avfs_result(&["runs", "show", result["run_id"].as_str().unwrap()]);
    assert_eq!(shown["version_after"], result["version_after"]);
    assert_eq!(envelope["enforcement"]["degraded"], json!([]));
}

#[test]
fn the_envelope_can_be_written_to_a_separate_descriptor() {
    let env = TestEnv::with_project();
    let file = env.at("envelope");
    let mut command = env.clean(std::path::Path::new("/bin/sh"));
    command.args(["-c", "exec \"$RUN\" --json-fd 7 -- sh -c 'echo out; ls -l /proc/self/fd/7' 7>\"$FILE\""]);
    command.env("RUN", crate::env::runner()).env("FILE", &file);
    let answer = env.answer(&mut command).expect(2);
    assert_eq!(answer.text(), "out\n");
    let envelope: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    // The output was streamed, so the envelope does not contain it.
    assert_eq!((&envelope["result"]["stdout"], &envelope["result"]["exit_code"]), (&json!(""), &json!(2)));
    for fd in ["99", "-1", "x"] {
        env.run(&["--json-fd", fd, "--", "true"]).expect(125);
    }
    let mut command = env.clean(std::path::Path::new("/bin/sh"));
    command.args(["-c", "exec \"$RUN\" --json-fd 7 -- true 7</dev/null"]).env("RUN", crate::env::runner());
    env.answer(&mut command).expect(125);
}

/// avfs-run makes its own files usable under any umask; the command inherits the umask unchanged.
#[test]
fn the_command_inherits_the_umask_of_its_caller() {
    let env = TestEnv::with_project();
    let mut command = env.clean(std::path::Path::new("/bin/sh"));
    command
        .args(["-c", "umask 777; exec \"$RUN\" --shell 'umask; echo x > x'"])
        .env("RUN", crate::env::runner());
    let answer = env.answer(&mut command).expect(0);
    assert_eq!(answer.text(), "0777\n");
    assert!(answer.stderr.contains("A x (2 B)"), "{answer:?}");
    assert_eq!(env.scratches(), [""; 0]);
}

#[test]
fn a_directory_is_shown_without_a_size() {
    let env = TestEnv::with_project();
    let summary = env.shell(&[], "mkdir d; echo x > d/x").expect(0).stderr;
    assert!(summary.contains("A d/\n") && summary.contains("A d/x (2 B)\n"), "{summary}");
}

#[test]
fn quiet_silences_only_the_summary() {
    let env = TestEnv::with_project();
    let loud = env.shell(&[], "echo x > x; echo err >&2").expect(0);
    assert!(loud.stderr.starts_with("err\n"), "{loud:?}");
    for word in ["1 added", "avfs diff", "avfs apply", "avfs discard"] {
        assert!(loud.stderr.contains(word), "{word}: {loud:?}");
    }
    let quiet = env.shell(&["--quiet"], "echo x > x; echo err >&2").expect(0);
    assert_eq!(quiet.stderr, "err\n");
    // Nothing changed, so nothing is printed.
    assert_eq!(env.shell(&[], "true").expect(0).stderr, "");
}

#[test]
fn a_new_vault_is_announced() {
    let env = TestEnv::new();
    env.put("file", b"x");
    let answer = env.shell(&[], "ls -A").expect(0);
    assert_eq!(answer.text(), "file\n");
    assert!(
        answer.stderr.contains("a new vault: ") && answer.stderr.contains(".avfs/vault.db"),
        "{answer:?}"
    );
    assert_eq!(env.shell(&[], "true").expect(0).stderr, "");
    let other = TestEnv::new();
    assert_eq!(other.shell(&["--quiet"], "true").expect(0).stderr, "");
    assert!(other.vault_file().exists());
}

#[test]
fn concurrent_first_runs_share_the_new_vault() {
    let env = TestEnv::new();
    // No run has found a vault: one is about to finish creating it, the others are about to wait for it.
    let points = ["commit", "lock-wait", "lock-wait", "lock-wait"];
    let start = |(n, point): (usize, &&str)| {
        start_held(&env, &mut env.command(&["--", "touch", &format!("f{n}")]), point)
    };
    let held: Vec<(Running, Pauses)> = points.iter().enumerate().map(start).collect();
    assert!(!env.vault_file().exists());
    held.iter().zip(points).rev().for_each(|((_, pauses), point)| pauses.release(point));
    let answers: Vec<Answer> = held.into_iter().map(|(run, _)| run.answer().expect(0)).collect();
    let announced = answers.iter().filter(|answer| answer.stderr.contains("a new vault: ")).count();
    assert_eq!(announced, 1, "{answers:?}");
    assert_eq!(env.avfs_result(&["runs", "list"])["runs"].as_array().unwrap().len(), 4);
    env.assert_sound();
}

#[test]
fn a_command_is_not_started_if_its_run_cannot_be_stored() {
    if support::is_root() {
        return skip("contract::a_command_is_not_started_if_its_run_cannot_be_stored", "root ignores modes");
    }
    let env = TestEnv::with_project();
    let may = |mode| std::fs::set_permissions(env.vault_file(), Permissions::from_mode(mode)).unwrap();
    may(0o400);
    for options in [&[][..], &["--discard"], &["--readonly"], &["--fork", "f"]] {
        let refused = env.shell(&[options, &["--json"]].concat(), "echo ran >&2").expect(125);
        assert_eq!(refused.envelope()["error"]["code"], "vault.read_only", "{options:?}: {refused:?}");
        assert!(!refused.stderr.contains("ran"), "{options:?}: {refused:?}");
    }
    assert!(env.scratches().is_empty());
    may(0o600);
    env.shell(&[], "true").expect(0);
}

#[test]
fn a_closed_output_pipe_does_not_affect_the_run() {
    let env = TestEnv::with_project();
    // The reader of the output may exit early; the run is kept.
    let mut child =
        env.command(&["--shell", "yes; echo kept > kept"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(env.avfs_result(&["runs", "list"])["runs"].as_array().unwrap().len(), 1);
    let running = Running::start(&mut env.command(&["--", "sh", "-c", "echo last"]));
    assert_eq!(running.answer().expect(0).text(), "last\n");
}

#[test]
fn doctor_reports_why_it_cannot_check() {
    let env = TestEnv::with_project();
    let mut command = env.clean(&crate::env::avfs());
    command.arg("doctor").env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let answer = env.answer(&mut as_unknown_user(&command)).expect(1);
    assert!(answer.stderr.starts_with("error: neither HOME nor XDG_CACHE_HOME"), "{answer:?}");
    assert!(answer.stderr.contains("hint: set HOME"), "{answer:?}");
}

#[test]
fn doctor_finds_everything_a_run_needs() {
    let env = TestEnv::with_project();
    let found = env.avfs_result(&["doctor"]);
    assert_eq!(found["ready"], json!(true), "{found}");
    let checks = found["checks"].as_array().unwrap();
    let overlay: Vec<_> =
        checks.iter().filter(|check| check["name"].as_str().unwrap().starts_with("overlay")).collect();
    assert_eq!(overlay.len(), 2);
    assert!(overlay.iter().any(|check| check["ok"] == json!(true)), "{found}");
    // The checks leave nothing behind.
    let left = std::fs::read_dir(env.at("cache").join("avfs")).unwrap();
    assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with("doctor")));
}

#[test]
fn a_dry_run_prints_its_plan_and_changes_nothing() {
    let env = TestEnv::new();
    env.put("README.md", b"hello\n");
    let planned = env.run(&["--dry-run", "--json", "--", "touch", "made"]).expect(0).envelope();
    assert_eq!((&planned["state"], &planned["result"]), (&json!("planned"), &Value::Null), "{planned}");
    assert_eq!(planned["enforcement"]["base"], json!("live"));
    assert!(!env.vault_file().exists(), "a dry run created a vault");
}

#[test]
fn a_project_cannot_weaken_its_own_sandbox() {
    let env = TestEnv::with_project();
    env.put(".avfs/avfs.toml", b"[run]\nnet = \"host\"\nprofile = \"host\"\nenv = [\"TOKEN\"]\n");
    let envelope = env.json(&[], "true");
    assert_eq!(envelope["enforcement"]["net"], json!("none"));
    assert_eq!(envelope["request"]["profile"], json!("strict"));
    let notes = envelope["result"]["notes"].as_array().unwrap();
    let refused = notes.iter().filter(|note| note["code"] == json!("config.not_trusted")).count();
    assert_eq!(refused, 3, "{envelope}");
}

#[test]
fn a_variable_overrides_files_and_an_option_overrides_both() {
    let env = TestEnv::with_project();
    env.put(".avfs/avfs.toml", b"[run]\ntimeout = \"5s\"\n");
    let timeout = |options: &[&str], variable: Option<&str>| {
        let words = [&["--dry-run", "--json"], options, &["--", "true"]].concat();
        let mut command = env.command(&words);
        command.envs(variable.map(|value| ("AVFS_RUN_TIMEOUT", value)));
        env.answer(&mut command).expect(0).envelope()["request"]["timeout_ms"].clone()
    };
    assert_eq!(timeout(&[], None), json!(5_000));
    assert_eq!(timeout(&[], Some("9s")), json!(9_000));
    assert_eq!(timeout(&["--timeout", "7s"], Some("9s")), json!(7_000));
    let mut command = env.command(&["--json", "--", "true"]);
    let refused = env.answer(command.env("AVFS_RUN_NET", "all")).expect(125).envelope();
    assert_eq!(refused["error"]["code"], json!("config.bad_value"), "{refused}");
}

#[test]
fn changes_to_ignored_files_alone_create_no_version() {
    let env = TestEnv::with_project();
    env.put(".avfsignore", b"*.log\n");
    let envelope = env.json(&[], "echo x > build.log; cat build.log");
    assert_eq!(envelope["result"]["landing"], json!("nothing"), "{envelope}");
    assert_eq!(envelope["result"]["left_out"][0]["path"], json!("build.log"));
}

#[test]
fn usage_errors_have_an_envelope_too() {
    let env = TestEnv::with_project();
    let envelope = env.run(&["--json", "--nonsense", "--", "true"]).expect(125).envelope();
    assert_eq!((&envelope["error"]["code"], &envelope["request"]), (&json!("usage"), &Value::Null));
}

/// The file size limit of the shell applies to the command too, with its signal (SIGXFSZ); avfs-run survives and
/// reports it.
#[test]
fn a_file_size_limit_of_the_shell_is_reported() {
    let env = TestEnv::with_project();
    let limited = |words: &[&str]| {
        let mut command = env.clean("sh".as_ref());
        command.args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\""]).arg(crate::env::runner());
        Running::start(command.args(words)).answer()
    };
    let killed = limited(&["--discard", "--shell", "exec head -c 3000000 /dev/zero > x"]);
    assert_eq!((killed.code, killed.signal), (Some(128 + 25), None), "{killed:?}");
    // Each file is within the limit; the vault with all of them is not.
    let script = "for i in $(seq 30); do head -c 90000 /dev/urandom > x$i; done";
    let failed = limited(&["--shell", script]).expect(123);
    assert!(failed.stderr.contains("hint: finish it with: avfs recover"), "{failed:?}");
    assert!(failed.stderr.contains("caused by: a limit on the size of files (ulimit -f)"), "{failed:?}");
    env.avfs(&["recover"]).expect(0);
}

#[test]
fn the_manual_page_has_examples() {
    let env = TestEnv::new();
    let page = env.run(&["--man"]).expect(0).text();
    assert!(page.contains(".SH NAME") && page.contains(".SH EXAMPLES\n"), "{page}");
}

#[test]
fn an_unknown_command_gets_a_fitting_hint() {
    let env = TestEnv::with_project();
    for (word, hint) in [
        ("ls -la", "--shell 'LINE'"),
        ("ls|wc", "--shell 'LINE'"),
        ("cd", "--shell 'LINE'"),
        ("FOO=1", "--env NAME=VALUE"),
        ("no-such-command", "check the spelling"),
        ("./no-such-file", "check the path"),
        ("2026-01-31T12:00:00Z", "--clock-fixed=TIME"),
    ] {
        let answer = env.run(&["--", word]).expect(127);
        assert!(answer.stderr.contains(hint), "{word}: {answer:?}");
    }
    // A program that exists outside of the sandbox gets a different hint.
    env.put("../outside", b"#!/bin/sh\n");
    let outside = env.at("outside");
    let answer = env.run(&["--", outside.to_str().unwrap()]).expect(127);
    assert!(answer.stderr.contains("--ro PATH"), "{answer:?}");
}

#[test]
fn a_tiny_memory_limit_suggests_a_missing_unit() {
    let env = TestEnv::with_project();
    let refused = env.shell(&["--json", "--memory", "512"], "true").expect(125).envelope();
    assert_eq!(refused["error"]["code"], json!("request.little_memory"));
    assert!(refused["error"]["hint"].as_str().unwrap().contains("did you mean 512MiB?"), "{refused}");
    let refused = env.shell(&["--json", "--memory", "64k"], "true").expect(125).envelope();
    assert_eq!(refused["error"]["hint"], json!("did you mean 64MiB?"), "{refused}");
    let mut set = env.command(&["--shell", "true"]);
    env.answer(set.env("AVFS_RUN_MEMORY", "64")).expect(125);
}

#[test]
fn make_with_a_fixed_clock_gets_a_clock_skew_note() {
    let env = TestEnv::with_project();
    let codes = |options: &[&str], line: &str| {
        let envelope = env.json(options, line);
        let notes = envelope["result"]["notes"].as_array().unwrap().clone();
        notes.iter().filter(|note| note["code"] == json!("clock.skew")).count()
    };
    // Without libfaketime programs see the time of the host.
    assert_eq!(codes(&["--reproducible"], "cd src && : make"), usize::from(has_faketime()));
    assert_eq!(codes(&["--reproducible"], ": remake"), 0);
    assert_eq!(codes(&["--reproducible", "--clock-fixed=2040-01-01T00:00:00Z"], ": make"), 0);
    assert_eq!(codes(&[], ": make"), 0);
}

#[test]
fn a_nested_run_names_the_option_it_needs() {
    let env = TestEnv::with_project();
    let runner = crate::env::runner();
    let dir = runner.parent().unwrap().to_str().unwrap();
    let shown_text = env.run(&["--ro", dir, "--", runner.to_str().unwrap(), "--", "true"]).expect(121);
    let remedy = match support::is_root() {
        true => "another avfs-run of root, which refuses",
        false => "another avfs-run, which needs --allow-userns",
    };
    assert!(shown_text.stderr.contains(remedy), "{shown_text:?}");
    // Root could lift its own limits in a nested sandbox; a user can start one.
    let line = format!("mkdir nested && cd nested && '{}' -- echo from inside", runner.display());
    let nested = env.shell(&["--allow-userns", "--ro", dir], &line);
    if support::is_root() {
        assert!(nested.stderr.contains("start the outer one as an ordinary user"), "{nested:?}");
        nested.expect(121);
    } else {
        assert_eq!(nested.expect(0).text(), "from inside\n");
    }
}

#[test]
fn a_missing_host_path_is_reported_with_its_option() {
    let env = TestEnv::with_project();
    for option in ["--ro", "--rw", "--input"] {
        let refused = env.shell(&["--json", option, "/no/such/path"], "true").expect(125).envelope();
        let message = refused["error"]["message"].as_str().unwrap();
        assert_eq!(message, format!("{option} /no/such/path: the host path does not exist"));
    }
}
