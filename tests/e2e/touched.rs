//! Runs with `--base touched`: no scan, and a vault that contains exactly the paths that the run changed.

use serde_json::{Value, json};

use crate::env::{Running, TestEnv};
use crate::limits::notes;
use crate::oracle::comparable;
use crate::shared::Shared;
use crate::support::pause::Pauses;
use crate::support::{many_files, settle, snapshot};

/// Waits for the test before the rest of the line is executed.
const MEET: &str = ": > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done";

/// Changes, removals, renames and changes of the file type.
const MIXED: &str = "echo more >> README.md; rm -r many/d001; echo new > many/d000/new; mkdir -p a/b; echo 1 > a/b/c; \
                     mv src/main.rs src/moved.rs; rm link; mkdir link; echo in > link/in; rm -r other; echo file > other; \
                     chmod 600 src/data.bin; mv many/d002 renamed; touch ignored.log";

fn project() -> TestEnv {
    let env = TestEnv::with_project();
    many_files(&env.project().join("many"), 300);
    env.put("other/deep/file", b"deep\n");
    env.put(".avfsignore", b"*.log\n");
    env.put("old.log", b"noise\n");
    settle();
    env
}

fn run_id(envelope: &Value) -> &str {
    envelope["result"]["run_id"].as_str().unwrap_or_else(|| panic!("{envelope}"))
}

fn code(envelope: &Value) -> &str {
    envelope["error"]["code"].as_str().unwrap_or_else(|| panic!("{envelope}"))
}

#[test]
fn diff_apply_and_unapply_are_the_same_as_for_a_full_run() {
    for scratch in ["memory", "disk"] {
        let env = project();
        let run = |base| env.json(&["--base", base, "--scratch", scratch], MIXED);
        let touched = run("touched");
        // Nothing was imported: the main fork is still empty.
        assert_eq!(env.avfs_result(&["log"])["versions"].as_array().unwrap().len(), 1);
        let full = run("live");
        assert_eq!(touched["enforcement"]["base"], json!("touched"), "{touched}");
        for part in ["left_out", "change_counts", "changes", "runs_on_host"] {
            assert_eq!(touched["result"][part], full["result"][part], "{part}");
        }
        let diff = |of: &Value| {
            env.avfs_result(&["diff", &format!("run:{}", run_id(of)), "--patch"])["patch"].take()
        };
        assert_eq!(diff(&touched), diff(&full));
        let before = comparable(&env.project(), &[]);
        let [of_touched, of_full] = [&touched, &full].map(|of| {
            env.avfs(&["apply", run_id(of)]).expect(0);
            let applied = comparable(&env.project(), &[]);
            env.avfs(&["unapply", run_id(of)]).expect(0);
            assert_eq!(snapshot::differences(&before, &comparable(&env.project(), &[])).len(), 0);
            applied
        });
        assert_eq!(snapshot::differences(&of_touched, &of_full), [""; 0]);
        env.assert_sound();
        env.avfs(&["gc"]).expect(0);
        env.assert_sound();
        assert_eq!(env.scratches(), [""; 0]);
    }
}

#[test]
fn the_directory_is_not_scanned() {
    let env = project();
    let pauses = Pauses::new(&env.at(""));
    let words = ["--base", "touched", "--shell", "echo x > many/d000/x"];
    Running::start(pauses.set(&mut env.command(&words))).answer().expect(0);
    let looks = pauses.reached().iter().filter(|point| *point == "scan-dir").count();
    // The root, many and d000, each in the directory and in the upper.
    assert_eq!(looks, 6, "{:?}", pauses.reached());
    assert!(!env.at("cache/avfs").read_dir().unwrap().any(|entry| entry.unwrap().file_name() == "stat"));
}

