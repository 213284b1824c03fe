//! What happens to changes: kept for review, committed to forks, discarded or applied; and where the workspace is
//! visible.

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs};
use crate::limits::notes;
use crate::shared::{Shared, start_held};

fn run_id(envelope: &Value) -> String {
    envelope["result"]["run_id"].as_str().unwrap().to_owned()
}

fn forks(env: &TestEnv) -> Vec<String> {
    let list = env.avfs_result(&["fork", "list"]);
    let names = list["forks"].as_array().unwrap().iter();
    names.map(|fork| fork["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_without_a_fork_is_kept_for_review_and_starts_from_the_directory() {
    let env = TestEnv::with_project();
    let first = env.json(&[], "echo one > made; cat README.md");
    assert_eq!(first["result"]["stdout"], json!("hello\n"));
    let second = env.json(&[], "ls made");
    assert_eq!(second["result"]["exit_code"], json!(2), "changes of an earlier run are not visible");
    let run = run_id(&first);
    assert_eq!(forks(&env), ["main".to_owned(), format!("run-{run}")]);
    assert_eq!(env.cat(&format!("run:{run}"), "made"), "one\n");
    env.put("README.md", b"changed on the host\n");
    assert_eq!(env.ok(&[], "cat README.md"), "changed on the host\n");
    assert_eq!(env.cat("main", "README.md"), "changed on the host\n");
    env.assert_sound();
}

#[test]
fn a_run_without_changes_leaves_only_its_record() {
    let env = TestEnv::with_project();
    let answer = env.json(&[], "cat README.md > /dev/null; touch -r README.md README.md; ls -R");
    assert_eq!(answer["result"]["landing"], json!("nothing"));
    assert_eq!((&answer["result"]["fork"], &answer["result"]["version_after"]), (&Value::Null, &Value::Null));
    assert_eq!(forks(&env), ["main"]);
    let shown = env.avfs_result(&["runs", "show", &run_id(&answer)]);
    assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("completed"), &json!(0)));
}

#[test]
fn the_head_of_a_fork_moves_with_each_run() {
    let env = TestEnv::with_project();
    for n in 1..=12 {
        let answer = env.json(&["--fork", "task"], &format!("echo {n} >> log; wc -l < log"));
        assert_eq!(answer["result"]["stdout"], json!(format!("{n}\n")));
        assert_eq!(answer["result"]["fork"], json!("task"));
        assert!(answer["result"]["checkpoint_after"].is_string(), "{answer}");
        // Twelve runs exceed the maximum number of stacked layers: some layers are merged.
        assert_ne!(answer["enforcement"]["base"], json!("live"));
    }
    assert_eq!(env.cat("task~11", "log"), "1\n");
    assert_eq!(env.cat("task", "log").lines().count(), 12);
    // Later changes in the directory are not visible on the fork.
    env.put("README.md", b"changed on the host\n");
    assert_eq!(env.ok(&["--fork", "task"], "cat README.md"), "hello\n");
    env.assert_sound();
}

#[test]
fn the_fork_for_a_whole_agent_is_set_by_an_environment_variable() {
    let env = TestEnv::with_project();
    let with_fork = |words: &[&str]| env.answer(env.command(words).env("AVFS_FORK", "agent"));
    with_fork(&["--shell", "echo a > a"]).expect(0);
    assert_eq!(with_fork(&["--shell", "cat a; echo ${AVFS_FORK-unset}"]).expect(0).text(), "a\nunset\n");
    // The option overrides the variable.
    assert_eq!(with_fork(&["--fork", "other", "--shell", "ls a"]).code, Some(2));
    with_fork(&["--shell", "true"]).expect(0);
    assert_eq!(env.answer(env.command(&["--shell", "ls a"]).env("AVFS_FORK", "")).code, Some(2));
    let bad = env.answer(env.command(&["--", "true"]).env("AVFS_FORK", "no good"));
    bad.expect(125);
}

