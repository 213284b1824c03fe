//! Streams and signals: pipes that end early, colours, interruption.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::env::{Answer, TestEnv, binary};
use crate::support;

#[test]
fn a_pipe_that_ends_early_is_no_error() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 3000);
    env.put("large.txt", &b"line\n".repeat(400_000));
    env.ok(&["init", "--import"]);
    let calls: &[&[&str]] =
        &[&["cat", "main", "large.txt"], &["ls", "main", "-R"], &["ls", "main", "-R", "--json"], &["schema"]];
    for call in calls {
        let mut command = env.avfs(call);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 16];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{call:?}");
        assert_eq!(output.stderr, b"", "{call:?}");
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    let env = TestEnv::new();
    env.put("large.bin", &support::noise(3, 2 << 20));
    env.ok(&["init"]);
    let before = env.state();
    let limited = |words: &[&str]| {
        let mut command = env.clean(Path::new("sh"));
        command.args(["-c", "ulimit -f 256; exec \"$0\" \"$@\""]).arg(binary()).args(words);
        Answer::from(command.output().unwrap())
    };
    for words in [["import"].as_slice(), &["import", "--json"]] {
        let answer = limited(words);
        assert_eq!(answer.code, 1, "{answer:?}");
        let told = [answer.stdout.as_str(), answer.stderr.as_str()].concat();
        assert!(
            told.contains("limit on the size of files") && told.contains("ulimit -f unlimited"),
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
    // So little that SQLite calls the disk full.
    let mut command = env.clean(Path::new("sh"));
    command.args(["-c", "ulimit -f 1; exec \"$0\" write big --text something"]).arg(binary());
    let answer = Answer::from(command.output().unwrap());
    assert!(answer.code == 1 && answer.stderr.contains("limit on the size of files"), "{answer:?}");
    let answer = limited(&["export", "main", "../out"]);
    assert!(answer.code == 1 && answer.stderr.contains("limit on the size of files"), "{answer:?}");
    assert!(!env.at("out").exists());
}

#[test]
fn colours_are_only_for_those_who_want_them() {
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
    assert!(made.stderr.contains("made the vault"), "{made:?}");
    let logged = env.avfs(&["log"]).env("AVFS_LOG", "debug").output().unwrap();
    assert!(String::from_utf8_lossy(&logged.stderr).contains("opening the vault"));
    assert_eq!(env.run(&["log"]).stderr, "");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
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
        let answer = Answer::from(env.avfs(words).stdout(full).output().unwrap());
        assert_eq!(answer.code, 1, "{words:?}");
        assert!(answer.stderr.contains("cannot write the answer"), "{words:?}: {answer:?}");
    }
}

#[test]
fn a_change_that_cannot_be_answered_is_made_and_told() {
    let env = TestEnv::with_project();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let answer = Answer::from(env.avfs(&["write", "w1", "--text", "x"]).stdout(full).output().unwrap());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("the command was carried out"), "{answer:?}");
    assert_eq!(env.ok(&["cat", "main", "w1"]), "x");
}

#[test]
fn an_error_that_cannot_be_answered_in_json_is_told_all_the_same() {
    let env = TestEnv::with_project();
    for (words, exit, told) in
        [(["--json", "ls", "nope"], 1, "\"nope\""), (["--json", "ls", "a b"], 2, "\"a b\"")]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let answer = Answer::from(env.avfs(&words).stdout(full).output().unwrap());
        assert_eq!(answer.code, exit, "{words:?}");
        assert!(
            answer.stderr.starts_with("error: ") && answer.stderr.contains(told),
            "{words:?}: {answer:?}"
        );
    }
}

/// Interrupts a command after longer and longer waits until it is caught at work.
fn interrupt(env: &TestEnv, words: &[&str], signal: Signal, clean_up: impl Fn()) -> Answer {
    for wait_ms in (5..400).step_by(5) {
        let mut command = env.avfs(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        if child.try_wait().unwrap().is_none() {
            rustix::process::kill_process(pid, signal).unwrap();
        }
        let answer = Answer::from(child.wait_with_output().unwrap());
        // Killed before it could listen, or done already: the next wait is longer.
        if answer.code == 130 {
            return answer;
        }
        clean_up();
    }
    panic!("never caught at work");
}

#[test]
fn an_interrupted_export_leaves_nothing_behind() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 4000);
    env.ok(&["init", "--import"]);
    let out = env.at("out");
    std::fs::create_dir(&out).unwrap();
    let copy = out.join("copy");
    let remove = || {
        let _ = std::fs::remove_dir_all(&copy);
    };
    for signal in [Signal::INT, Signal::HUP] {
        let words = ["export", "main", copy.to_str().unwrap(), "--json"];
        let answer = interrupt(&env, &words, signal, remove);
        assert!(answer.stdout.contains("\"code\":\"interrupted\""), "{answer:?}");
        let left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_interrupted_import_adds_no_version() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 4000);
    env.ok(&["init"]);
    let fork = std::cell::Cell::new(0);
    let again = || {
        // An import that came through is undone by making everything new.
        fork.set(fork.get() + 1);
        std::fs::remove_dir_all(env.at("home")).unwrap();
        std::fs::create_dir(env.at("home")).unwrap();
        env.ok(&["vault", "delete", "--yes"]);
        env.ok(&["init"]);
    };
    let answer = interrupt(&env, &["import", "--json"], Signal::TERM, again);
    assert!(answer.stdout.contains("\"code\":\"interrupted\""), "{answer:?}");
    assert_eq!(env.result(&["log"])["versions"].as_array().unwrap().len(), 1);
    env.assert_sound();
}

/// Who was started to outlive the terminal, as by nohup, does.
#[test]
fn a_hangup_that_is_ignored_interrupts_nothing() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 2000);
    env.ok(&["init", "--import"]);
    let mut command = env.clean(Path::new("sh"));
    command.args(["-c", "trap '' HUP; exec \"$0\" export main ../copy"]).arg(binary());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    // Not before the shell has become the command: until then it is the shell that is hung up.
    while std::fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|exe| exe != binary()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut sent = 0;
    while child.try_wait().unwrap().is_none() {
        sent += i32::from(rustix::process::kill_process(pid, Signal::HUP).is_ok());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success() && sent > 0, "{sent} sent");
    assert!(env.at("copy").is_dir());
}
