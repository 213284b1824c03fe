//! Undo, redo and unapply, and the runs that stay in effect.

use serde_json::{Value, json};

use avfs_vault::backend::RunRecord;
use avfs_vault::run::Landing;

use crate::env::TestEnv;
use crate::runs::{land, land_on_work, read, run_word};
use crate::support;
use crate::support::fork;
use crate::support::landing::{Changes, record, run_id};

/// Creates the fork `work` with run 1, which adds `one`, and run 2, which adds `two`.
fn land_two_on_work(env: &TestEnv) {
    env.ok(&["fork", "create", "work", "--from", "main"]);
    for (n, path) in [(1, "one"), (2, "two")] {
        land_on_work(env, n, Changes::default().put(path, "new\n"));
    }
}

#[test]
fn undo_and_redo_name_the_version() {
    let env = TestEnv::with_project();
    env.ok(&["write", "README.md", "--text", "oops\n", "-m", "a mistake"]);
    let undone = env.result(&["undo"]);
    assert_eq!(undone["undone"]["message"], json!("a mistake"));
    assert!(undone["version"]["message"].as_str().unwrap().ends_with(": a mistake"));
    assert_eq!(env.ok(&["cat", "main", "README.md"]), "hello\n");
    let redone = env.result(&["redo", "main"]);
    assert_eq!(redone["redone"], undone["undone"]);
    assert_eq!(env.ok(&["cat", "main", "README.md"]), "oops\n");
    let refusal = env.refused(&["redo"], 1, "redo.nothing");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("avfs restore"), "{refusal}");
    env.ok(&["undo"]);
    env.ok(&["undo"]);
    assert_eq!(env.ok(&["ls", "main"]), "", "two steps back the fork was empty");
    env.refused(&["undo"], 1, "undo.nothing");
    env.ok(&["import"]);
    env.refused(&["redo"], 1, "redo.nothing");
    // Undo stops at the base of a fork and does not go into the history before it.
    env.ok(&["fork", "create", "f"]);
    env.refused(&["undo", "f"], 1, "undo.nothing");
    env.assert_sound();
}

#[test]
fn unapply_reverts_an_apply() {
    let env = TestEnv::with_project();
    env.refused(&["unapply"], 1, "unapply.nothing");
    land(&env, 1, &Changes::default().put("src/main.rs", "fn main() { run() }\n").put("new.txt", "new\n"));
    let original = read(&env, "src/main.rs");
    env.refused(&["unapply", "last"], 1, "unapply.nothing");
    env.refused(&["undo"], 1, "undo.not_kept");
    // A filter that matches nothing applies nothing, so there is nothing to unapply.
    env.ok(&["apply", "--include", "no-such-file"]);
    env.refused(&["unapply", "last"], 1, "unapply.nothing");
    env.ok(&["apply", "--include", "*.txt"]);
    assert!(env.ok(&["runs", "list"]).contains("(partly applied)"));
    assert_eq!(env.result(&["runs", "show", "last"])["in_directory"], json!("partly_applied"));
    let reported = env.ok(&["apply"]);
    assert!(reported.contains("avfs unapply"), "{reported}");
    assert!(env.ok(&["runs", "list"]).contains("(applied)"));
    let trial = env.result(&["unapply", "--dry-run"]);
    assert_eq!((&trial["dry_run"], &trial["change_counts"]["total"]), (&json!(true), &json!(2)));
    assert_eq!(read(&env, "new.txt").as_deref(), Some("new\n"));
    // A later change by the user is not lost.
    env.put("new.txt", b"mine\n");
    let refused = env.json(&["unapply"]);
    assert_eq!(refused["error"]["code"], json!("unapply.conflict"), "{refused}");
    assert_eq!(refused["result"]["conflicts"][0]["path"], json!("new.txt"), "{refused}");
    assert_eq!(read(&env, "new.txt").as_deref(), Some("mine\n"));
    env.put("new.txt", b"new\n");
    let reported = env.run(&["undo"]);
    assert!(reported.code == 0 && reported.stderr.contains(run_id(1).as_str()), "{reported:?}");
    assert_eq!((read(&env, "new.txt"), read(&env, "src/main.rs")), (None, original));
    assert!(env.ok(&["runs", "list"]).contains("(unapplied)"));
    env.ok(&["apply"]);
    assert_eq!(read(&env, "new.txt").as_deref(), Some("new\n"));
}