#[test]
fn a_new_fork_starts_from_the_given_version() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "one"], "echo 1 > n");
    env.ok(&["--fork", "one"], "echo 2 > n");
    assert_eq!(env.ok(&["--fork", "two", "--from", "one~1"], "cat n"), "1\n");
    assert_eq!(env.ok(&["--fork", "three", "--from", "one"], "cat n"), "2\n");
    // --from only applies when the fork is created.
    assert_eq!(env.ok(&["--fork", "two", "--from", "one"], "cat n"), "1\n");
}

#[test]
fn an_ephemeral_fork_starts_from_the_given_version() {
    let env = TestEnv::with_project();
    env.ok(&["--fork", "one"], "echo 1 > n");
    env.ok(&["--fork", "one"], "echo 2 > n");
    let run = env.json(&["--from", "one~1"], "cat n; echo 3 > n");
    assert_eq!(run["result"]["stdout"], "1\n");
    let fork = run["result"]["fork"].as_str().unwrap();
    assert!(fork.starts_with("run-"), "{fork}");
    assert_eq!(env.ok(&["--from", fork], "cat n"), "3\n");
    // Neither the fork that it started from nor the fork of the directory has moved.
    assert_eq!(env.ok(&["--fork", "one"], "cat n"), "2\n");
    env.run(&["--base", "live", "--from", "one", "--", "true"]).expect(125);
}

#[test]
fn checkpoints_are_saved_as_requested() {
    let env = TestEnv::with_project();
    let marks = |options: &[&str], line: &str| {
        let answer = env.json(options, line);
        let there = |name: &str| answer["result"][name].is_string();
        (there("checkpoint_before"), there("checkpoint_after"))
    };
    assert_eq!(marks(&["--fork", "f"], "echo 1 > n"), (true, true));
    assert_eq!(marks(&["--fork", "f"], "true"), (false, false));
    assert_eq!(marks(&["--fork", "f", "--checkpoint", "never"], "echo 2 > n"), (false, false));
    assert_eq!(marks(&["--fork", "f", "--checkpoint", "always"], "echo 3 > n"), (true, true));
    assert_eq!(marks(&[], "echo 4 > n"), (true, true));
    let list = env.avfs_result(&["checkpoint", "list", "--fork", "f"]);
    assert_eq!(list["checkpoints"].as_array().unwrap().len(), 4, "{list}");
}

#[test]
fn a_readonly_run_can_write_only_outside_of_the_workspace() {
    let env = TestEnv::with_project();
    for options in [&["--readonly"][..], &["--readonly", "--base", "cached"], &["--readonly", "--fork", "f"]]
    {
        let answer = env.json(options, "touch new || echo refused; echo x >> README.md || echo refused; \
             rm -f src/main.rs || echo refused; chmod 600 README.md || echo refused; cat README.md; echo x > /tmp/x");
        assert_eq!(
            answer["result"]["stdout"],
            json!("refused\nrefused\nrefused\nrefused\nhello\n"),
            "{answer}"
        );
        assert_eq!((&answer["success"], &answer["result"]["landing"]), (&json!(true), &json!("nothing")));
        assert!(answer["request"]["readonly"].as_bool().unwrap());
    }
}

#[test]
fn a_discarded_run_leaves_only_its_record() {
    let env = TestEnv::with_project();
    for options in [&["--discard"][..], &["--discard", "--base", "cached"], &["--discard", "--fork", "f"]] {
        let answer = env.json(options, "rm -r src; echo x > new; cat new");
        assert_eq!(
            (&answer["success"], &answer["result"]["stdout"]),
            (&json!(true), &json!("x\n")),
            "{answer}"
        );
        assert_eq!(answer["result"]["landing"], json!("nothing"));
        let shown = env.avfs_result(&["runs", "show", &run_id(&answer)]);
        assert_eq!((&shown["state"], &shown["version_after"]), (&json!("completed"), &Value::Null));
    }
    assert_eq!(env.ok(&["--fork", "f"], "ls"), "README.md\nlink\nsrc\n");
}

