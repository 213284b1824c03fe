//! A fork of a fork: the changes that it was made on top of are not applied with it, and the ones that the directory
//! lacks are named.

use serde_json::{Value, json};

use crate::env::TestEnv;

/// A project in which `task-1` changed `README.md` and added `made`.
fn with_task() -> TestEnv {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "task-1"], "echo one > README.md; echo made > made").expect(0);
    env
}

/// The run that made the head of a fork.
fn run_of(env: &TestEnv, reference: &str) -> String {
    let shown = env.avfs_result(&["show", reference]);
    shown["version"]["run"].as_str().unwrap().to_owned()
}

/// The fork, the number of changes and the message of each note in an answer of `avfs`.
fn inherited(result: &Value) -> Vec<(String, u64, String)> {
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or("-").to_owned();
    let all = result["inherited"].as_array().unwrap().iter();
    all.map(|of| (text(of, "fork"), of["changes"].as_u64().unwrap(), text(of, "message"))).collect()
}

fn named(fork: &str, changes: u64, message: &str) -> (String, u64, String) {
    (fork.to_owned(), changes, message.to_owned())
}

const FIRST: &str = "2 changes of task-1 are not included; apply task-1 first";

#[test]
fn missing_changes_of_the_parent_fork_are_named_until_it_is_applied() {
    let env = with_task();
    env.shell(&["--fork", "task-2", "--from", "task-1"], "echo two > other").expect(0);
    let verbs: [&[&str]; 3] =
        [&["apply", "task-2", "--dry-run"], &["diff", "task-2"], &["status", "--fork", "task-2"]];
    for words in verbs {
        let answer = env.avfs(words).expect(0);
        assert!(answer.stderr.contains(&format!("note: {FIRST}\n")), "{answer:?}");
        assert_eq!(inherited(&env.avfs_result(words)), [named("task-1", 2, FIRST)], "{words:?}");
    }
    // Only for the paths that are asked for.
    for words in
        [&["apply", "task-2", "--dry-run", "--include", "o*"][..], &["diff", "task-2", "--", "other"]]
    {
        assert_eq!(inherited(&env.avfs_result(words)), [], "{words:?}");
    }
    let applied = env.avfs(&["apply", "task-2"]).expect(0);
    assert!(applied.stderr.contains(FIRST), "{applied:?}");
    env.avfs(&["apply", "task-1"]).expect(0);
    // A later edit of an applied file is no missing change.
    env.put("README.md", b"one, edited\n");
    for words in verbs {
        let answer = env.avfs(words).expect(0);
        assert!(!answer.stderr.contains("not included"), "{answer:?}");
        assert_eq!(inherited(&env.avfs_result(words)), [], "{words:?}");
    }
    env.avfs(&["unapply", "task-2"]).expect(0);
    assert_eq!(inherited(&env.avfs_result(&["apply", "task-2"])), []);
}

#[test]
fn a_conflict_that_a_missing_change_causes_names_it() {
    let env = with_task();
    env.shell(&["--fork", "task-1"], "mkdir new; echo n > new/n").expect(0);
    env.shell(&["--fork", "task-2", "--from", "task-1"], "echo two > README.md; echo x > new/x").expect(0);
    let refused = env.avfs(&["apply", "task-2"]).expect(1);
    for text in [
        "lacks the changes that these are based on; nothing was written: \
         README.md (the directory lacks a change of task-1), new (the directory lacks a change of task-1)",
        "hint: apply task-1 first: avfs apply task-1\n",
    ] {
        assert!(refused.stderr.contains(text), "{refused:?}");
    }
    let answer = env.avfs(&["--json", "apply", "task-2"]).expect(1).envelope();
    assert_eq!(answer["error"]["code"], json!("apply.conflict"));
    assert_eq!(answer["result"]["conflicts"][0]["reason"], json!("the directory lacks a change of task-1"));
    assert_eq!(answer["result"]["inherited"][0]["changes"], json!(2));
    // A change of the directory itself is a conflict as before.
    env.put("README.md", b"edited\n");
    let refused = env.avfs(&["apply", "task-2"]).expect(1);
    assert!(refused.stderr.contains("README.md (it was changed)"), "{refused:?}");
    assert!(refused.stderr.contains("conflict with newer changes in"), "{refused:?}");
    env.put("README.md", b"hello\n");
    env.avfs(&["apply", "task-1"]).expect(0);
    env.avfs(&["apply", "task-2"]).expect(0);
    assert_eq!(std::fs::read_to_string(env.project().join("README.md")).unwrap(), "two\n");
    assert_eq!(std::fs::read_to_string(env.project().join("new/x")).unwrap(), "x\n");
}

