//! Names of forks that are traps: main, on which no run of a directory can work, and names that read as something else.

use serde_json::json;

use crate::env::TestEnv;
use crate::support;

/// Names that no new fork can have.
fn misleading() -> [String; 5] {
    ["last", "run", "HEAD", "0123456789", &"ab".repeat(32)].map(str::to_owned)
}

#[test]
fn no_run_works_on_the_main_fork_of_a_directory() {
    let env = TestEnv::with_project();
    env.put("list.txt", b"true\n");
    let refused = |words: &[&str], variable: &str, code| {
        let answer = env.answer(env.command(words).env("AVFS_FORK", variable));
        assert_eq!(answer.code, Some(code), "{answer:?}");
        answer
    };
    for (words, variable) in [
        (&["--fork", "main"][..], ""),
        (&["--fork", "main", "--apply"], ""),
        (&["--fork", "main", "--dry-run"], ""),
        (&["--fork", "main", "--cache", "read"], ""),
        (&[], "main"),
    ] {
        let command = ["--shell", "echo made > made"];
        let answer = refused(&[words, &command].concat(), variable, 125);
        let hint = "hint: omit --fork (or AVFS_FORK) to start from the directory, or start a fork from main: \
                    --fork NAME --from main\n";
        assert!(answer.stderr.ends_with(hint), "{answer:?}");
        let answer = refused(&[&["--json"], words, &command].concat(), variable, 125);
        assert_eq!(answer.envelope()["error"]["code"], json!("request.main"), "{answer:?}");
    }
    let request = env.fed(&["--json", "--request", "-"], br#"{"command": ["true"], "fork": "main"}"#);
    assert_eq!(request.expect(125).envelope()["error"]["code"], json!("request.main"));
    let batch = env.avfs(&["--json", "batch", "list.txt", "--fork", "main"]).expect(1);
    assert_eq!(batch.envelope()["error"]["code"], json!("request.main"));
    assert_eq!(env.avfs_result(&["batch", "--list"])["batches"], json!([]), "nothing was begun");
    assert_eq!(env.avfs_result(&["runs", "list"])["runs"], json!([]));

    // The directory still reaches forks through main, and main can be edited.
    assert_eq!(env.ok(&["--fork", "task", "--from", "main"], "ls"), "");
    env.avfs(&["import"]).expect(0);
    assert_eq!(env.ok(&["--fork", "other", "--from", "main"], "cat README.md"), "hello\n");
    env.avfs(&["mkdir", "made"]).expect(0);
    env.avfs(&["undo", "main"]).expect(0);
    // With `--apply`, the variable is ignored.
    let applied =
        env.command(&["--apply", "--shell", "echo made > made"]).env("AVFS_FORK", "main").output().unwrap();
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");
}

/// The main fork of a vault without a directory is a fork like any other.
#[test]
fn a_run_works_on_the_main_fork_of_an_unbound_vault() {
    let env = TestEnv::with_project();
    let copy = env.at("copy.db");
    env.avfs(&["vault", "copy", copy.to_str().unwrap()]).expect(0);
    let vault = ["--vault", copy.to_str().unwrap()];
    env.shell(&[&vault[..], &["--fork", "main"]].concat(), "echo one > one").expect(0);
    let with_variable =
        env.command(&[&vault[..], &["--shell", "cat one"]].concat()).env("AVFS_FORK", "main").output();
    assert_eq!(with_variable.unwrap().stdout, b"one\n");
    env.put("list.txt", b"cat one\n");
    env.avfs(&[&vault[..], &["batch", "list.txt", "--fork", "main"]].concat()).expect(0);
}

#[test]
fn no_vault_is_created_for_a_run_on_a_name_that_is_refused() {
    let env = TestEnv::new();
    for name in ["main", "HEAD"] {
        env.shell(&["--fork", name], "true").expect(125);
        assert!(!env.vault_file().exists(), "{name}");
    }
}

#[test]
fn a_new_fork_cannot_be_named_like_a_run_or_a_version() {
    let env = TestEnv::with_project();
    env.put("list.txt", b"true\n");
    for name in &misleading() {
        let made = env.avfs(&["--json", "fork", "create", name]).expect(2);
        assert_eq!(made.envelope()["error"]["code"], json!("name.invalid"), "{name}");
        let run = env.shell(&["--json", "--fork", name], "true").expect(125);
        assert_eq!(run.envelope()["error"]["code"], json!("name.invalid"), "{name}");
        let by_variable = env.answer(env.command(&["--", "true"]).env("AVFS_FORK", name));
        by_variable.expect(125);
        for verb in
            [&["batch", "list.txt", "--fork", name][..], &["race", "-n", "2", "--fork", name, "--", "true"]]
        {
            let refused = env.avfs(verb).expect(2);
            assert!(refused.stderr.contains("cannot be named"), "{refused:?}");
        }
    }
    assert_eq!(env.avfs_result(&["runs", "list"])["runs"], json!([]));
    let forks = env.avfs_result(&["fork", "list"]);
    assert_eq!(forks["forks"].as_array().unwrap().len(), 1, "{forks}");
}

/// An older release could create such forks.
#[test]
fn an_existing_fork_with_such_a_name_keeps_working() {
    let env = TestEnv::with_project();
    for name in &misleading() {
        env.avfs(&["fork", "create", "old"]).expect(0);
        let rename = "UPDATE fork SET name = ?1 WHERE name = 'old'";
        assert_eq!(support::sql(&env.vault_file()).execute(rename, [name]).unwrap(), 1);
        env.shell(&["--fork", name], "echo made > made").expect(0);
        assert_eq!(env.cat(name, "made"), "made\n");
        env.avfs(&["fork", "delete", name]).expect(0);
    }
}