#[test]
fn changes_are_applied_only_if_the_command_succeeds() {
    let env = TestEnv::with_project();
    let failing = env.run(&["--apply", "--shell", "echo x > new; exit 3"]).expect(3);
    assert!(!env.project().join("new").exists(), "{failing:?}");
    let mut command =
        env.command(&["--apply", "--shell", "echo x > new; rm src/data.bin; sed -i s/hello/bye/ README.md"]);
    let answer = crate::env::Running::start(&mut command).answer().expect(0);
    assert!(answer.stderr.contains("written to the directory"), "{answer:?}");
    assert_eq!(std::fs::read_to_string(env.project().join("new")).unwrap(), "x\n");
    assert_eq!(std::fs::read_to_string(env.project().join("README.md")).unwrap(), "bye\n");
    assert!(!env.project().join("src/data.bin").exists());
}

/// The directory is imported while the command runs. Concurrent edits can therefore be part of the version that the
/// run starts from, although the command has read the content before them.
#[test]
fn a_vault_without_a_directory_has_nothing_to_apply_to() {
    let env = TestEnv::with_project();
    let copy = env.at("copy.db");
    env.avfs(&["init"]).expect(0);
    env.avfs(&["vault", "copy", copy.to_str().unwrap()]).expect(0);
    let vault = ["--vault", copy.to_str().unwrap()];
    for options in [&["--apply"][..], &["--apply", "--fork", "f"], &["--apply", "--dry-run"]] {
        let answer = env.shell(&[&vault, options].concat(), "echo ran > ran").expect(125);
        assert!(answer.stderr.contains("the vault is not bound to one"), "{answer:?}");
        assert!(answer.stderr.contains(" export last DIR"), "{answer:?}");
        let answer = env.shell(&[&vault, options, &["--json"]].concat(), "echo ran > ran").expect(125);
        assert_eq!(answer.envelope()["error"]["code"], json!("vault.unbound"), "{answer:?}");
    }
    assert!(!env.project().join("ran").exists());
    // The summary offers what works.
    let summary = env.shell(&vault, "echo made > made").expect(0).stderr;
    let take = summary.lines().find_map(|line| line.split_once("take:").map(|(_, take)| take.trim()));
    let take = take.unwrap_or_else(|| panic!("{summary}"));
    let words: Vec<&str> = take.split(' ').collect();
    let to = env.at("exported");
    let words = words[1..].iter().map(|word| if *word == "DIR" { to.to_str().unwrap() } else { word });
    env.avfs(&words.collect::<Vec<_>>()).expect(0);
    assert_eq!(std::fs::read_to_string(to.join("made")).unwrap(), "made\n");
}

#[test]
fn edits_made_while_a_run_starts_are_not_overwritten() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    env.put("notes", b"\n");
    // At this point the command runs, but the import has not started.
    let line = "echo by-the-command >> notes; : > $S/written";
    let (running, pauses) = start_held(&env, &mut shared.command(&env, &["--apply"], line), "executing");
    let running = shared.wait_for_word(running, "written");
    let (notes, edited) = (env.project().join("notes"), b"\nprecious\n");
    std::fs::write(&notes, edited).unwrap();
    pauses.release("executing");
    let answer = running.answer().expect(125);
    assert!(answer.stderr.contains("notes"), "{answer:?}");
    assert_eq!(std::fs::read(&notes).unwrap(), edited);
    // A later apply does not overwrite them either.
    let run = env.avfs_result(&["runs", "list"])["runs"][0]["id"].as_str().unwrap().to_owned();
    env.avfs(&["apply", &format!("run:{run}")]).expect(1);
    assert_eq!(std::fs::read(&notes).unwrap(), edited);
}

