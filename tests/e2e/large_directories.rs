//! The first import of a large directory: its cost is reported before, its progress while it runs, and a signal ends
//! it without data loss.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{Answer, Running, TestEnv, wait_for};
use crate::limits::notes;
use crate::lists::list;
use crate::person::person_command;
use crate::support::pause::Pauses;

/// A project above the import limits, with a directory that tools can recreate.
fn large() -> TestEnv {
    let env = TestEnv::with_project();
    for n in 0..4 {
        env.put(&format!("web/node_modules/m{n}/index.js"), b"x\n");
    }
    std::fs::write(env.at("config/avfs/avfs.toml"), "import.warn_files = 5\n").unwrap();
    env
}

/// The number of entries of the main fork.
fn imported(env: &TestEnv) -> Value {
    env.avfs_result(&["log", "main", "--limit", "1"])["versions"][0]["entries"].clone()
}

#[test]
fn the_first_run_in_a_large_directory_reports_its_cost_and_the_alternatives() {
    let env = large();
    let answer = env.shell(&[], "echo ran").expect(0);
    assert_eq!(answer.text(), "ran\n", "the run does not wait for an answer");
    let warning = &answer.stderr;
    assert!(warning.contains(" has 8 files, "), "{warning}");
    assert!(warning.contains("echo '/web/node_modules/' >> .avfsignore   (4 files, "), "{warning}");
    assert!(warning.contains("--discard") && warning.contains("--base live"), "{warning}");
    assert_eq!(warning.matches("node_modules").count(), 1, "printed once: {warning}");
    // After the import nothing is reported.
    let answer = env.shell(&[], "true").expect(0);
    assert!(!answer.stderr.contains("files"), "{answer:?}");
    // In the envelope it is a note.
    let env = large();
    let envelope = env.json(&["--fork", "f"], "true");
    assert!(notes(&envelope).contains(&"import.large"), "{envelope}");
    // The suggested line helps, and so does a higher limit.
    let env = large();
    env.put(".avfsignore", b"/web/node_modules/\n");
    assert!(!env.shell(&[], "true").expect(0).stderr.contains("files"));
    let env = large();
    let answer = env.answer(env.command(&["--", "true"]).env("AVFS_IMPORT_WARN_FILES", "none")).expect(0);
    assert!(!answer.stderr.contains("files"), "{answer:?}");
}

