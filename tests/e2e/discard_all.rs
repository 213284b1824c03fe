//! `avfs discard --all`: every run that is not applied.

use std::path::Path;

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs};
use crate::person::PERSON;

fn forks(env: &TestEnv) -> Vec<String> {
    let list = env.avfs_result(&["fork", "list"]);
    let names = list["forks"].as_array().unwrap().iter();
    names.map(|fork| fork["name"].as_str().unwrap().to_owned()).collect()
}

fn run_id(answer: &Value) -> String {
    answer["result"]["run_id"].as_str().unwrap().to_owned()
}

/// A project with two runs that are not applied.
fn with_two_runs() -> (TestEnv, Vec<String>) {
    let env = TestEnv::with_project();
    let ids = ["one", "two"].map(|name| run_id(&env.json(&[], &format!("echo {name} > {name}"))));
    (env, ids.to_vec())
}

#[test]
fn all_unapplied_runs_are_discarded_and_nothing_else() {
    let (env, ids) = with_two_runs();
    let applied = run_id(&env.json(&[], "echo applied > applied"));
    let partly = run_id(&env.json(&[], "echo p > p; echo q > q"));
    let labelled = run_id(&env.json(&[], "echo labelled > labelled"));
    env.json(&["--fork", "task"], "echo task > task");
    env.json(&[], "true");
    env.avfs(&["fork", "create", "by-hand", "--expires", "7d"]).expect(0);
    env.json(&["--fork", "by-hand"], "echo by-hand > by-hand");
    env.avfs(&["apply", &applied]).expect(0);
    env.avfs(&["apply", &partly, "--include", "p"]).expect(0);
    env.avfs(&["checkpoint", "save", "good", "--fork", &format!("run-{labelled}")]).expect(0);
    let before = forks(&env);

    // Without a terminal nobody can be asked.
    let refused = env.avfs(&["--json", "discard", "--all"]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], json!("discard.not_confirmed"), "{refused}");
    let refused = env.avfs(&["discard", "--all"]).expect(1);
    assert!(
        refused.stderr.contains("the changes of 3 runs would be discarded\nhint: confirm with: --yes"),
        "{refused:?}"
    );
    assert_eq!(forks(&env), before);

    let answer = env.avfs(&["--json", "discard", "--all", "--yes"]).expect(0).envelope();
    let runs = answer["result"]["runs"].as_array().unwrap();
    let found: Vec<&str> = runs.iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(found, ids);
    assert!(runs.iter().all(|run| run["discarded_at"].is_string()), "{answer}");
    let kept = ["main", "task", "by-hand"].map(str::to_owned);
    let of_runs = [&applied, &partly, &labelled].map(|id| format!("run-{id}"));
    let mut kept: Vec<String> = kept.into_iter().chain(of_runs).collect();
    let mut left = forks(&env);
    kept.sort();
    left.sort();
    assert_eq!(left, kept);
    let again = env.avfs(&["discard", "--all", "--yes"]).expect(0);
    assert_eq!(again.text(), "no run to discard\n");
    assert!(again.stderr.contains(&format!("note: kept fork run-{labelled}: ")), "{again:?}");
    for words in [&["discard"][..], &["discard", "last", "--all"], &["discard", "last", "--yes"]] {
        env.avfs(words).expect(2);
    }
    env.assert_sound();
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let (env, _) = with_two_runs();
    let before = forks(&env);
    for (typed, code, left) in [("n", 1, 3), ("", 1, 3), ("yes", 0, 1)] {
        let script = format!("wait_for(b'2 runs? [y/N] '); send(b'{typed}\\n')");
        let mut command = env.clean(Path::new("python3"));
        command.args(["-c", PERSON, &script]).arg(avfs()).args(["discard", "--all"]).env("TERM", "xterm");
        let screen = Running::start(&mut command).answer().expect(0).text();
        assert!(screen.ends_with(&format!("code {code}\n")), "{screen}");
        assert_eq!(forks(&env).len(), left, "{screen}");
    }
    assert_eq!(before.len(), 3);
}