#[test]
fn undo_without_a_fork_reverts_the_newest_run() {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "work", "--from", "main"]);
    land_on_work(&env, 1, Changes::default().put("new.txt", "new\n"));
    let reported = env.result(&["undo"]);
    assert_eq!(reported["fork"], json!("work"), "{reported}");
    env.refused(&["cat", "work", "new.txt"], 1, "path.not_found");
}

#[test]
fn undo_of_a_run_undoes_the_newest_one_only() {
    let env = TestEnv::with_project();
    land_two_on_work(&env);
    env.refused(&["undo", &run_word(1)], 1, "undo.not_newest");
    env.ok(&["undo", "last"]);
    env.refused(&["cat", "work", "two"], 1, "path.not_found");
    // It is undone: now the run before it is the newest.
    env.refused(&["undo", "last"], 1, "undo.not_newest");
    let undone = env.run(&["undo"]);
    assert!(undone.code == 0 && undone.stderr.contains(run_id(1).as_str()), "{undone:?}");
    env.refused(&["cat", "work", "one"], 1, "path.not_found");
}

#[test]
fn unapply_of_a_fork_reverts_all_of_its_applies_or_none() {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "work", "--from", "main"]);
    let original = read(&env, "src/main.rs");
    land_on_work(&env, 1, Changes::default().put("src/main.rs", "one\n").put("first", "one\n"));
    env.ok(&["apply", "work"]);
    land_on_work(&env, 2, Changes::default().put("src/main.rs", "two\n").put("second", "two\n"));
    env.ok(&["apply", "work"]);
    let trial = env.result(&["unapply", "work", "--dry-run"]);
    let counts = &trial["change_counts"];
    assert_eq!(
        (&counts["modified"], &counts["deleted"], &counts["total"]),
        (&json!(1), &json!(2), &json!(3))
    );
    // The conflict is in the path of the older apply.
    env.put("first", b"mine\n");
    let refused = env.json(&["unapply", "work"]);
    assert_eq!(refused["error"]["code"], json!("unapply.conflict"), "{refused}");
    assert_eq!(refused["result"]["conflicts"][0]["path"], json!("first"), "{refused}");
    assert_eq!((&refused["result"]["runs"], &refused["result"]["changes"]), (&json!([]), &json!([])));
    assert_eq!(
        (read(&env, "src/main.rs").as_deref(), read(&env, "second").as_deref()),
        (Some("two\n"), Some("two\n"))
    );
    env.put("first", b"one\n");
    assert_eq!(env.result(&["unapply", "work"])["change_counts"], trial["change_counts"]);
    assert_eq!(
        (read(&env, "src/main.rs"), read(&env, "first"), read(&env, "second")),
        (original, None, None)
    );
}

#[test]
fn an_undone_run_is_not_marked_as_applied() {
    let env = TestEnv::with_project();
    land_two_on_work(&env);
    let state = |n| env.result(&["runs", "show", &run_word(n)])["in_directory"].take();
    env.ok(&["undo", "work"]);
    env.ok(&["apply", "work"]);
    assert_eq!((read(&env, "one").is_some(), read(&env, "two").is_some()), (true, false));
    assert_eq!((state(1), state(2)), (json!("applied"), Value::Null));
    env.ok(&["redo", "work"]);
    env.ok(&["apply", "work"]);
    assert!(read(&env, "two").is_some());
    assert_eq!(state(2), json!("applied"));
    // Undone, but still in the directory, until the fork is applied again.
    let shown = |n: u8| {
        let runs = env.result(&["runs", "list"])["runs"].take();
        let run = runs.as_array().unwrap().iter().find(|run| run["id"] == json!(run_id(n).as_str())).unwrap();
        (run["undone"].clone(), run["in_directory"].clone(), run["applied_at"].is_null())
    };
    env.ok(&["undo", "work"]);
    assert_eq!(shown(2), (json!(true), json!("applied"), false));
    assert!(env.ok(&["runs", "list"]).contains("(undone)  (applied)"));
    env.ok(&["apply", "work"]);
    assert!(read(&env, "two").is_none());
    assert_eq!(shown(2), (json!(true), json!("unapplied"), true));
    assert_eq!(shown(1), (json!(false), json!("applied"), false));
    assert!(env.ok(&["runs", "list"]).contains("work  (undone)  "));
    assert!(env.ok(&["runs", "show", &run_word(2)]).contains("undone     on fork work"));
    env.refused(&["unapply", &run_word(2)], 1, "unapply.nothing");
    let trial = env.result(&["unapply", "work", "--dry-run"]);
    assert_eq!((&trial["runs"], &trial["change_counts"]["total"]), (&json!([run_id(1).as_str()]), &json!(1)));
    // A run after it is applied on its own: the paths of the undone run are not compared.
    land_on_work(&env, 3, Changes::default().put("three", "new\n"));
    env.put("two", b"mine\n");
    env.ok(&["apply", "work"]);
    assert_eq!(shown(3), (json!(false), json!("applied"), false));
    std::fs::remove_file(env.project().join("two")).unwrap();
    let trial = env.result(&["unapply", "work", "--dry-run"]);
    assert_eq!(trial["change_counts"]["total"], json!(2), "{trial}");
    env.ok(&["unapply", "work"]);
    assert!(["one", "two", "three"].iter().all(|path| read(&env, path).is_none()));
}