#[test]
fn a_run_without_changes_leaves_only_its_record() {
    let env = project();
    for line in ["true", "cat README.md", "touch x; rm x", "echo x > only.log"] {
        let envelope = env.json(&["--base", "touched"], line);
        let result = &envelope["result"];
        assert_eq!((&result["fork"], &result["version_after"]), (&Value::Null, &Value::Null), "{envelope}");
        assert_eq!(result["version_before"], Value::Null, "{envelope}");
    }
    for verb in ["diff", "apply"] {
        let refused = env.avfs(&["--json", verb, "last"]).envelope();
        assert_eq!(code(&refused), "run.no_version", "{verb}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.ends_with("has no version: it changed nothing, or its changes were dropped"),
            "{message}"
        );
    }
    let status = env.avfs(&["status"]).expect(0).text();
    assert!(status.contains("the vault has no version of the directory yet"), "{status}");
    env.avfs(&["gc"]).expect(0);
    env.assert_sound();
}

#[test]
fn the_kind_of_base_is_stated() {
    let env = project();
    let touched = env.json(&["--base", "touched"], "echo x > x");
    let full = env.json(&[], "echo x > x");
    let nothing = env.json(&["--discard"], "echo x > x");
    let kind = |of: &Value| env.avfs_result(&["runs", "show", run_id(of)])["base_kind"].take();
    assert_eq!([kind(&touched), kind(&full), kind(&nothing)], [json!("touched"), json!("full"), Value::Null]);
    assert!(
        env.avfs(&["runs", "show", run_id(&touched)]).expect(0).text().contains("\nbase       touched\n")
    );
    let version = touched["result"]["version_after"].as_str().unwrap();
    assert_eq!(env.avfs_result(&["show", version])["version"]["partial"], json!(true));
    let version = full["result"]["version_after"].as_str().unwrap();
    assert_eq!(env.avfs_result(&["show", version])["version"].get("partial"), None);
}

#[test]
fn operations_that_need_the_whole_directory_are_refused() {
    let env = project();
    let envelope = env.json(&["--base", "touched"], "echo x > src/x");
    let id = run_id(&envelope);
    let run = format!("run:{id}");
    let fork = envelope["result"]["fork"].as_str().unwrap();
    let out = env.at("out").into_os_string().into_string().unwrap();
    for words in [
        &["export", &run, &out][..],
        &["ls", &run],
        &["cat", &run, "src/x"],
        &["grep", &run, "x"],
        &["fork", "create", "f", "--from", &run],
        &["restore", &run],
        &["restore", "main", "--fork", fork],
        &["diff", "main", &run],
        &["diff", &run, "main"],
        &["sync", fork],
        &["checkpoint", "save", "--fork", fork],
        &["write", "x", "--text", "x", "--fork", fork],
        &["rm", "src/x", "--fork", fork],
        &["replay", &run],
        &["bisect", fork, "--", "true"],
    ] {
        let mut all = vec!["--json"];
        all.extend(words);
        let answer = env.avfs(&all);
        if answer.code == Some(2) {
            panic!("{words:?}: {answer:?}");
        }
        let envelope = answer.envelope();
        assert_eq!(code(&envelope), "version.partial", "{words:?}: {envelope}");
        assert!(envelope["error"]["hint"].as_str().unwrap().contains("import"), "{envelope}");
    }
    for options in [&["--from", &run][..], &["--fork", fork]] {
        assert_eq!(code(&env.json(options, "true")), "version.partial", "{options:?}");
    }
    // The refused operations have changed nothing.
    env.avfs(&["apply", id]).expect(0);
    assert_eq!(std::fs::read_to_string(env.project().join("src/x")).unwrap(), "x\n");
    env.assert_sound();
}

#[test]
fn options_that_need_the_whole_directory_are_refused() {
    let env = project();
    env.avfs(&["import"]).expect(0);
    for options in [&["--fork", "f"][..], &["--from", "main"], &["--cache", "write"], &["--backend", "copy"]]
    {
        let mut words = vec!["--base", "touched"];
        words.extend(options);
        let envelope = env.json(&words, "true");
        assert_eq!(code(&envelope), "request.touched_base", "{options:?}: {envelope}");
        assert!(envelope["error"]["message"].as_str().unwrap().contains(options[0]), "{envelope}");
    }
    let mut command = env.command(&["--json", "--base", "touched", "--shell", "true"]);
    let envelope = Running::start(command.env("AVFS_FORK", "f")).answer().envelope();
    assert!(envelope["error"]["message"].as_str().unwrap().contains("AVFS_FORK"), "{envelope}");
    // The setting in the configuration applies where it is possible.
    std::fs::create_dir_all(env.at("config/avfs")).unwrap();
    std::fs::write(env.at("config/avfs/avfs.toml"), "[run]\nbase = 'touched'\n").unwrap();
    let base = |options: &[&str]| env.json(options, "true")["enforcement"]["base"].take();
    assert_eq!(base(&[]), json!("touched"));
    assert_eq!(base(&["--base", "live"]), json!("live"));
    assert_ne!(base(&["--fork", "f"]), json!("touched"));
    assert_ne!(base(&["--from", "main"]), json!("touched"));
}

