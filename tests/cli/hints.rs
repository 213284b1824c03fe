//! Hints can be followed: each names the cause and the command that helps.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::env::{Answer, TestEnv};
use crate::runs::land;
use crate::support;
use crate::support::landing::{Changes, run_id};
use crate::support::skip;

fn hint(refusal: &Value) -> &str {
    refusal["error"]["hint"].as_str().unwrap()
}

#[test]
fn hint_for_a_missing_vault_creates_it_at_the_given_path() {
    let env = TestEnv::with_project();
    let refusal = env.refused(&["--vault", "./nosuch.db", "log"], 1, "vault.not_found");
    assert!(hint(&refusal).contains("avfs init --vault ./nosuch.db"), "{refusal}");
    std::fs::create_dir(env.project().join("sub")).unwrap();
    let refusal = env.refused(&["--vault", "./sub", "log"], 1, "vault.not_found");
    assert!(hint(&refusal).contains("avfs init ./sub"), "{refusal}");
}

#[test]
fn directory_that_cannot_hold_a_vault_is_named() {
    let env = TestEnv::new();
    let mut nowhere = env.avfs(&["--json", "init", "--vault", "named"]);
    let answer = Answer::of(nowhere.env("HOME", "/proc"));
    let value: Value = serde_json::from_str(&answer.stdout).unwrap();
    let message = value["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("cannot create or write the directory /proc/.local/share/avfs/vaults"),
        "{message}"
    );
    assert!(hint(&value).contains("ls -ld /proc,"), "{value}");
    if !support::is_root() {
        return skip("directory_that_cannot_hold_a_vault_is_named", "only root gives files away");
    }
    env.give_away();
    std::fs::set_permissions(env.project(), PermissionsExt::from_mode(0o555)).unwrap();
    let answer = env.run_as_user(&["init"]);
    let project = env.project();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains(&format!("ls -ld {},", project.display())), "{answer:?}");
    assert!(answer.stderr.contains("avfs init --vault NAME"), "{answer:?}");
}

/// A directory such as `/tmp` is not changed for a vault; what the hint names works there.
#[test]
fn hint_for_a_world_writable_directory_can_be_followed() {
    let mode = |env: &TestEnv, mode| {
        std::fs::set_permissions(env.project(), PermissionsExt::from_mode(mode)).unwrap();
    };
    let refused = |env: &TestEnv| {
        let answer = env.run(&["init"]);
        assert!(answer.code == 1 && answer.stderr.contains("is world-writable"), "{answer:?}");
        answer.stderr
    };
    // One that all users share.
    let env = TestEnv::new();
    mode(&env, 0o1777);
    let hint = refused(&env);
    assert!(hint.contains("AVFS_VAULT_PLACE=data") && !hint.contains("chmod"), "{hint}");
    let mut elsewhere = env.avfs(&["run", "--", "true"]);
    assert_eq!(Answer::of(elsewhere.env("AVFS_VAULT_PLACE", "data")).code, 0);
    env.ok(&["run", "--", "true"]);
    let env = TestEnv::new();
    mode(&env, 0o1777);
    assert!(refused(&env).contains("avfs init --vault NAME|PATH"));
    env.ok(&["init", "--vault", "named"]);
    env.ok(&["run", "--vault", "named", "--", "true"]);
    // One that belongs to the caller.
    let env = TestEnv::new();
    mode(&env, 0o777);
    assert!(refused(&env).contains("chmod o-w "));
    mode(&env, 0o775);
    env.ok(&["init"]);
    // The data directory does not help with a vault that exists.
    mode(&env, 0o1777);
    let hint = env.run(&["log"]).stderr;
    let vault = env.vault_file();
    assert!(hint.contains(&format!("--vault {}", vault.display())) && !hint.contains("=data"), "{hint}");
    env.ok(&["--vault", vault.to_str().unwrap(), "log"]);
    if !support::is_root() {
        return skip("hint_for_a_world_writable_directory_can_be_followed", "only root gives files away");
    }
    // One of another user.
    let env = TestEnv::new();
    env.give_away();
    std::os::unix::fs::chown(env.project(), Some(0), Some(0)).unwrap();
    mode(&env, 0o777);
    let answer = env.run_as_user(&["init"]);
    assert!(answer.code == 1 && !answer.stderr.contains("chmod"), "{answer:?}");
}

