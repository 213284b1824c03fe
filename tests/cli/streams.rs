//! Streams and signals: pipes that close early, colours, interruption.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::env::{Answer, TestEnv, binary};
use crate::support;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;

#[test]
fn pipe_closed_early_is_not_an_error() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 100);
    // More than a pipe holds.
    env.put("large.txt", &b"line\n".repeat(400_000));
    env.ok(&["init", "--import"]);
    let calls: &[&[&str]] =
        &[&["cat", "main", "large.txt"], &["ls", "main", "-R"], &["ls", "main", "-R", "--json"], &["schema"]];
    for call in calls {
        // After some bytes, and before the first one.
        for bytes in [16, 0] {
            let (reader, writer) = std::io::pipe().unwrap();
            let mut reader = (bytes > 0).then_some(reader);
            let child = env.avfs(call).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
            if let Some(reader) = &mut reader {
                reader.read_exact(&mut vec![0; bytes]).unwrap();
            }
            drop(reader);
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{call:?}");
        }
    }
}

#[test]
fn file_size_limit_is_reported() {
    let env = TestEnv::new();
    env.put("large.bin", &support::noise(3, 2 << 20));
    env.ok(&["init"]);
    let before = env.state();
    let limited = |words: &[&str]| {
        let mut command = env.clean(Path::new("sh"));
        command.args(["-c", "ulimit -f 256; exec \"$0\" \"$@\""]).arg(binary()).args(words);
        Answer::of(command)
    };
    for words in [["import"].as_slice(), &["import", "--json"]] {
        let answer = limited(words);
        assert_eq!(answer.code, 1, "{answer:?}");
        let output = [answer.stdout.as_str(), answer.stderr.as_str()].concat();
        assert!(
            output.contains("the file size limit was reached") && output.contains("ulimit -f unlimited"),
            "{answer:?}"
        );
        assert_eq!(
            answer.stdout.contains("\"host.file_size_limit\""),
            words.contains(&"--json"),
            "{answer:?}"
        );
        assert_eq!(env.state(), before);
    }
    env.ok(&["import"]);
    // So small that SQLite reports a full disk.
    let mut command = env.clean(Path::new("sh"));
    command.args(["-c", "ulimit -f 1; exec \"$0\" write big --text something"]).arg(binary());
    let answer = Answer::of(command);
    assert!(answer.code == 1 && answer.stderr.contains("the file size limit was reached"), "{answer:?}");
    let answer = limited(&["export", "main", "../out"]);
    assert!(answer.code == 1 && answer.stderr.contains("the file size limit was reached"), "{answer:?}");
    assert!(!env.at("out").exists());
}

#[test]
fn colours_follow_clicolor_force_and_no_color() {
    let env = TestEnv::with_project();
    let coloured = |variables: &[(&str, &str)]| {
        let output = env.avfs(&["log"]).envs(variables.iter().copied()).output().unwrap();
        output.stdout.contains(&0x1b)
    };
    assert!(!coloured(&[]), "a pipe has no colours");
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn data_goes_to_stdout_and_the_rest_to_stderr() {
    let env = TestEnv::new();
    env.put("a.txt", b"a\n");
    let made = env.run(&["init"]);
    assert_eq!((made.code, made.stdout.as_str()), (0, ""));
    assert!(made.stderr.contains("created the vault"), "{made:?}");
    let logged = env.avfs(&["log"]).env("AVFS_LOG", "debug").output().unwrap();
    assert!(String::from_utf8_lossy(&logged.stderr).contains("opening the vault"));
    assert_eq!(env.run(&["log"]).stderr, "");
}

#[test]
fn failure_to_write_the_output_is_an_error() {
    let env = TestEnv::with_project();
    for words in [
        ["log"].as_slice(),
        &["--help"],
        &["log", "--help"],
        &["--version"],
        &["man"],
        &["log", "--json"],
        &["grep", "main", "no such text", "--json"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let answer = Answer::of(env.avfs(words).stdout(full));
        assert_eq!(answer.code, 1, "{words:?}");
        assert!(answer.stderr.contains("cannot write the output"), "{words:?}: {answer:?}");
    }
}

#[test]
fn failure_to_write_the_output_does_not_undo_the_change() {
    let env = TestEnv::with_project();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let answer = Answer::of(env.avfs(&["write", "w1", "--text", "x"]).stdout(full));
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("the command completed"), "{answer:?}");
    assert_eq!(env.ok(&["cat", "main", "w1"]), "x");
}

#[test]
fn error_goes_to_stderr_if_the_json_cannot_be_written() {
    let env = TestEnv::with_project();
    for (words, exit, quoted) in
        [(["--json", "ls", "nope"], 1, "\"nope\""), (["--json", "ls", "a b"], 2, "\"a b\"")]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let answer = Answer::of(env.avfs(&words).stdout(full));
        assert_eq!(answer.code, exit, "{words:?}");
        assert!(
            answer.stderr.starts_with("error: ") && answer.stderr.contains(quoted),
            "{words:?}: {answer:?}"
        );
    }
}