#[test]
fn undo_and_discard_take_the_changes_back() {
    let env = project();
    let envelope = env.json(&["--base", "touched"], "echo x > src/x; rm README.md");
    let fork = envelope["result"]["fork"].as_str().unwrap();
    let run = format!("run:{}", run_id(&envelope));
    assert_eq!(env.avfs_result(&["diff", &run])["changes"].as_array().unwrap().len(), 2);
    env.avfs(&["undo", fork]).expect(0);
    assert_eq!(env.avfs_result(&["diff", fork])["changes"], json!([]));
    env.avfs(&["redo", fork]).expect(0);
    assert_eq!(env.avfs_result(&["diff", fork])["changes"].as_array().unwrap().len(), 2);
    env.avfs(&["discard", fork]).expect(0);
    env.avfs(&["gc"]).expect(0);
    env.assert_sound();
}

#[test]
fn concurrent_changes_to_a_touched_path_are_noted_and_not_overwritten() {
    for (line, theirs, is_noted) in [
        ("echo mine > README.md", "README.md", true),
        ("rm -r other", "other/deep/file", true),
        ("echo mine > same", "same", true),
        ("echo mine > src/x", "README.md", false),
    ] {
        let env = project();
        let shared = Shared::new(&env);
        let options = ["--json", "--base", "touched"];
        let running = shared.start(&env, &options, &format!("{MEET}; {line}"));
        let running = shared.wait_for_word(running, "ready");
        settle();
        env.put(theirs, b"theirs\n");
        shared.put("go");
        let envelope = running.answer().expect(0).envelope();
        assert_eq!(notes(&envelope).contains(&"host.changed"), is_noted, "{line}: {envelope}");
        let applied = env.avfs(&["--json", "apply", run_id(&envelope)]).envelope();
        match is_noted {
            true => assert_eq!(code(&applied), "apply.conflict", "{line}: {applied}"),
            false => assert_eq!(applied["error"], Value::Null, "{line}: {applied}"),
        }
        assert_eq!(std::fs::read(env.project().join(theirs)).unwrap(), b"theirs\n");
    }
}

#[test]
fn concurrent_changes_in_the_root_are_not_changes_of_the_run() {
    let env = project();
    let shared = Shared::new(&env);
    let running = shared.start(&env, &["--json", "--base", "touched"], MEET);
    let running = shared.wait_for_word(running, "ready");
    settle();
    env.put("theirs", b"theirs\n");
    shared.put("go");
    let envelope = running.answer().expect(0).envelope();
    assert_eq!(envelope["result"]["fork"], Value::Null, "{envelope}");
}

#[test]
fn a_write_to_a_hard_link_changes_all_its_names() {
    for scratch in ["memory", "disk"] {
        let env = project();
        std::fs::create_dir(env.project().join("far")).unwrap();
        for name in ["src/linked", "far/linked"] {
            std::fs::hard_link(env.project().join("README.md"), env.project().join(name)).unwrap();
        }
        settle();
        let run = |base| {
            env.json(&["--base", base, "--scratch", scratch], "echo more >> src/linked; rm far/linked")
        };
        let (touched, full) = (run("touched"), run("live"));
        assert!(notes(&touched).contains(&"links.joined"), "{touched}");
        assert_eq!(touched["result"]["changes"], full["result"]["changes"]);
        env.avfs(&["apply", run_id(&touched)]).expect(0);
        assert_eq!(std::fs::read_to_string(env.project().join("README.md")).unwrap(), "hello\nmore\n");
        env.avfs(&["unapply", run_id(&touched)]).expect(0);
        let inode = |name| std::os::unix::fs::MetadataExt::ino(&env.project().join(name).metadata().unwrap());
        assert_eq!([inode("src/linked"), inode("far/linked")], [inode("README.md"); 2]);
        env.assert_sound();
    }
}