#[test]
fn a_survey_that_ends_early_leaves_the_report_to_the_import() {
    // The survey reads the clock every 64 entries, so it ends before it has seen more than 100 files.
    let run_with_long_survey = |env: &TestEnv, options: &[&str]| -> Answer {
        for n in 0..300 {
            env.put(&format!("data/f{n}"), b"x\n");
        }
        let pauses = Pauses::new(&env.at(""));
        pauses.hold("survey");
        let mut command = env.command(options);
        let command = command.args(["--", "true"]).env("AVFS_IMPORT_WARN_FILES", "100");
        let mut running = Running::start(pauses.set(command));
        pauses.wait("survey", &mut running.child);
        // Longer than the survey may take by its own clock.
        std::thread::sleep(Duration::from_millis(400));
        pauses.release("survey");
        running.answer().expect(0)
    };
    for options in [&[][..], &["--base", "cached"], &["--fork", "f"]] {
        let printed = run_with_long_survey(&TestEnv::with_project(), options).stderr;
        assert!(printed.contains(" has at least "), "{options:?}: {printed}");
        let options = [&["--json"], options].concat();
        let answer = run_with_long_survey(&TestEnv::with_project(), &options);
        assert!(notes(&answer.envelope()).contains(&"import.large"), "{answer:?}");
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn a_run_that_keeps_nothing_imports_nothing() {
    for options in [&["--readonly"][..], &["--discard"]] {
        let env = large();
        let envelope = env.json(options, "cat README.md");
        assert_eq!(envelope["result"]["stdout"], json!("hello\n"), "{envelope}");
        assert_eq!(envelope["result"]["version_before"], json!(null), "{envelope}");
        assert_eq!(notes(&envelope), [""; 0], "{envelope}");
        assert_eq!(imported(&env), json!(0), "{options:?}");
        // The next run that keeps its changes imports the directory.
        env.ok(&[], "echo x > x");
        assert_ne!(imported(&env), json!(0));
    }
}

#[test]
fn a_run_that_keeps_nothing_reports_an_import_that_it_needs() {
    for options in [
        &["--readonly", "--fork", "f"][..],
        &["--discard", "--fork", "f"],
        &["--discard", "--base", "cached"],
        &["--readonly", "--cache", "write"],
    ] {
        let env = large();
        let warning = env.shell(options, "true").expect(0).stderr;
        assert!(warning.contains(" has 8 files, "), "{options:?}: {warning}");
        assert!(!warning.contains("--discard"), "{options:?}: it is no way around: {warning}");
        assert_ne!(imported(&env), json!(0), "{options:?}");
        let env = large();
        let envelope = env.json(options, "true");
        assert!(notes(&envelope).contains(&"import.large"), "{envelope}");
    }
}

#[test]
fn a_batch_and_a_race_report_the_cost_of_a_first_import() {
    let env = large();
    let items = list(&env, "items.txt", "true\n");
    let answer = env.avfs(&["batch", items.to_str().unwrap()]).expect(0);
    assert!(answer.stderr.contains(" has 8 files, "), "{answer:?}");
    assert!(answer.stderr.contains("echo '/web/node_modules/' >> .avfsignore"), "{answer:?}");
    assert!(!answer.stderr.contains("--base") && !answer.stderr.contains("--discard"), "{answer:?}");
    assert!(!env.avfs(&["batch", items.to_str().unwrap()]).expect(0).stderr.contains(" files, "));
    let env = large();
    let items = list(&env, "items.txt", "true\n");
    let batch = env.avfs_result(&["batch", items.to_str().unwrap()]);
    assert_eq!(batch["notes"][0]["code"], json!("import.large"), "{batch}");
    let env = large();
    env.avfs(&["init"]).expect(0);
    let answer = env.avfs(&["race", "-n", "2", "--", "true"]).expect(0);
    assert!(answer.stderr.contains(" has 8 files, "), "{answer:?}");
}

#[test]
fn a_signal_during_the_import_before_a_command_ends_the_run() {
    for words in
        [&["--json", "--fork", "f"][..], &["--json", "--base", "cached"], &["--json", "--cache", "write"]]
    {
        for signal in [Signal::INT, Signal::TERM] {
            let env = TestEnv::with_project();
            let pauses = Pauses::new(&env.at(""));
            pauses.hold("work");
            let mut command = env.command(words);
            let mut running = Running::start(pauses.set(command.args(["--shell", "echo ran > ran"])));
            pauses.wait("work", &mut running.child);
            running.signal(signal);
            pauses.release("work");
            let answer = running.answer().expect(128 + signal.as_raw());
            let envelope = answer.envelope();
            assert_eq!(envelope["error"]["code"], json!("interrupted"), "{envelope}");
            assert_eq!(env.scratches(), [""; 0]);
            env.assert_sound();
            // The next attempt succeeds.
            let again = env.json(&words[1..], "cat README.md");
            assert_eq!(again["result"]["stdout"], json!("hello\n"), "{again}");
            assert_eq!(env.avfs(&["cat", "main", "README.md"]).expect(0).text(), "hello\n");
        }
    }
}

#[test]
fn a_signal_during_the_survey_before_the_first_import_ends_the_run() {
    let env = TestEnv::with_project();
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("survey");
    let mut command = env.command(&["--json", "--shell", "echo ran > ran"]);
    let mut running = Running::start(pauses.set(&mut command));
    pauses.wait("survey", &mut running.child);
    running.signal(Signal::INT);
    pauses.release("survey");
    let envelope = running.answer().expect(130).envelope();
    assert_eq!(envelope["error"]["code"], json!("interrupted"), "{envelope}");
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}

/// Waits until avfs-run waits for the import, interrupts it, and lets the import see the interrupt.
fn interrupt_the_wait(pauses: &Pauses, running: &mut Running) {
    pauses.wait("waits-for-import", &mut running.child);
    running.signal(Signal::INT);
    pauses.release("waits-for-import");
    pauses.wait("stopped", &mut running.child);
    pauses.release("work");
    pauses.release("stopped");
}

#[test]
fn a_signal_after_the_command_ends_the_import_without_data_loss() {
    for scratch in ["memory", "disk"] {
        let env = TestEnv::with_project();
        let pauses = Pauses::new(&env.at(""));
        pauses.hold("work").hold("waits-for-import").hold("stopped");
        let words = ["--json", "--scratch", scratch, "--shell", "echo made > made; rm README.md"];
        let mut running = Running::start(pauses.set(&mut env.command(&words)));
        interrupt_the_wait(&pauses, &mut running);
        let envelope = running.answer().expect(130).envelope();
        assert_eq!(envelope["error"]["code"], json!("interrupted"), "{envelope}");
        let hint = envelope["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("avfs recover "), "{hint}");
        assert_eq!(imported(&env), json!(0), "the import was not finished");
        let recovered = env.avfs_result(&["recover"]);
        let run = &recovered["runs"][0];
        assert_eq!(run["action"], json!("captured"), "{scratch}: {recovered}");
        let fork = run["fork"].as_str().unwrap();
        assert_eq!(env.cat(fork, "made"), "made\n");
        env.avfs(&["cat", fork, "README.md"]).expect(1);
        env.assert_sound();
    }
}

#[test]
fn a_run_killed_while_it_waits_for_the_import_can_be_recovered() {
    let env = TestEnv::with_project();
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("work").hold("waits-for-import");
    let words = ["--scratch", "disk", "--shell", "echo made > made; rm README.md"];
    let mut running = Running::start(pauses.set(&mut env.command(&words)));
    pauses.wait("waits-for-import", &mut running.child);
    running.signal(Signal::KILL);
    running.answer();
    let recovered = env.avfs_result(&["recover"]);
    let run = &recovered["runs"][0];
    assert_eq!(run["action"], json!("captured"), "{recovered}");
    let fork = run["fork"].as_str().unwrap();
    assert_eq!(env.cat(fork, "made"), "made\n");
    env.avfs(&["cat", fork, "README.md"]).expect(1);
    env.assert_sound();
}

#[test]
fn without_a_terminal_progress_is_printed_in_occasional_lines() {
    let env = TestEnv::with_project();
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("work");
    let log = env.at("log");
    let mut command = env.command(&["--shell", "echo x > x"]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut child = pauses.set(&mut command).spawn().unwrap();
    let text = || std::fs::read_to_string(&log).unwrap();
    wait_for("a line about the import", || {
        assert!(child.try_wait().unwrap().is_none(), "{}", text());
        text().lines().any(|line| line.starts_with("avfs-run: importing: ") && line.ends_with(" so far"))
    });
    pauses.release("work");
    assert!(child.wait().unwrap().success(), "{}", text());
    assert!(text().contains("1 added in run "), "{}", text());
}

#[test]
fn a_terminal_shows_the_progress_of_the_import_and_ctrl_c_ends_it() {
    let env = TestEnv::with_project();
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("work").hold("stopped");
    let script = r"
import time
pauses = os.environ['AVFS_TEST_PAUSE']
wait_for(b'importing')
send(b'\x03')
while not os.path.exists(pauses + '/held-stopped'): time.sleep(0.01)
for name in ['work', 'stopped']: os.remove(pauses + '/hold-' + name)
";
    let mut command = person_command(&env, script, &["--shell", "echo made > made"]);
    let answer: Answer = Running::start(pauses.set(&mut command)).answer().expect(0);
    let text = answer.text().replace('\r', "");
    assert!(text.contains("(^C to stop)"), "{text}");
    assert!(text.contains("interrupted") && text.contains("avfs recover "), "{text}");
    assert!(text.ends_with("modes as before, code -2\n"), "{text}");
    env.avfs(&["recover"]).expect(0);
}