#[test]
fn the_remedy_for_an_older_version_is_its_runs() {
    let env = with_task();
    env.shell(&["--fork", "task-1"], "echo later > later").expect(0);
    env.shell(&["--fork", "try", "--from", "task-1~1"], "echo try > try").expect(0);
    let run = run_of(&env, "task-1~1");
    let message = format!("2 changes of task-1 are not included; apply run:{run} first");
    assert_eq!(inherited(&env.avfs_result(&["diff", "try"])), [named("task-1", 2, &message)]);
    env.avfs(&["apply", &format!("run:{run}")]).expect(0);
    assert_eq!(inherited(&env.avfs_result(&["apply", "try"])), []);
    assert!(!env.project().join("later").exists());
}

#[test]
fn a_discarded_run_is_no_remedy() {
    for words in [&["discard", "--all", "--yes"][..], &["discard", "RUN"]] {
        let env = TestEnv::with_project();
        env.shell(&[], "echo one > README.md; echo made > made").expect(0);
        let run = env.avfs_result(&["runs", "list"])["runs"][0]["id"].as_str().unwrap().to_owned();
        let reference = format!("run:{run}");
        env.shell(&["--fork", "try", "--from", &reference], "echo try > README.md").expect(0);
        let message = |words: &[&str]| inherited(&env.avfs_result(words)).pop().unwrap().2;
        // Control.
        assert!(message(&["diff", "try"]).ends_with(&format!("apply run-{run} first")));
        env.avfs(
            &words.iter().map(|word| if *word == "RUN" { &reference } else { *word }).collect::<Vec<_>>(),
        )
        .expect(0);
        env.avfs(&["apply", &reference]).expect(1);
        let text = message(&["diff", "try"]);
        assert!(text.contains("; they are between versions"), "{text}");
        let refused = env.avfs(&["apply", "try"]).expect(1);
        assert!(!refused.stderr.contains(&format!("apply {reference}")), "{refused:?}");
    }
}

#[test]
fn four_runs_of_an_older_version_are_written_with_a_fork_for_all_of_them() {
    let env = TestEnv::with_project();
    for n in 0..4 {
        env.shell(&["--fork", "long"], &format!("echo {n} > README.md; echo {n} > n{n}")).expect(0);
    }
    env.shell(&["--fork", "long"], "echo end > end").expect(0);
    env.shell(&["--fork", "back", "--from", "long~1"], "echo back > README.md").expect(0);
    let refused = env.avfs(&["apply", "back"]).expect(1);
    let hint = refused.stderr.split("hint: write all of them together: ").nth(1);
    let commands = hint.unwrap_or_else(|| panic!("{refused:?}")).trim_end().replace("NAME", "all");
    for command in commands.split(" && ") {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        env.avfs(&words).expect(0);
    }
    assert_eq!(std::fs::read_to_string(env.project().join("README.md")).unwrap(), "back\n");
    assert_eq!(std::fs::read_to_string(env.project().join("n3")).unwrap(), "3\n");
    assert!(!env.project().join("end").exists());
}

#[test]
fn changes_of_several_forks_are_named_oldest_first() {
    let env = with_task();
    env.shell(&["--fork", "task-2", "--from", "task-1"], "echo 2 > made; echo two > two").expect(0);
    env.shell(&["--fork", "task-3", "--from", "task-2"], "echo three > three").expect(0);
    let second = |changes, text: &str| named("task-2", changes, text);
    let two = "2 changes of task-2 are not included; apply task-2 first";
    assert_eq!(inherited(&env.avfs_result(&["diff", "task-3"])), [named("task-1", 2, FIRST), second(2, two)]);
    env.avfs(&["apply", "task-1"]).expect(0);
    assert_eq!(inherited(&env.avfs_result(&["diff", "task-3"])), [second(2, two)]);
    // Without its fork, the run still has the changes.
    let run = run_of(&env, "task-2");
    env.avfs(&["fork", "delete", "task-2"]).expect(0);
    let alone = format!("2 changes of task-2 are not included; apply run:{run} first");
    assert_eq!(inherited(&env.avfs_result(&["diff", "task-3"])), [second(2, &alone)]);
    env.avfs(&["apply", &format!("run:{run}")]).expect(0);
    assert_eq!(inherited(&env.avfs_result(&["apply", "task-3"])), []);
}