#[test]
fn applying_one_run_of_a_fork_leaves_the_earlier_runs_to_be_applied() {
    let env = TestEnv::with_project();
    let runs: Vec<String> = ["a", "b", "c"]
        .map(|name| run_id(&env.json(&["--fork", "f"], &format!("echo {name} > {name}"))))
        .into();
    let applied = |what: &str| {
        let result = env.avfs_result(&["apply", what]);
        let paths = result["changes"].as_array().unwrap().iter();
        let mut names: Vec<String> =
            paths.map(|change| change["path"].as_str().unwrap().to_owned()).collect();
        names.retain(|name| !name.is_empty() && name != ".");
        names
    };
    assert_eq!(applied(&format!("run:{}", runs[1])), ["b"]);
    assert_eq!(applied("f"), ["a", "b", "c"]);
    assert_eq!(applied("f"), [""; 0]);
    for name in ["a", "b", "c"] {
        assert!(env.project().join(name).exists(), "{name}");
    }
    env.json(&["--fork", "f"], "echo d > d");
    assert_eq!(applied("f"), ["d"]);
}

#[test]
fn the_workspace_is_mounted_at_its_own_path_or_at_a_given_one() {
    let env = TestEnv::with_project();
    let own = env.project().to_str().unwrap().to_owned();
    assert_eq!(env.ok(&[], "pwd").trim(), own);
    assert_eq!(
        env.ok(&["--at", "/srv/here"], "pwd; ls; echo x > y").trim(),
        "/srv/here\nREADME.md\nlink\nsrc"
    );
    assert_eq!(env.ok(&["--cwd", "src"], "pwd; cat main.rs").trim(), format!("{own}/src\nfn main() {{}}"));
    let mut command = env.command(&["--shell", "pwd"]);
    let answer = env.answer(command.current_dir(env.project().join("src"))).expect(0);
    assert_eq!(answer.text().trim(), format!("{own}/src"));
    assert_eq!(env.ok(&["--at", "/w", "--cwd", "src"], "pwd").trim(), "/w/src");
    // A mount point cannot be created in a system directory.
    let refused = env.run(&["--at", "/usr/no/such", "--", "true"]).expect(121);
    assert!(refused.stderr.contains("cannot create the directory /usr/no"), "{refused:?}");
    assert_eq!(env.scratches(), [""; 0]);
}

#[test]
fn host_paths_can_be_shown_and_hidden() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("shared")).unwrap();
    std::fs::write(env.at("shared/file"), "shared\n").unwrap();
    let shared = env.at("shared").to_str().unwrap().to_owned();
    assert_eq!(env.shell(&[], &format!("ls {shared}")).code, Some(2));
    let read = env.shell(&["--ro", &shared], &format!("cat {shared}/file; touch {shared}/new"));
    assert_eq!((read.code, read.text()), (Some(1), "shared\n".to_owned()));
    env.ok(&["--rw", &shared], &format!("echo written > {shared}/new"));
    assert_eq!(std::fs::read_to_string(env.at("shared/new")).unwrap(), "written\n");
    assert_eq!(env.ok(&["--hide", "/etc/passwd"], "wc -c < /etc/passwd").trim(), "0");
    let project = env.project();
    let src = project.join("src");
    assert_eq!(env.shell(&["--hide", src.to_str().unwrap()], "ls src/main.rs").code, Some(2));
    let answer =
        env.json(&["--tmpfs", project.join("build").to_str().unwrap()], "echo x > build/x; ls build");
    assert_eq!(
        (&answer["result"]["stdout"], &answer["result"]["landing"]),
        (&json!("x\n"), &json!("nothing"))
    );
}