#[test]
fn the_default_run_is_the_newest_one_in_effect() {
    let env = TestEnv::with_project();
    land_two_on_work(&env);
    let named = |words: &[&str]| {
        let reported = env.run(words);
        assert_eq!(reported.code, 0, "{reported:?}");
        // Then follow the earlier changes that are not included.
        let first = reported.stderr.lines().next().unwrap_or_default();
        [1, 2].into_iter().find(|n| first.contains(run_id(*n).as_str()))
    };
    for (undo, newest) in [(false, Some(2)), (true, Some(1))] {
        if undo {
            assert_eq!(named(&["undo"]), Some(2));
        }
        assert_eq!(named(&["diff"]), newest);
        assert_eq!(named(&["apply", "--dry-run"]), newest);
    }
    assert_eq!(named(&["undo"]), Some(1));
    for verb in ["diff", "apply"] {
        let refusal = env.refused(&[verb], 1, "run.not_found");
        let message = refusal["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("run {} was undone", run_id(2))), "{refusal}");
    }
    env.refused(&["undo"], 1, "undo.nothing");
    env.ok(&["redo"]);
    assert_eq!(named(&["diff"]), Some(1));
}

#[test]
fn redo_acts_on_the_fork_that_was_undone_last() {
    let env = TestEnv::with_project();
    land_two_on_work(&env);
    // The newest run is not on the fork.
    land(&env, 3, &Changes::default().put("three", "new\n"));
    env.refused(&["redo"], 1, "redo.nothing");
    env.ok(&["undo", "work"]);
    let redone = env.result(&["redo"]);
    assert_eq!(redone["fork"], json!("work"), "{redone}");
    assert_eq!(env.ok(&["cat", "work", "two"]), "new\n");
}

#[test]
fn undo_and_discard_of_a_run_without_changes_say_so() {
    let env = TestEnv::with_project();
    land_two_on_work(&env);
    let vault = support::open_vault(&env.vault_file());
    let request = r#"{"command":["true"],"retention":"discard"}"#.to_owned();
    Changes::default()
        .land(&vault, Landing::RecordOnly, RunRecord { request, ..record(3, &fork("run-3")) })
        .unwrap();
    // The policy dropped the changes of this one.
    let result = r#"{"timed_out":false,"classification_violated":true}"#.to_owned();
    Changes::default()
        .land(&vault, Landing::RecordOnly, RunRecord { result, ..record(4, &fork("run-4")) })
        .unwrap();
    Changes::default().land(&vault, Landing::RecordOnly, record(5, &fork("work"))).unwrap();
    drop(vault);
    for (word, why) in
        [("last", "changed nothing"), ("last~1", "kept no changes"), ("last~2", "kept no changes")]
    {
        for verb in ["undo", "discard"] {
            let refusal = env.refused(&[verb, word], 1, "run.no_version");
            let message = refusal["error"]["message"].as_str().unwrap();
            assert!(message.ends_with(&format!("{why}; there is nothing to {verb}")), "{refusal}");
        }
    }
}