#[test]
fn verbs_of_other_tools_get_a_hint() {
    let env = TestEnv::with_project();
    for (words, reported) in [
        (&["exec", "--", "ls"][..], "avfs run -- COMMAND"),
        (&["commit", "-m", "done"], "avfs import"),
        (&["branch", "fix"], "avfs fork create"),
        (&["checkout", "main"], "avfs export"),
        (&["revert", "main~1"], "avfs restore REF"),
        (&["list"], "avfs ls REF"),
        (&["tag", "v1"], "avfs checkpoint save"),
        (&["cat", "--fork", "main", "README.md"], "argument: avfs cat [OPTIONS] <REF> <PATH>..."),
        (&["log", "--fork", "main"], "argument: avfs log [OPTIONS] [FORK]"),
        (&["diff", "--fork", "main"], "argument: avfs diff [OPTIONS] [A] [B]"),
    ] {
        let refusal = env.refused(words, 2, "usage");
        assert!(hint(&refusal).contains(reported), "{words:?}: {refusal}");
    }
}

#[test]
fn wrong_options_and_missing_arguments_get_a_hint() {
    let env = TestEnv::with_project();
    for (words, command) in [
        (&["undo", "--bogus"][..], "avfs undo"),
        (&["fork", "create"], "avfs fork create"),
        (&["diff", "a", "b", "c"], "avfs diff"),
        (&["apply", "--include"], "avfs apply"),
        (&["runs", "list", "--limit", "x"], "avfs runs list"),
        (&["batch", "--mode", "x", "list"], "avfs batch"),
        (&["--bogus"], "avfs"),
    ] {
        let expected = format!("see the options with: {command} --help");
        assert_eq!(hint(&env.refused(words, 2, "usage")), expected, "{words:?}");
        let printed = env.run(words).stderr;
        assert!(printed.ends_with(&format!("\nhint: {expected}\n")), "{printed}");
        assert!(!printed.contains("For more information"), "{printed}");
    }
    for words in [&["run", "--base", "x", "--", "true"][..], &["run", "--net"]] {
        let printed = env.run(words).stderr;
        assert!(printed.ends_with("\nhint: see the options with: avfs-run --help\n"), "{printed}");
    }
    for name in ["/a", "a/", "a//b"] {
        let refusal = env.refused(&["fork", "create", name], 2, "name.invalid");
        let message = refusal["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("may not begin or end with '/', or contain '//'"), "{message}");
    }
}

#[test]
fn an_unknown_command_gets_the_probable_one() {
    let env = TestEnv::new();
    for (words, expected) in [
        (&["aply"][..], "did you mean: avfs apply"),
        (&["trust"], "did you mean: avfs vault trust"),
        (&["approve", "x"], "did you mean: avfs approvals approve"),
        (&["fork", "rm", "x"], "did you mean: avfs fork delete"),
        (&["fork", "delte", "x"], "did you mean: avfs fork delete"),
        (&["checkpoint", "create"], "did you mean: avfs checkpoint save"),
        (&["vault", "create"], "create a vault with: avfs init"),
        (&["upgrade"], "avfs does not update itself"),
        // Nothing is close: a wrong suggestion could delete something.
        (&["quota", "reset"], "list the commands with: avfs quota --help"),
        (&["uvw"], "list the commands with: avfs --help"),
    ] {
        let refusal = env.refused(words, 2, "usage");
        assert!(hint(&refusal).starts_with(expected), "{words:?}: {refusal}");
        let above = refusal["error"]["message"].as_str().unwrap();
        assert!(above.contains(" has no command "), "{words:?}: {refusal}");
    }
}

#[test]
fn errors_with_a_vault_come_with_a_usable_hint() {
    let env = TestEnv::with_project();
    let long = format!("./{}.db", "a".repeat(300));
    assert_eq!(hint(&env.refused(&["--vault", &long, "log"], 1, "vault.io")), "choose a shorter name");
    std::os::unix::fs::symlink("loop.db", env.project().join("loop.db")).unwrap();
    let refusal = env.refused(&["--vault", "./loop.db", "log"], 1, "vault.io");
    assert!(hint(&refusal).contains("ls -l "), "{refusal}");
    std::os::unix::fs::symlink("nowhere.db", env.project().join("dangling.db")).unwrap();
    let refusal = env.refused(&["--vault", "./dangling.db", "log"], 1, "vault.not_found");
    assert!(hint(&refusal).contains("dangling symlink"), "{refusal}");
    env.ok(&["quota", "set", "--bytes", "1"]);
    let refusal = env.refused(&["write", "x", "--text", "x"], 1, "quota.exceeded");
    assert!(hint(&refusal).contains("avfs quota set --bytes N"), "{refusal}");
    let refusal = env.refused(&["export", "main", "/proc/nowhere"], 1, "export.io");
    assert!(hint(&refusal).contains("another directory"), "{refusal}");
    // Bytes 44 to 47 of the header are SQLite's schema format number.
    let mut bytes = std::fs::read(env.vault_file()).unwrap();
    bytes[47] = 9;
    std::fs::write(env.vault_file(), bytes).unwrap();
    env.refused(&["log"], 1, "vault.corrupt");
}

#[test]
fn hints_distinguish_runs_from_forks_and_files() {
    let env = TestEnv::with_project();
    let refusal = env.refused(&["prune", "--keep-last", "1", "--fork", "run:abcd"], 2, "name.invalid");
    assert!(hint(&refusal).contains("run-ID"), "{refusal}");
    let refusal = env.refused(&["diff", "run:abcd"], 1, "ref.unknown");
    assert_eq!(hint(&refusal), "list runs with: avfs runs list");
    let refusal = env.refused(&["replay", "nosuch.jsonl"], 1, "record.unknown");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("is not a file"), "{refusal}");
    let reported = env.run(&["audit", "list", "--run", "abcdef0123"]);
    assert!(reported.code == 0 && reported.stderr.contains("no rows about run abcdef0123"), "{reported:?}");
}