#[test]
fn symlinks_at_paths_that_the_host_executes_are_followed_to_touched_files() {
    let env = project();
    env.put("scripts/hook", b"#!/bin/sh\n");
    env.put("rules/style.md", b"be brief\n");
    std::fs::create_dir_all(env.project().join(".git/hooks")).unwrap();
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, env.project().join(at)).unwrap();
    link("../../scripts/hook", ".git/hooks/pre-commit");
    link("rules", ".claude");
    settle();
    let line = "echo more >> scripts/hook; echo more >> rules/style.md";
    let run = |base| env.json(&["--base", base], line)["result"]["runs_on_host"].take();
    let (touched, full) = (run("touched"), run("live"));
    assert_eq!(touched.as_array().unwrap().len(), 2, "{touched}");
    assert_eq!(touched, full);
}

#[test]
fn files_without_permissions_are_captured() {
    for scratch in ["memory", "disk"] {
        let env = project();
        let line = "mkdir src/closed; echo 1 > src/closed/in; rm many/d000/f00001; chmod 000 README.md src/closed many/d000";
        let run = |base| env.json(&["--base", base, "--scratch", scratch], line);
        let (touched, full) = (run("touched"), run("live"));
        // The size and digest of a directory cover only the entries that the version contains.
        let outline = |of: &Value| -> Vec<Value> {
            let changes = of["result"]["changes"].as_array().unwrap().iter();
            changes
                .map(|one| json!([one["path"], one["kind"], one["mode_before"], one["mode_after"]]))
                .collect()
        };
        assert_eq!(outline(&touched), outline(&full));
        assert_eq!(touched["result"]["left_out"], json!([]), "{touched}");
    }
}

#[test]
fn changes_survive_if_the_vault_is_moved_away() {
    for scratch in ["memory", "disk"] {
        let env = project();
        let shared = Shared::new(&env);
        let line = format!("{MEET}; echo kept > kept; rm -r src; mkdir d; echo 1 > d/in; chmod 500 d");
        let running = shared.start(&env, &["--json", "--base", "touched", "--scratch", scratch], &line);
        let running = shared.wait_for_word(running, "ready");
        let (there, away) = (env.project().join(".avfs"), env.at("away"));
        std::fs::rename(&there, &away).unwrap();
        shared.put("go");
        let failed = running.answer().expect(123).envelope();
        assert_eq!(code(&failed), "capture.failed", "{failed}");
        std::fs::rename(&away, &there).unwrap();
        env.avfs(&["recover"]).expect(0);
        assert_eq!(env.scratches(), [""; 0]);
        assert_eq!(env.avfs_result(&["log"])["versions"].as_array().unwrap().len(), 1, "nothing is imported");
        let id = failed["run_id"].as_str().unwrap();
        assert_eq!(env.avfs_result(&["runs", "show", id])["base_kind"], json!("touched"));
        env.avfs(&["apply", id]).expect(0);
        let there = |name: &str| env.project().join(name).symlink_metadata().is_ok();
        assert_eq!([there("kept"), there("src"), there("d")], [true, false, true]);
        env.avfs(&["unapply", id]).expect(0);
        assert_eq!([there("kept"), there("src/main.rs"), there("d")], [false, true, false]);
        env.assert_sound();
    }
}

#[test]
fn immediate_apply_and_a_copy_of_the_vault_work() {
    let env = project();
    let mut command =
        env.command(&["--base", "touched", "--apply", "--shell", "echo x > src/x; rm README.md"]);
    Running::start(&mut command).answer().expect(0);
    assert!(env.project().join("src/x").exists() && !env.project().join("README.md").exists());
    let copy = env.at("copy.db").into_os_string().into_string().unwrap();
    crate::support::sql(&env.vault_file()).execute("VACUUM INTO ?1", [&copy]).unwrap();
    env.avfs(&["--vault", &copy, "fsck"]).expect(0);
    env.avfs(&["unapply"]).expect(0);
    assert_eq!(std::fs::read_to_string(env.project().join("README.md")).unwrap(), "hello\n");
}