#[test]
fn expired_forks_are_deleted_when_a_run_starts() {
    let env = TestEnv::with_project();
    for name in ["over", "used"] {
        env.avfs_result(&["fork", "create", name, "--expires", "0s"]);
    }
    let run = env.json(&["--fork", "used"], "echo x > made");
    let notes = run["result"]["notes"].as_array().unwrap();
    let expired: Vec<&Value> = notes.iter().filter(|note| note["code"] == json!("fork.expired")).collect();
    assert_eq!(expired.len(), 1, "{run}");
    assert!(expired[0]["text"].as_str().unwrap().ends_with(": over"), "{run}");
    assert_eq!(forks(&env), ["main", "used"], "the fork of the run is in use");
    let list = env.avfs_result(&["fork", "list", "--size"]);
    let used = &list["forks"][1];
    assert_eq!(used["last_run"]["id"], run["result"]["run_id"]);
    assert!(used["held_bytes"].as_u64().unwrap() > 0, "{used}");
    assert_eq!(env.json(&[], "true")["result"]["notes"][0]["code"], json!("fork.expired"));
    assert_eq!(env.json(&[], "true")["result"]["notes"], json!([]), "the note appears once");
    env.assert_sound();
}

#[test]
fn an_expired_fork_still_exists_for_a_run_that_starts_from_it() {
    let env = TestEnv::with_project();
    env.avfs_result(&["fork", "create", "over", "--expires", "0s"]);
    let run = env.json(&["--fork", "new", "--from", "over"], "echo x > made");
    assert_eq!(run["state"], json!("completed"), "{run}");
    assert_eq!(forks(&env), ["main", "new"]);
    env.assert_sound();
}

/// A mistyped name creates a fork, so a note reports it.
#[test]
fn creating_a_fork_is_reported_in_a_note() {
    let env = TestEnv::with_project();
    let made = env.json(&["--fork", "task"], "true");
    assert_eq!(notes(&made), ["fork.made"], "{made}");
    assert_eq!(notes(&env.json(&["--fork", "task"], "true")), Vec::<&str>::new());
    let human = env.shell(&["--fork", "tsak"], "true").expect(0);
    assert!(human.stderr.contains("created fork tsak from the current state of the directory"), "{human:?}");
}

/// The cache holds copies of versions: a version that included the cache would double in size with every run.
#[test]
fn a_cache_in_the_directory_is_not_versioned() {
    let env = TestEnv::with_project();
    let run = |words: &[&str]| {
        let mut command = env.command(words);
        Running::start(command.env("XDG_CACHE_HOME", env.project().join(".cache"))).answer().expect(0)
    };
    let mut entries = Vec::new();
    for _ in 0..3 {
        let ran = run(&["--json", "--shell", "touch new; ls .cache"]).envelope();
        let version = ran["result"]["version_after"].as_str().unwrap();
        entries.push(env.avfs_result(&["show", version])["version"]["entries"].as_u64().unwrap());
    }
    assert_eq!(entries, [entries[0]; 3]);
    let paths = env.avfs(&["find", "main"]).expect(0).text();
    assert!(env.project().join(".cache/avfs/stat").is_dir() && !paths.contains(".cache/avfs"), "{paths}");
    let mut status = env.clean(&avfs());
    status.args(["status", "--json"]).env("XDG_CACHE_HOME", env.project().join(".cache"));
    let status = Running::start(&mut status).answer().expect(0).envelope();
    assert!(!status.to_string().contains(".cache/avfs"), "{status}");
}

#[test]
fn a_home_directory_as_the_workspace_is_reported_in_a_note() {
    let env = TestEnv::with_project();
    let noted = |home: &std::path::Path| {
        let mut command = env.command(&["--json", "--", "true"]);
        let ran = Running::start(command.env("HOME", home)).answer().expect(0).envelope();
        notes(&ran).contains(&"workspace.home")
    };
    assert!(noted(&env.project()) && noted(&env.project().join("src")));
    assert!(!noted(&env.at("elsewhere")));
}

