//! Variables that are withheld from a command are named, and a pattern passes several variables.

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs, runner};
use crate::support::as_unknown_user;

/// The notes with this code of a run with these variables outside.
fn notes(env: &TestEnv, code: &str, words: &[&str]) -> Vec<String> {
    let mut command = env.command(&[&["--json"], words].concat());
    command.env("DATABASE", "db-7").env("NPM_TOKEN", "hush").env("OTHER", "x");
    let answer = env.answer(&mut command);
    assert!(!answer.text().contains("db-7") || words.contains(&"DATABASE"), "{answer:?}");
    assert!(!answer.text().contains("hush"), "{answer:?}");
    let envelope = answer.envelope();
    let notes = envelope["result"]["notes"].as_array().unwrap();
    let of_code = notes.iter().filter(|note| note["code"] == json!(code));
    of_code.map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_withheld_variable_that_the_command_line_uses_is_named() {
    let env = TestEnv::with_project();
    let withheld = |words: &[&str]| notes(&env, "env.withheld", words);
    let note = "DATABASE is set on the host but not passed to the command; pass it with --env DATABASE";
    for words in [
        &["--shell", "echo $DATABASE"][..],
        &["--shell", "echo \"${DATABASE:-none}\" $DATABASE"],
        &["--", "sh", "-c", "echo $DATABASE"],
        &["--", "timeout", "9", "bash", "-lc", "echo $DATABASE"],
        &["--shell", "sh -c 'echo $DATABASE'"],
    ] {
        assert_eq!(withheld(words), [note], "{words:?}");
    }
    // A variable that looks like a credential is suggested as a secret.
    let text = withheld(&["--shell", "echo $NPM_TOKEN $NOWHERE_SET"]);
    assert_eq!(text.len(), 1);
    assert!(text[0].ends_with("; pass it with --secret NPM_TOKEN"), "{text:?}");
    for words in [
        &["--shell", "DATABASE=mine; echo $DATABASE"][..],
        &["--shell", "for DATABASE in a b; do echo $DATABASE; done"],
        &["--shell", "echo mine | { read DATABASE; echo $DATABASE; }"],
        &["--shell", "export DATABASE=mine; sh -c 'echo $DATABASE'"],
        &["--shell", "echo '$DATABASE' \\$DATABASE $PATH $PWD $1"],
        &["--", "echo", "$DATABASE"],
        &["--", "printenv", "DATABASE"],
        &["--env", "DATABASE", "--shell", "echo $DATABASE"],
        &["--env", "DATABASE=mine", "--shell", "echo $DATABASE"],
    ] {
        assert_eq!(withheld(words), [""; 0], "{words:?}");
    }
    // The same in the output for people.
    let mut command = env.command(&["--shell", "echo $DATABASE"]);
    let seen = env.answer(command.env("DATABASE", "db-7")).stderr;
    assert!(seen.contains("pass it with --env DATABASE") && !seen.contains("db-7"), "{seen}");
}

/// The notes of a run with variables outside that python and npm read.
fn unread(env: &TestEnv, words: &[&str]) -> Vec<String> {
    let mut command = env.command(&[&["--json"], words].concat());
    command.env("PYTHONPATH", "hush").env("PYTHONUTF8", "1").env("NODE_ENV", "test");
    let answer = env.answer(&mut command).expect(0);
    assert!(!answer.text().contains("hush"), "{answer:?}");
    let envelope = answer.envelope();
    let notes = envelope["result"]["notes"].as_array().unwrap().iter();
    let of_code = notes.filter(|note| note["code"] == json!("env.withheld"));
    of_code.map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_withheld_variable_that_a_program_reads_is_named_once_for_each_fork() {
    let env = TestEnv::with_project();
    let reads = |program: &str, name: &str| {
        format!("{program} reads {name}, which is set on the host but not passed; pass it with --env {name}")
    };
    let both = [reads("python3", "PYTHONPATH"), reads("python3", "PYTHONUTF8")];
    for words in [
        &["--", "ls"][..],
        &["--env", "PYTHON*", "--", "python3", "-c", "pass"],
        &["--shell", "export PYTHONPATH=a; PYTHONUTF8=0 python3 -c pass"],
        &["--", "env", "PYTHONPATH=a", "PYTHONUTF8=0", "python3", "-c", "pass"],
    ] {
        assert_eq!(unread(&env, words), [""; 0], "{words:?}");
    }
    assert_eq!(unread(&env, &["--", "python3", "-c", "pass"]), both);
    assert_eq!(unread(&env, &["--", "python3", "-c", "pass"]), [""; 0]);
    for fork in ["one", "two"] {
        let on_fork = |line: &str| unread(&env, &["--fork", fork, "--shell", line]);
        assert_eq!(on_fork("true && timeout 9 python3 -c pass"), both, "{fork}");
        assert_eq!(on_fork("python3 -c pass"), [""; 0], "{fork}");
        // Only the new one.
        let npm = "printf '#!/bin/sh\n' > npm; chmod +x npm; ./npm; python3 -c pass";
        assert_eq!(on_fork(npm), [reads("npm", "NODE_ENV")], "{fork}");
    }
    // A new fork of the same name.
    env.avfs(&["fork", "delete", "one"]).expect(0);
    assert_eq!(unread(&env, &["--fork", "one", "--", "python3", "-c", "pass"]), both);
    // A text that uses the variable names it each time, and once.
    for _ in 0..2 {
        let text = unread(&env, &["--fork", "two", "--shell", "echo $NODE_ENV; python3 -c pass"]);
        assert_eq!(
            text,
            ["NODE_ENV is set on the host but not passed to the command; pass it with --env NODE_ENV"]
        );
    }
}

#[test]
fn a_refused_run_uses_up_no_note_about_a_variable() {
    let env = TestEnv::with_project();
    env.policy("[[rule]]\naction = 'deny'\nprefix = ['python3']\n");
    let mut denied = env.command(&["--", "python3", "-c", "pass"]);
    env.answer(denied.env("PYTHONPATH", "hush")).expect(122);
    env.policy("[[rule]]\naction = 'allow_with_checkpoint'\n");
    assert_eq!(unread(&env, &["--", "python3", "-c", "pass"]).len(), 2);
}

#[test]
fn a_note_that_nobody_saw_is_given_again() {
    let env = TestEnv::with_project();
    let python = ["--", "python3", "-c", "pass"];
    let outside = |words: &[&str]| {
        let mut command = env.command(&[words, &python].concat());
        env.answer(command.env("PYTHONPATH", "hush")).expect(0)
    };
    assert_eq!(outside(&["--quiet"]).stderr, "");
    // The summary of a batch has no notes of items that succeeded.
    std::fs::write(env.at("list"), "python3 -c pass\n").unwrap();
    let mut batch = env.clean(&avfs());
    batch.args(["batch", env.at("list").to_str().unwrap()]).env("PYTHONPATH", "hush");
    let answer = Running::start(&mut batch).answer().expect(0);
    assert!(!answer.stderr.contains("PYTHONPATH"), "{answer:?}");
    let shown = outside(&[]).stderr;
    assert!(shown.contains("pass it with --env PYTHONPATH"), "{shown}");
    assert!(!outside(&[]).stderr.contains("PYTHONPATH"));
}

#[test]
fn a_pattern_passes_all_variables_with_the_prefix_except_credentials() {
    let env = TestEnv::with_project();
    let outside = [
        ("APP_MODE", "fast"),
        ("APP_URL", "http://x.org"),
        ("APP_TOKEN", "hush"),
        ("APP_api_key", "hush"),
        ("APP_DB", "https://me:hush-hush@db.org/x"),
        ("APP_DB_PW", "hush"),
        ("APP_SESSION", "hush"),
        ("APP_SQL", "Server=x;Password=hush;"),
        ("APPLE", "no"),
    ];
    let seen = |options: &[&str]| {
        let words = [options, &["-q", "--shell", "printenv | grep ^APP | sort"]].concat();
        env.answer(env.command(&words).envs(outside)).text()
    };
    assert_eq!(seen(&["--env", "APP_*"]), "APP_MODE=fast\nAPP_URL=http://x.org\n");
    assert_eq!(seen(&[]), "");
    std::fs::write(env.at("config/avfs/avfs.toml"), "run.env = ['APP_M*']\n").unwrap();
    assert_eq!(seen(&[]), "APP_MODE=fast\n");
    // A credential is passed if its full name is given.
    assert_eq!(seen(&["--env", "APP_TOKEN"]), "APP_MODE=fast\nAPP_TOKEN=hush\n");
    let missing = |pattern| notes(&env, "env.missing", &["--env", pattern, "--", "true"]);
    assert_eq!(missing("NONE_*"), ["NONE_* is not set, so it is not passed"]);
    let held_back =
        "NPM_* passes no variable: NPM_TOKEN looks like a credential; pass it with --secret NPM_TOKEN";
    assert_eq!(missing("NPM_*"), [held_back]);
    for bad in ["*", "A*B", "*A"] {
        let refused = env.run(&["--json", "--env", bad, "--", "true"]).expect(125).envelope();
        assert_eq!(refused["error"]["code"], json!("request.bad_env"), "{bad}");
    }
    // For the policy each of them is a variable that the request asks for.
    let words = ["--json", "--dry-run", "--policy", "agent", "--env", "APP_*", "--", "true"];
    let decided: Value = env.answer(env.command(&words).envs(outside)).envelope()["decision"].take();
    assert_eq!(decided["rule"], json!("profile.agent.secrets"), "{decided}");
}

#[test]
fn misspelt_variable_of_a_setting_is_noted() {
    let env = TestEnv::with_project();
    let mut command = env.command(&["--json", "--discard", "--", "true"]);
    let envelope = env.answer(command.env("AVFS_RUN_TIMEOT", "5s")).expect(0).envelope();
    let notes = envelope["result"]["notes"].as_array().unwrap();
    let note = notes.iter().find(|note| note["code"] == "config.unknown_variable").unwrap();
    assert!(note["text"].as_str().unwrap().ends_with("did you mean AVFS_RUN_TIMEOUT?"), "{note}");
}

#[test]
fn a_file_of_variables_can_have_quotes_and_export() {
    let env = TestEnv::with_project();
    let file = env.at("variables");
    let with = |text: &str| std::fs::write(&file, text).unwrap();
    with(
        "# comment\nA=plain\nexport B=exported\n  export\tC=\"two words\"\nD='$A \"x\"'\nE=\"a\" \"b\"\nF=\"open\nG=''\n\
         export=H\nI=x=y\nJ=\"\nK=export L=1\n",
    );
    let words = ["--env-file", file.to_str().unwrap(), "--", "env"];
    let answer = env.run(&words).expect(0).text();
    let seen: Vec<&str> =
        answer.lines().filter(|line| line.as_bytes()[1] == b'=' || line.starts_with("exp")).collect();
    let mut seen: Vec<&str> = seen.into_iter().filter(|line| !line.starts_with("_=")).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "A=plain",
            "B=exported",
            "C=two words",
            "D=$A \"x\"",
            "E=\"a\" \"b\"",
            "F=\"open",
            "G=",
            "I=x=y",
            "J=\"",
            "K=export L=1",
            "export=H"
        ]
    );
    for bad in ["1A=x", "A B=x", "A =x", "A.B=x", "export A", "export  =x", "declare -x A=x", "=x", "A"] {
        with(&format!("FIRST=1\n\n{bad}\n"));
        let refused = env.run(&words).expect(125);
        let message = format!("line 3 of {} is not NAME=VALUE", file.display());
        assert!(
            refused.stderr.contains(&message) && refused.stderr.contains("\nhint: "),
            "{bad}: {refused:?}"
        );
    }
}