#[test]
fn missing_fork_hint_suggests_creation_only_where_it_helps() {
    let env = TestEnv::with_project();
    for words in [
        &["fork", "delete", "nosuch"][..],
        &["undo", "nosuch"],
        &["redo", "nosuch"],
        &["sync", "nosuch"],
        &["bisect", "nosuch", "--", "true"],
        &["prune", "--keep-last", "1", "--fork", "nosuch"],
    ] {
        let refusal = env.refused(words, 1, "fork.not_found");
        assert_eq!(hint(&refusal), "list forks with: avfs fork list", "{words:?}");
    }
    let refusal = env.refused(&["fork", "delete", "last"], 1, "fork.not_found");
    assert!(hint(&refusal).ends_with("drop the changes of a run with: avfs discard last"), "{refusal}");
    let refusal = env.refused(&["write", "a", "--text", "a", "--fork", "last"], 1, "fork.not_found");
    assert_eq!(hint(&refusal), "last is a run: list runs and their forks with: avfs runs list");
    for verb in ["apply", "discard"] {
        let refusal = env.refused(&[verb, "nosuch"], 1, "fork.not_found");
        assert_eq!(hint(&refusal), "list forks with: avfs fork list, runs with: avfs runs list", "{verb}");
    }
    let refusal = env.refused(&["write", "a", "--text", "a", "--fork", "nosuch"], 1, "fork.not_found");
    assert!(hint(&refusal).contains("avfs fork create nosuch"), "{refusal}");
    // No fork can have this name.
    let refusal = env.refused(&["write", "a", "--text", "a", "--fork", "HEAD"], 1, "fork.not_found");
    assert_eq!(hint(&refusal), "list forks with: avfs fork list");
    let refusal = env.refused(&["policy", "test", "no-such-file"], 1, "host.io");
    assert!(!hint(&refusal).contains("directory"), "{refusal}");
    let refusal = env.refused(&["mkdir", "q/w/e"], 1, "path.not_found");
    assert!(hint(&refusal).ends_with("avfs mkdir -p q/w/e"), "{refusal}");
}

#[test]
fn verbs_without_anything_to_show_say_so() {
    let env = TestEnv::with_project();
    for verb in ["diff", "apply"] {
        let refusal = env.refused(&[verb], 1, "run.not_found");
        assert_eq!(refusal["error"]["message"], "the vault has no run that changed content", "{verb}");
        assert!(hint(&refusal).starts_with("run a command with: avfs run -- COMMAND"), "{refusal}");
    }
    let answer = env.run(&["audit", "list", "--action", "nosuch"]);
    assert!(answer.code == 0 && answer.stderr.contains("no rows found"), "{answer:?}");
    let answer = env.run(&["policy", "test"]);
    assert!(answer.code == 0 && answer.stderr.contains("no policy files found"), "{answer:?}");
    let refusal = env.refused(&["cat", "main", "src"], 1, "path.not_a_file");
    assert_eq!(refusal["error"]["message"], "src is a directory, not a file", "{refusal}");
}