#[test]
fn a_run_on_a_fork_applies_only_its_own_changes() {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "feature/one"], "echo first > first").expect(0);
    let apply = |line: &str| {
        let words = ["--json", "--fork", "feature/one", "--apply", "--shell", line];
        crate::env::Running::start(&mut env.command(&words)).answer()
    };
    let applied = apply("echo second > second").expect(0).envelope();
    assert_eq!(applied["result"]["applied"], json!(1), "{applied}");
    assert!(env.project().join("second").exists() && !env.project().join("first").exists());
    assert_eq!(env.cat("feature/one", "first"), "first\n");
    // Conflicts between the directory and the fork are refused, as with `avfs apply`.
    env.put("third", b"of the directory\n");
    let refused = apply("echo fork > third");
    assert_eq!(refused.envelope()["error"]["code"], json!("apply.conflict"), "{refused:?}");
}

#[test]
fn sync_merges_changes_of_the_directory_into_a_fork() {
    let env = TestEnv::with_project();
    env.json(&["--fork", "task"], "echo agent >> src/main.rs");
    let noted = |answer: &Value| {
        let notes = answer["result"]["notes"].as_array().unwrap();
        notes.iter().any(|note| note["code"] == "fork.behind")
    };
    assert!(!noted(&env.json(&["--fork", "task"], "echo agent > agent")));
    env.put("README.md", b"by hand\n");
    assert!(noted(&env.json(&["--fork", "task"], "true")));
    env.avfs(&["sync", "task"]).expect(0);
    assert_eq!(env.ok(&["--fork", "task"], "cat README.md agent"), "by hand\nagent\n");
    assert!(!noted(&env.json(&["--fork", "task"], "true")));
    // The agent continues from the user's text, and only its own changes are applied.
    env.json(&["--fork", "task"], "echo agent >> README.md");
    let diff = env.avfs(&["diff", "task"]).expect(0).text();
    assert!(diff.contains("README.md") && diff.contains("src/main.rs"), "{diff}");
    env.put("src/data.bin", b"edited meanwhile");
    env.avfs(&["apply", "task"]).expect(0);
    assert_eq!(std::fs::read(env.project().join("README.md")).unwrap(), b"by hand\nagent\n");
    assert_eq!(std::fs::read(env.project().join("src/data.bin")).unwrap(), b"edited meanwhile");
    // Both sides change one file: nothing is merged, the path is reported, and a side can be chosen.
    env.put("agent", b"by hand\n");
    env.json(&["--fork", "task"], "echo again > agent");
    let refused = env.avfs(&["--json", "sync", "task"]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], "sync.conflict");
    assert_eq!(refused["result"]["conflicts"][0]["path"], "agent");
    assert_eq!(env.ok(&["--fork", "task"], "cat agent"), "again\n");
    env.avfs(&["sync", "task", "--prefer", "directory"]).expect(0);
    assert_eq!(env.ok(&["--fork", "task"], "cat agent"), "by hand\n");
    env.avfs(&["undo", "task"]).expect(0);
    assert_eq!(env.ok(&["--fork", "task"], "cat agent"), "again\n");
}

#[test]
fn a_conflict_with_a_directory_names_the_side_that_can_be_chosen() {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "task"], "rm README.md && mkdir README.md && echo fork > README.md/f").expect(0);
    env.put("README.md", b"by hand\n");
    let refused = env.avfs(&["--json", "sync", "task", "--prefer", "directory"]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], "sync.conflict");
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("--prefer fork") && !hint.contains("--prefer directory"), "{hint}");
    env.avfs(&["sync", "task", "--prefer", "fork"]).expect(0);
    assert_eq!(env.ok(&["--fork", "task"], "cat README.md/f"), "fork\n");
}

#[test]
fn a_note_reports_that_a_path_changed_by_the_run_was_edited_in_the_directory() {
    let env = TestEnv::with_project();
    env.json(&["--fork", "task"], "echo agent > agent");
    env.put("README.md", b"by hand, and longer\n");
    let answer = env.json(&["--fork", "task"], "echo agent >> README.md");
    let notes = answer["result"]["notes"].to_string();
    assert!(notes.contains("fork.behind") && notes.contains("avfs sync task"), "{notes}");
}