#[test]
fn home_of_the_user_database_is_used_without_the_variable() {
    let env = TestEnv::new();
    let home = env.at("home");
    let homeless = |command: &mut std::process::Command, value: Option<&str>| {
        for name in ["HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        command.envs(value.map(|value| ("HOME", value)));
    };
    std::fs::write(env.at("passwd"), format!("root:x:0:0::{}:/bin/sh\n", home.display())).unwrap();
    let script = r#"mount --bind "$USERS" /etc/passwd; "$RUN" --shell 'echo $HOME; cd; pwd'"#;
    for value in [None, Some("")] {
        let mut command = env.clean("unshare".as_ref());
        command.args(["-Urmpf", "--mount-proc", "sh", "-uc", script]);
        command.env("RUN", runner()).env("USERS", env.at("passwd"));
        homeless(&mut command, value);
        let answer = Running::start(&mut command).answer().expect(0);
        assert_eq!(answer.text(), format!("{0}\n{0}\n", home.display()), "{answer:?}");
        assert!(home.join(".cache/avfs").is_dir() && home.join(".local/share/avfs").is_dir(), "{answer:?}");
        std::fs::remove_dir_all(env.project().join(".avfs")).unwrap();
    }
    let mut command = env.command(&["--json", "--", "true"]);
    homeless(&mut command, None);
    let answer = Running::start(&mut as_unknown_user(&command)).answer().expect(125).envelope();
    assert_eq!(answer["error"]["code"], json!("env.no_home"), "{answer}");
    assert!(answer["error"]["hint"].as_str().unwrap().starts_with("set HOME"), "{answer}");
}