#[test]
fn edits_of_main_note_that_the_directory_did_not_change() {
    let env = TestEnv::with_project();
    let note = "note: the files in the directory did not change";
    for words in [&["write", "a", "--text", "a"][..], &["mkdir", "d"], &["rm", "a"], &["undo"], &["redo"]] {
        let answer = env.run(words);
        assert!(answer.code == 0 && answer.stderr.contains(note), "{answer:?}");
    }
    env.ok(&["fork", "create", "f"]);
    let answer = env.run(&["write", "a", "--text", "a", "--fork", "f"]);
    assert!(answer.code == 0 && !answer.stderr.contains(note), "{answer:?}");
}

#[test]
fn vault_copy_to_an_existing_file_asks_for_a_new_one() {
    let env = TestEnv::with_project();
    env.ok(&["vault", "copy", "../copy.db"]);
    for file in ["../copy.db", "README.md"] {
        let refused = env.run(&["vault", "copy", file]);
        assert!(refused.code == 1 && refused.stderr.contains("hint: name a new file"), "{refused:?}");
    }
}

#[test]
fn run_id_without_prefix_is_recognised() {
    let env = TestEnv::with_project();
    land(&env, 1, &Changes::default().put("a", "a"));
    let id = run_id(1).to_string();
    assert!(!hint(&env.refused(&["show", "ffff"], 1, "ref.unknown")).contains("run:"));
    assert_eq!(env.ok(&["cache", "explain", &id]), env.ok(&["cache", "explain", &format!("run:{id}")]));
}

#[test]
fn hints_repeat_the_given_reference() {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "fix"]);
    env.ok(&["write", "new", "--text", "x", "--fork", "fix"]);
    let out = env.at("out");
    for (words, reference) in [
        (&["cat", "fix~1", "nosuch"][..], "fix~1"),
        (&["cat", "fix", "src"], "-l fix src"),
        (&["ls", "fix", "nosuch"], "fix"),
        (&["tree", "fix", "nosuch"], "fix"),
        (&["find", "fix", "nosuch"], "fix"),
        (&["grep", "fix", "x", "nosuch"], "fix"),
        (&["export", "fix", out.to_str().unwrap(), "nosuch"], "fix"),
        (&["log", "fix", "--", "nosuch"], "fix"),
        (&["diff", "main", "fix", "--", "nosuch"], "fix"),
        (&["rm", "nosuch", "--fork", "fix"], "fix"),
        (&["mv", "nosuch", "a", "--fork", "fix"], "fix"),
        (&["cp", "nosuch", "a"], "main"),
    ] {
        let answer = env.json(words);
        let hint = answer["error"]["hint"].as_str().unwrap();
        assert!(hint.ends_with(&format!("avfs ls {reference}")), "{words:?}: {hint}");
    }
}

#[test]
fn version_in_place_of_a_fork_names_the_right_verb() {
    let env = TestEnv::with_project();
    for (words, code, hint) in [
        (&["undo", "main~1"][..], "ref.invalid", "avfs restore main~1"),
        (&["redo", "fix~2"], "ref.invalid", "avfs restore fix~2 --fork fix"),
        (&["undo", "main@good"], "ref.invalid", "avfs restore main@good"),
        (&["apply", "main~1"], "ref.invalid", "avfs export main~1 DIR"),
        (&["discard", "main~1"], "ref.invalid", "avfs fork list"),
        (&["sync", "fix~1"], "ref.invalid", "avfs sync fix"),
        (&["diff", "main~1..main"], "ref.invalid", "avfs diff main~1 main"),
    ] {
        let refusal = env.refused(words, 2, code);
        assert!(refusal["error"]["hint"].as_str().unwrap().ends_with(hint), "{refusal}");
    }
    for (word, hint) in [("main..fix", "avfs diff main fix"), ("main...fix", "avfs diff main fix")] {
        let refusal = env.refused(&["diff", word], 1, "ref.unknown");
        assert!(refusal["error"]["hint"].as_str().unwrap().ends_with(hint), "{refusal}");
    }
    let refusal = env.refused(&["diff", ".."], 2, "ref.invalid");
    assert!(refusal["error"]["hint"].as_str().unwrap().ends_with("avfs diff A B"), "{refusal}");
}