/// Sends a signal to a command that is at a pause point.
fn interrupt(env: &TestEnv, words: &[&str], point: &str, signal: Signal) -> Answer {
    let pauses = Pauses::new(&env.at(""));
    pauses.hold(point);
    let mut command = env.avfs(words);
    let mut child = pauses.set(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    pauses.wait(point, &mut child);
    kill_process(Pid::from_child(&child), signal).unwrap();
    // The command has noted the signal before it continues.
    wait_for("stopped", || {
        pauses.reached().iter().any(|point| point == "stopped") || child.try_wait().unwrap().is_some()
    });
    pauses.release(point);
    Answer::from(child.wait_with_output().unwrap())
}

/// The first file, and one in the middle.
const AT_WORK: [&str; 2] = ["work#1", "work#50"];

#[test]
fn interrupted_export_leaves_nothing_behind() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 100);
    env.ok(&["init", "--import"]);
    let out = env.at("out");
    std::fs::create_dir(&out).unwrap();
    for (point, signal) in AT_WORK.into_iter().zip([Signal::INT, Signal::HUP]) {
        let answer = interrupt(&env, &["export", "main", "../out/copy", "--json"], point, signal);
        assert_eq!(answer.code, 130, "{answer:?}");
        assert!(answer.stdout.contains("\"code\":\"interrupted\""), "{answer:?}");
        let left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn interrupted_import_adds_no_version() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 100);
    env.ok(&["init"]);
    for point in AT_WORK {
        let answer = interrupt(&env, &["import", "--json"], point, Signal::TERM);
        assert_eq!(answer.code, 130, "{answer:?}");
        assert!(answer.stdout.contains("\"code\":\"interrupted\""), "{answer:?}");
        assert_eq!(env.result(&["log"])["versions"].as_array().unwrap().len(), 1);
    }
    env.assert_sound();
}

#[test]
fn interrupted_apply_and_unapply_write_nothing() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 100);
    env.ok(&["run", "--", "sh", "-c", "find . -type f -delete"]);
    let stopped = |verb| {
        let files = || support::snapshot::take_without(&env.project(), &[".avfs"]);
        let before = files();
        for point in ["judge#1", "judge#50"] {
            let answer = interrupt(&env, &[verb, "--json"], point, Signal::INT);
            assert_eq!(answer.code, 130, "{verb} at {point}: {answer:?}");
            assert!(answer.stdout.contains("\"code\":\"interrupted\""), "{answer:?}");
            assert_eq!(support::snapshot::differences(&before, &files()), [""; 0], "{verb} at {point}");
        }
        env.ok(&[verb]);
    };
    stopped("apply");
    stopped("unapply");
    env.assert_sound();
}

/// A command started with nohup outlives its terminal.
#[test]
fn ignored_sighup_does_not_interrupt() {
    let env = TestEnv::with_project();
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("work");
    let mut command = env.clean(Path::new("sh"));
    command.args(["-c", "trap '' HUP; exec \"$0\" export main ../copy"]).arg(binary());
    let mut child = pauses.set(&mut command).stdout(Stdio::null()).spawn().unwrap();
    pauses.wait("work", &mut child);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    // The lowest bit is signal 1, SIGHUP.
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{ignored}");
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    pauses.release("work");
    assert!(child.wait().unwrap().success());
    assert!(env.at("copy").is_dir());
}