#[test]
fn undo_and_redo_without_a_fork_move_the_same_fork() {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "task"], "echo one > f").expect(0);
    env.avfs(&["undo"]).expect(0);
    env.avfs(&["cat", "task", "f"]).expect(1);
    let redone = env.avfs(&["redo"]).expect(0);
    assert!(redone.text().contains("on fork task"), "{redone:?}");
    assert_eq!(env.avfs(&["cat", "task", "f"]).expect(0).stdout, b"one\n");
}

/// `diff`, `apply` and `undo` without an argument mean the same run.
#[test]
fn a_run_that_changed_only_times_is_skipped_with_a_note() {
    let env = TestEnv::with_project();
    let last = || {
        let shown = env.avfs(&["--json", "runs", "show", "last"]).expect(0).envelope();
        shown["result"]["id"].as_str().unwrap().to_owned()
    };
    let run_line = |options: &[&str], line: &str| {
        env.json(options, line);
        last()
    };
    let said = |words: &[&str]| {
        let answer = env.avfs(words).expect(0);
        answer.text() + &answer.stderr
    };
    let first = run_line(&[], "touch README.md");
    for verb in ["diff", "apply", "undo"] {
        let refused = env.avfs(&["--json", verb]).expect(1).envelope();
        assert_eq!(refused["error"]["code"], "run.not_found", "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(&first) && message.ends_with("only modification times"), "{refused}");
    }
    let run = run_line(&[], "echo new > f");
    let skipped = run_line(&[], "touch README.md");
    for words in [&["diff"][..], &["apply"], &["undo"]] {
        let shown = said(words);
        assert!(shown.contains(&format!("skipped run {skipped}")), "{shown}");
        assert!(shown.contains(&format!("run {run}: ")) && shown.contains("  f  ("), "{shown}");
    }
    assert!(!env.project().join("f").exists());
    // On a fork the newer run is undone first.
    let run = run_line(&["--fork", "task"], "echo new > g");
    run_line(&["--fork", "task"], "touch README.md");
    let undone = said(&["undo"]);
    let expected = format!("note: run {run} is still in effect");
    assert!(undone.contains(": touch README.md") && undone.contains(&expected), "{undone}");
    assert!(!said(&["undo"]).contains("still in effect"));
    env.avfs(&["cat", "task", "g"]).expect(1);
}

#[test]
fn a_run_names_its_fork_where_a_fork_is_needed() {
    let env = TestEnv::with_project();
    for line in ["echo one > f", "echo two > f"] {
        env.shell(&["--fork", "task"], line).expect(0);
    }
    env.shell(&[], "true").expect(0);
    env.avfs(&["undo", "last~1"]).expect(0);
    let redone = env.avfs(&["redo", "last~2"]).expect(0);
    assert!(redone.text().contains("on fork task"), "{redone:?}");
    assert_eq!(env.avfs(&["cat", "task", "f"]).expect(0).stdout, b"two\n");
    env.put("README.md", b"by hand\n");
    let synced = env.avfs(&["sync", "last~1"]).expect(0);
    assert!(synced.text().contains("into task"), "{synced:?}");
    let found =
        env.avfs(&["bisect", "--json", "last~2", "--", "sh", "-c", "! grep -q two f"]).expect(0).envelope();
    assert_eq!(found["result"]["fork"], "task");
    assert_eq!(found["result"]["run"]["command"], "echo two > f");
    for verb in ["redo", "sync"] {
        assert_eq!(
            env.avfs(&["--json", verb, "run:ffff"]).expect(1).envelope()["error"]["code"],
            "run.not_found"
        );
        assert_eq!(
            env.avfs(&["--json", verb, "none"]).expect(1).envelope()["error"]["code"],
            "fork.not_found"
        );
    }
}