#[test]
fn a_run_from_a_fork_and_a_later_run_of_a_fork_name_what_they_lack() {
    let env = with_task();
    env.shell(&["--from", "task-1"], "echo two > two").expect(0);
    for words in [&["diff", "last"][..], &["diff"], &["apply", "last", "--dry-run"], &["apply", "--dry-run"]]
    {
        assert_eq!(inherited(&env.avfs_result(words)), [named("task-1", 2, FIRST)], "{words:?}");
    }
    let mut applying =
        env.command(&["--json", "--from", "task-1", "--apply", "--shell", "echo three > three"]);
    let answer = crate::env::Running::start(&mut applying).answer().expect(0).envelope();
    let notes = answer["result"]["notes"].as_array().unwrap();
    assert!(notes.contains(&json!({"code": "apply.inherited", "text": FIRST})), "{notes:?}");

    let run = run_of(&env, "task-1");
    env.shell(&["--fork", "task-1"], "echo four > four").expect(0);
    let earlier = format!("2 changes of task-1 are not included; apply run:{run} first");
    assert_eq!(inherited(&env.avfs_result(&["apply", "last", "--dry-run"])), [named("task-1", 2, &earlier)]);
    assert_eq!(
        inherited(&env.avfs_result(&["diff", "last"])),
        [],
        "the diff of one run is a part of its fork"
    );
    assert_eq!(inherited(&env.avfs_result(&["apply", "task-1"])), []);
}

#[test]
fn a_synced_fork_has_the_inherited_changes_as_its_own() {
    let env = with_task();
    env.shell(&["--fork", "task-2", "--from", "task-1"], "echo two > two").expect(0);
    env.put("src/main.rs", b"fn main() { }\n");
    env.avfs(&["sync", "task-2"]).expect(0);
    let applied = env.avfs_result(&["apply", "task-2", "--dry-run"]);
    assert_eq!((inherited(&applied), &applied["change_counts"]["added"]), (vec![], &json!(2)));
    // What a sync brought from the directory is no change of the fork.
    env.shell(&["--fork", "task-3", "--from", "task-2"], "echo three > three").expect(0);
    let message = "3 changes of task-2 are not included; apply task-2 first";
    assert_eq!(inherited(&env.avfs_result(&["diff", "task-3"])), [named("task-2", 3, message)]);
    env.avfs(&["apply", "task-2"]).expect(0);
    assert_eq!(inherited(&env.avfs_result(&["apply", "task-3"])), []);
}

#[test]
fn forks_of_the_directory_and_of_unbound_vaults_inherit_nothing() {
    let env = with_task();
    env.put("README.md", b"changed\n");
    env.avfs(&["import"]).expect(0);
    env.shell(&["--fork", "old", "--from", "main~1"], "echo old > old").expect(0);
    for words in
        [&["apply", "task-1", "--dry-run", "--exclude", "README.md"][..], &["apply", "old"], &["diff", "old"]]
    {
        assert_eq!(inherited(&env.avfs_result(words)), [], "{words:?}");
    }
    // A copy elsewhere is not bound to a directory.
    let copy = env.at("copy.db");
    env.avfs(&["vault", "copy", copy.to_str().unwrap()]).expect(0);
    let vault = ["--vault", copy.to_str().unwrap()];
    env.shell(&[&vault[..], &["--fork", "task-2", "--from", "task-1"]].concat(), "echo 2 > 2").expect(0);
    assert_eq!(inherited(&env.avfs_result(&[&vault[..], &["diff", "task-2"]].concat())), []);
}

#[test]
fn the_joined_results_of_a_batch_are_named_one_by_one() {
    let env = TestEnv::with_project();
    let item = |id: &str, line: &str, needs: &[&str]| {
        json!({ "id": id, "command": line, "needs": needs }).to_string()
    };
    let items = [
        item("a", "echo a > a", &[]),
        item("b", "echo b > b; echo b > bb", &[]),
        item("c", "echo c > c", &["a", "b"]),
        item("d", "echo d > d", &["c"]),
    ];
    env.put("list.jsonl", (items.join("\n") + "\n").as_bytes());
    env.avfs(&["batch", "list.jsonl", "--results", "results.jsonl", "--jobs", "1"]).expect(0);
    let results = std::fs::read_to_string(env.project().join("results.jsonl")).unwrap();
    let results: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str, key: &str| {
        let result = results.iter().find(|result| result["id"] == json!(id)).unwrap();
        result[key].as_str().unwrap().to_owned()
    };
    let missing = || -> Vec<(String, u64)> {
        let found = inherited(&env.avfs_result(&["apply", &of("d", "fork"), "--dry-run"]));
        let with_remedy = found.iter().all(|(fork, _, text)| text.ends_with(" first") && text.contains(fork));
        assert!(with_remedy, "{found:?}");
        let mut found: Vec<_> = found.into_iter().map(|(fork, count, _)| (fork, count)).collect();
        found.sort();
        found
    };
    let mut wanted = vec![(of("a", "fork"), 1), (of("b", "fork"), 2), (of("c", "fork"), 1)];
    wanted.sort();
    assert_eq!(missing(), wanted);
    env.avfs(&["apply", &of("b", "fork")]).expect(0);
    wanted.retain(|(fork, _)| *fork != of("b", "fork"));
    assert_eq!(missing(), wanted);
    for id in ["a", "c"] {
        env.avfs(&["apply", &format!("run:{}", of(id, "run_id"))]).expect(0);
    }
    assert_eq!(missing(), []);
}
