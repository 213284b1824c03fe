//! Concurrent changes to the lower directory of a run, and which of them are noted as `host.changed`.

use serde_json::Value;

use crate::env::{Running, TestEnv, wait_for};
use crate::limits::notes;
use crate::shared::Shared;
use crate::support::pause::Pauses;
use crate::support::settle;

/// Waits for the test before the rest of the line is executed.
const MEET: &str = ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done";

/// The envelope of a run on the directory itself, which `change` modifies after the import.
fn changed_after_the_scan(line: &str, change: impl FnOnce(&TestEnv)) -> Value {
    let env = TestEnv::with_project();
    settle();
    let shared = Shared::new(&env);
    let pauses = Pauses::new(&env.at(""));
    let mut command = shared.command(&env, &["--json", "--base", "live"], &format!("{MEET}; {line}"));
    let running = Running::start(pauses.set(&mut command));
    let running = shared.wait_for_word(running, "ready");
    wait_for("the import is committed", || pauses.reached().iter().any(|point| point == "committed"));
    settle();
    change(&env);
    shared.put("go");
    running.answer().expect(0).envelope()
}

fn is_noted(envelope: &Value) -> bool {
    notes(envelope).contains(&"host.changed")
}

#[test]
fn changes_by_others_to_paths_the_run_touched_are_noted() {
    for (line, path) in [
        ("echo mine > README.md", "README.md"),
        ("chmod 600 README.md", "README.md"),
        ("rm README.md", "README.md"),
        ("rm -r src", "src/main.rs"),
        ("mv src elsewhere", "src/main.rs"),
        ("rm -r src; echo file > src", "src/main.rs"),
    ] {
        let envelope = changed_after_the_scan(line, |env| {
            env.put(path, b"changed meanwhile\n");
        });
        assert!(is_noted(&envelope), "{line}: {envelope}");
    }
}

#[test]
fn names_created_by_others_in_a_directory_the_run_touched_are_noted() {
    for (line, path) in
        [("echo mine > src/new", "src/theirs"), ("echo mine > same", "same"), ("mkdir -p a/b", "theirs")]
    {
        let envelope = changed_after_the_scan(line, |env| {
            env.put(path, b"theirs\n");
        });
        assert!(is_noted(&envelope), "{line}: {envelope}");
    }
}

#[test]
fn changes_by_others_elsewhere_after_the_scan_are_not_noted() {
    let envelope = changed_after_the_scan("echo mine > src/new", |env| {
        env.put("README.md", b"changed meanwhile\n");
    });
    assert!(!is_noted(&envelope), "{envelope}");
    // Control: no concurrent changes.
    let envelope = changed_after_the_scan("echo mine > src/new; rm README.md", |_| {});
    assert!(!is_noted(&envelope), "{envelope}");
}

#[test]
fn changes_found_by_the_concurrent_scan_are_noted() {
    for change in ["content", "mode", "name", "removal"] {
        let env = TestEnv::with_project();
        settle();
        let shared = Shared::new(&env);
        let pauses = Pauses::new(&env.at(""));
        pauses.hold("scan-dir");
        let mut command =
            shared.command(&env, &["--json", "--base", "live"], &format!("{MEET}; echo x > src/x"));
        let running = Running::start(pauses.set(&mut command));
        let mut running = shared.wait_for_word(running, "ready");
        pauses.wait("scan-dir", &mut running.child);
        settle();
        let file = env.project().join("README.md");
        match change {
            "content" => env.put("README.md", b"changed meanwhile\n"),
            "mode" => {
                std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap()
            }
            "name" => env.put("theirs", b"theirs\n"),
            _ => std::fs::remove_file(&file).unwrap(),
        };
        pauses.release("scan-dir");
        shared.put("go");
        let envelope = running.answer().expect(0).envelope();
        assert!(is_noted(&envelope), "{change}: {envelope}");
    }
}

#[test]
fn a_run_with_changes_scans_the_directory_once() {
    let env = TestEnv::with_project();
    crate::support::many_files(&env.project().join("many"), 300);
    env.avfs(&["import"]).expect(0);
    settle();
    let pauses = Pauses::new(&env.at(""));
    let line = ["--base", "live", "--shell", "echo x > many/x; rm README.md"];
    Running::start(pauses.set(&mut env.command(&line))).answer().expect(0);
    let looks = pauses.reached().iter().filter(|point| *point == "scan-dir").count();
    let dirs =
        walkdir::WalkDir::new(env.project()).into_iter().filter_entry(|entry| entry.file_name() != ".avfs");
    let dirs = dirs.filter(|entry| entry.as_ref().unwrap().file_type().is_dir()).count();
    // Each directory of the host, plus two directories of the upper: its root and `many`.
    assert_eq!(looks, dirs + 2);
}

#[test]
fn a_change_just_before_the_run_is_not_noted() {
    let env = TestEnv::with_project();
    // The kernel gives precise times to files whose time was read before.
    for round in 0..10 {
        std::fs::metadata(env.project().join("README.md")).unwrap();
        env.put("README.md", format!("{round}\n").as_bytes());
        let envelope = env.json(&[], "echo mine > README.md");
        assert!(!is_noted(&envelope), "round {round}: {envelope}");
    }
}
