//! What people read: hints of usage errors, the summary of a run, and the list of batches.

use serde_json::{Value, json};

use crate::env::TestEnv;

#[test]
fn options_of_other_tools_are_answered_with_the_option_that_was_meant() {
    let env = TestEnv::with_project();
    env.put("list.txt", b"true\n");
    for (options, hint) in [
        (&["--net", "github.com"][..], "--net allow=github.com"),
        (&["--net=*.npmjs.org,10.0.0.0/8:5432"], "--net allow=*.npmjs.org,10.0.0.0/8:5432"),
        (&["--network", "host"], "--net host"),
        (&["--network=github.com"], "--net allow=github.com"),
        (&["--profile", "agent"], "--policy agent"),
        (&["--policy", "strict"], "--profile strict"),
    ] {
        let hint = format!("did you mean: {hint}");
        let run = env.run(&[options, &["--", "true"]].concat()).expect(125);
        assert!(run.stderr.ends_with(&format!("\nhint: {hint}\n")), "{run:?}");
        let json = env.run(&[&["--json"], options, &["--", "true"]].concat()).expect(125).envelope();
        assert_eq!(json["error"]["hint"], json!(hint), "{json}");
        let batch = env.avfs(&[&["batch", "list.txt"], options].concat()).expect(2);
        assert!(batch.stderr.ends_with(&format!("\nhint: {hint}\n")), "{batch:?}");
        let json = env.avfs(&[&["--json", "batch", "list.txt"], options].concat()).expect(2).envelope();
        assert_eq!(json["error"]["hint"], json!(hint), "{json}");
    }
    let line = env.run(&["-c", "ls | wc -l"]).expect(125);
    assert!(line.stderr.ends_with("\nhint: did you mean: --shell LINE\n"), "{line:?}");
    let line = env.avfs(&["policy", "check", "-c", "ls"]).expect(2);
    assert!(line.stderr.ends_with("\nhint: did you mean: --shell LINE\n"), "{line:?}");
}

/// clap's advice leads to a command of that name.
#[test]
fn no_usage_error_advises_to_pass_an_option_as_an_argument() {
    let env = TestEnv::with_project();
    for words in
        [&["apply", "--forse"][..], &["fork", "delete", "--force1", "x"], &["-x"], &["log", "--limt", "3"]]
    {
        let refused = env.avfs(words).expect(2);
        assert!(!refused.stderr.contains("as a value") && !refused.stderr.contains("\n\n\n"), "{refused:?}");
    }
    let refused = env.run(&["--netw", "host", "--", "true"]).expect(125);
    assert!(!refused.stderr.contains("as a value"), "{refused:?}");
    assert!(refused.stderr.contains("tip: a similar argument exists: '--net'"), "{refused:?}");
}

#[test]
fn directories_that_persist_are_not_in_the_summary() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("config/avfs/avfs.toml"), "[cache]\ndirs = ['target', '~/.npm']\n").unwrap();
    let line = "mkdir -p target; echo x > target/x; mkfifo pipe; python3 -c \"import socket; \
                socket.socket(socket.AF_UNIX).bind('socket')\"";
    let summary = env.shell(&[], line).expect(0).stderr;
    assert!(!summary.contains("target") && summary.contains("not kept: socket: "), "{summary}");
    assert_eq!(env.shell(&[], "cat target/x").expect(0).stderr, "");
    // JSON has them.
    let envelope = env.json(&[], "true");
    assert_eq!(envelope["result"]["left_out"][0]["path"], json!("target"), "{envelope}");
    // Something else that the request mounts in the workspace is still named.
    let summary = env.shell(&["--tmpfs", "scratch"], "echo x > scratch/x").expect(0).stderr;
    assert!(summary.contains("not kept: scratch: it is not part of the workspace\n"), "{summary}");
}

#[test]
fn a_batch_whose_items_all_ran_is_not_called_unfinished() {
    let env = TestEnv::with_project();
    env.put("good.txt", b"true\n");
    env.put("bad.txt", b"true\nfalse\n");
    env.put("stopped.txt", b"false\ntrue\n");
    env.avfs(&["batch", "good.txt"]).expect(0);
    env.avfs(&["batch", "bad.txt", "--mode", "fan-out", "--keep-going"]).expect(1);
    env.avfs(&["batch", "stopped.txt"]).expect(1);
    let listed = env.avfs(&["batch", "--list"]).expect(0).text();
    let words = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[words.len() - 3].to_owned(), words[words.len() - 1].to_owned())
    };
    let states: Vec<_> = listed.lines().map(words).collect();
    let named = |state: &str, list: &str| (state.to_owned(), list.to_owned());
    assert_eq!(
        states,
        [named("unfinished", "stopped.txt"), named("failed", "bad.txt"), named("ended", "good.txt")],
        "{listed}"
    );
    // Both can still be resumed.
    let json = env.avfs_result(&["batch", "--list"]);
    let ended = |at: usize| json["batches"][at]["ended_at"].is_string();
    assert_eq!([ended(0), ended(1), ended(2)], [false, false, true], "{json}");
}

#[test]
fn processes_that_a_command_leaves_running_are_noted() {
    let env = TestEnv::with_project();
    let notes = |options: &[&str], line: &str| {
        let envelope = env.json(options, line);
        let notes = envelope["result"]["notes"].as_array().unwrap().clone();
        let of_code = notes.into_iter().filter(|note| note["code"] == json!("processes.killed"));
        of_code.map(|note| note["text"].clone()).collect::<Vec<Value>>()
    };
    let ends = "killed at its end; start and use a background process in one command";
    assert_eq!(
        notes(&[], "sleep 1000 & echo hi"),
        [json!(format!("1 process that the command left running was {ends}"))]
    );
    assert_eq!(
        notes(&["--fork", "f"], "(setsid sleep 1000 &) ; sleep 1000 & exit 3"),
        [json!(format!("2 processes that the command left running were {ends}"))]
    );
    for line in ["true", "sleep 0 & wait", "echo x | cat", "kill -KILL $$", "sh -c 'kill -KILL $$'; true"] {
        assert_eq!(notes(&[], line), [] as [Value; 0], "{line}");
    }
    // A run that is ended from outside ends all processes.
    assert_eq!(notes(&["--timeout", "100ms", "--grace", "0s"], "sleep 1000 & sleep 1000"), [] as [Value; 0]);
    let summary = env.shell(&[], "sleep 1000 &").expect(0).stderr;
    assert!(summary.contains("avfs-run: note: 1 process that the command left running"), "{summary}");
}
