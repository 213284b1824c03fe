//! Verbs for runs that have ended: list, show, apply, discard.

use serde_json::{Value, json};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ApprovalId, ForkName, RequestDigest};
use avfs_vault::approval::Question;
use avfs_vault::backend::{Life, RunRecord, RunState};
use avfs_vault::run::{AuditTexts, Landing};

use crate::env::{Answer, TestEnv};
use crate::support;
use crate::support::landing::{Changes, record, run_id};
use crate::support::{fork, main_fork};

/// Records a run that waits for approval; the number determines its id.
pub fn ask(env: &TestEnv, n: u8) {
    let vault = support::open_vault(&env.vault_file());
    let question = Question {
        id: ApprovalId::from_random([n; 5]),
        digest: RequestDigest([n; 32]),
        reason: "because".to_owned(),
        expires_seconds: 1_000_000_000,
    };
    let run = RunRecord { state: RunState::ApprovalRequired, ..record(n, &main_fork()) };
    vault.ask_approval(&question, &run, AuditTexts::default()).unwrap();
}

/// Lands a run on its own fork, as a run without --fork does.
pub fn land(env: &TestEnv, n: u8, changes: &Changes) -> ForkName {
    let vault = support::open_vault(&env.vault_file());
    let base = vault.fork(&main_fork()).unwrap().head;
    let name = fork(&format!("run-{}", run_id(n)));
    let life = Life::Ephemeral { expires_at: vault.now().plus_seconds(1000) };
    let row = RunRecord {
        started_at: vault.now(),
        ended_at: Some(vault.now()),
        request: r#"{"command":["make","test"],"command_mode":"argv"}"#.to_owned(),
        result: r#"{"usage":{"user_ms":12},"stdout_digest":"00"}"#.to_owned(),
        ..record(n, &name)
    };
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life };
    changes.land(&vault, landing, row).unwrap();
    name
}

/// Lands changes on the fork `work` as a run that takes no time.
pub fn land_on_work(env: &TestEnv, n: u8, changes: Changes) {
    let vault = support::open_vault(&env.vault_file());
    let base = vault.fork(&fork("work")).unwrap().head;
    let landing = Landing::Fork { name: &fork("work"), base };
    let row = RunRecord { started_at: vault.now(), ended_at: Some(vault.now()), ..record(n, &fork("work")) };
    changes.land(&vault, landing, row).unwrap();
}

pub fn read(env: &TestEnv, path: &str) -> Option<String> {
    std::fs::read_to_string(env.project().join(path)).ok()
}

pub fn run_word(n: u8) -> String {
    format!("run:{}", run_id(n))
}

#[test]
fn run_is_listed_shown_applied_and_discarded() {
    let env = TestEnv::with_project();
    assert_eq!(env.ok(&["runs", "list"]), "");
    let changes = Changes::default().put("src/main.rs", "fn main() { run() }\n").put("new.txt", "new\n");
    let changes = changes.remove("src/data.bin");
    let name = land(&env, 1, &changes);
    let id = run_id(1).to_string();

    let listed = env.ok(&["runs", "list"]);
    assert!(listed.contains(&id) && listed.contains("exit 0") && listed.contains("make test"), "{listed}");
    let row = env.result(&["runs", "list"])["runs"][0].clone();
    assert_eq!((&row["id"], &row["state"]), (&json!(id), &json!("completed")));
    assert_eq!(row["command"], json!(["make", "test"]));
    assert_eq!(env.result(&["runs", "list", "--fork", "main"])["runs"], json!([]));
    for (fork, known) in [("main", true), ("nosuch", false)] {
        let reported = env.run(&["runs", "list", "--fork", fork]);
        assert_eq!((reported.code, reported.stdout.as_str()), (0, ""), "{reported:?}");
        assert_eq!(reported.stderr.contains("there is no fork"), !known, "{reported:?}");
    }
    assert!(env.run(&["audit", "list", "--fork", "nosuch"]).stderr.contains("there is no fork nosuch"));
    let reported = env.run(&["runs", "list", "--limit", "0"]).stderr;
    assert!(reported.contains("older runs") && !reported.contains("no runs"), "{reported}");

    let shown = env.result(&["runs", "show", &id[..4]]);
    assert_eq!(shown["result"]["usage"]["user_ms"], json!(12));
    assert_eq!(shown["change_counts"]["total"], json!(3));
    let text = env.ok(&["runs", "show", &run_word(1)]);
    for part in ["make test", "decision   allow", "1 added, 1 modified, 1 deleted", name.as_str()] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(env.ok(&["cat", &run_word(1), "new.txt"]), "new\n");
    assert!(env.ok(&["diff", "main", &run_word(1)]).contains("new.txt"));

    let trial = env.result(&["apply", &run_word(1), "--dry-run"]);
    assert_eq!((&trial["dry_run"], &trial["change_counts"]["total"]), (&json!(true), &json!(3)));
    assert_eq!(read(&env, "new.txt"), None, "a dry run writes nothing");
    let reported = env.ok(&["apply", &run_word(1), "--include", "nosuch"]);
    assert!(
        reported.starts_with("nothing to apply")
            && reported.contains("left out")
            && !reported.contains("applied to"),
        "{reported}"
    );
    let reported = env.ok(&["apply", &run_word(1)]);
    assert!(reported.contains("1 added, 1 modified, 1 deleted"), "{reported}");
    assert_eq!(read(&env, "new.txt").as_deref(), Some("new\n"));
    assert_eq!(read(&env, "src/main.rs").as_deref(), Some("fn main() { run() }\n"));
    assert!(!env.project().join("src/data.bin").exists());
    assert!(env.ok(&["runs", "list"]).contains("(applied)"));
    let shown = env.ok(&["runs", "show", &run_word(1)]);
    let applied = shown.lines().find(|line| line.starts_with("applied    ")).unwrap();
    assert!(applied.ends_with(&format!("avfs unapply {id}")), "{shown}");
    // Again, and by the name of the fork: nothing is left to apply.
    let reported = env.ok(&["apply", &run_word(1)]);
    assert!(reported.starts_with("already up to date") && reported.lines().count() == 1, "{reported}");
    assert_eq!(env.result(&["apply", name.as_str()])["change_counts"]["total"], json!(0));
    env.ok(&["import"]);
    assert_eq!(env.result(&["diff", "main", &run_word(1)])["changes"], json!([]));

    assert!(env.ok(&["discard", &run_word(1)]).contains(name.as_str()));
    env.refused(&["apply", &run_word(1)], 1, "run.no_version");
    env.refused(&["apply", name.as_str()], 1, "fork.not_found");
    // An apply can be reverted, so its versions are kept.
    env.ok(&["gc"]);
    assert!(env.ok(&["ls", &run_word(1)]).contains("new.txt"));
    env.ok(&["unapply", &run_word(1)]);
    env.ok(&["gc"]);
    env.refused(&["ls", &run_word(1)], 1, "run.no_version");
    let shown = env.result(&["runs", "show", &id]);
    assert!(shown["discarded_at"].is_string() && shown["changes"].is_null(), "{shown}");
    assert!(env.ok(&["runs", "show", &id]).contains("no longer kept"));
    env.assert_sound();
}

#[test]
fn apply_conflict_names_every_changed_path_and_writes_nothing() {
    let env = TestEnv::with_project();
    let changes =
        Changes::default().put("README.md", "run\n").put("src/main.rs", "run\n").put("new", "run\n");
    land(&env, 1, &changes);
    env.put("README.md", b"mine\n");
    env.put("new", b"mine\n");
    let before = env.state();
    let refusal = env.refused(&["apply", &run_word(1)], 1, "apply.conflict");
    let message = refusal["error"]["message"].as_str().unwrap();
    assert!(message.contains("README.md (it was changed)") && message.contains("new ("), "{message}");
    let named: Vec<&Value> =
        refusal["result"]["conflicts"].as_array().unwrap().iter().map(|conflict| &conflict["path"]).collect();
    assert_eq!(named, [&json!("README.md"), &json!("new")]);
    env.refused(&["apply", &run_word(1), "--dry-run"], 1, "apply.conflict");
    assert_eq!(read(&env, "src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(env.state(), before);
    // The other paths can be applied.
    let some = env.result(&["apply", &run_word(1), "--exclude", "README.md", "--exclude", "new"]);
    assert_eq!(some["left_out"], json!(2));
    assert_eq!(read(&env, "src/main.rs").as_deref(), Some("run\n"));
    assert_eq!(read(&env, "README.md").as_deref(), Some("mine\n"));
    assert!(
        env.result(&["runs", "show", run_id(1).as_str()])["applied_at"].is_null(),
        "not all of it is applied"
    );
    env.refused(&["apply", &run_word(1), "--include", "["], 1, "apply.bad_pattern");
}

#[test]
fn fork_edited_in_the_vault_can_be_applied() {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "fix"]);
    env.ok(&["write", "notes/idea.txt", "--text", "an idea\n", "--fork", "fix"]);
    env.ok(&["mv", "README.md", "READ.md", "--fork", "fix"]);
    env.ok(&["apply", "fix"]);
    assert_eq!(read(&env, "notes/idea.txt").as_deref(), Some("an idea\n"));
    assert_eq!((read(&env, "README.md"), read(&env, "READ.md").as_deref()), (None, Some("hello\n")));
    let log = env.ok(&["audit", "list", "--limit", "1"]);
    assert!(log.contains("run.apply") && log.contains("fix"), "{log}");
}

#[test]
fn invalid_run_references_are_refused() {
    let env = TestEnv::with_project();
    land(&env, 1, &Changes::default().put("x", "x"));
    env.ok(&["fork", "create", "kept"]);
    let before = env.state();
    env.refused(&["runs", "show", "zz"], 2, "ref.invalid");
    env.refused(&["runs", "show", "010"], 2, "ref.invalid");
    env.refused(&["runs", "show", "ffff"], 1, "run.not_found");
    env.refused(&["apply", "run:ffff"], 1, "run.not_found");
    env.refused(&["apply", "run:zz"], 2, "ref.invalid");
    env.refused(&["apply", "a b"], 2, "ref.invalid");
    env.refused(&["apply", "nope"], 1, "fork.not_found");
    env.refused(&["discard", "main"], 1, "fork.persistent");
    let refusal = env.refused(&["discard", "kept"], 1, "fork.persistent");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("avfs fork delete kept"), "{refusal}");
    env.refused(&["discard", "nope"], 1, "fork.not_found");
    env.refused(&["discard", "run:ffff"], 1, "run.not_found");
    env.refused(&["undo", "nope"], 1, "fork.not_found");
    assert_eq!(env.state(), before);
    let vault = support::open_vault(&env.vault_file());
    for (n, state) in [(2, RunState::Completed), (3, RunState::Failed)] {
        let row = RunRecord { state, exit_code: None, signal: Some(9), ..record(n, &main_fork()) };
        Changes::default().land(&vault, Landing::RecordOnly, row).unwrap();
    }
    drop(vault);
    env.refused(&["discard", &run_word(2)], 1, "run.no_version");
    env.refused(&["apply", &run_word(3)], 1, "run.no_version");
    assert!(env.ok(&["runs", "list", "--limit", "1"]).contains("  failed  "));
    assert!(env.ok(&["runs", "list"]).contains("signal 9"));
    assert!(env.ok(&["runs", "show", &run_word(3)["run:".len()..]]).contains("failed, signal 9"));
    assert_eq!(env.result(&["runs", "list", "--limit", "1"])["more"], json!(true));
}

#[test]
fn apply_requires_a_bound_vault() {
    let env = TestEnv::new();
    drop(support::create_real_vault(&env.project().join("v.db")));
    env.refused(&["apply", "main", "--vault", "v.db"], 1, "vault.unbound");
}

#[test]
fn every_verb_accepts_a_run_by_id_and_by_age() {
    let env = TestEnv::with_project();
    land(&env, 1, &Changes::default().put("old.txt", "old\n"));
    land(&env, 2, &Changes::default().put("new.txt", "new\n"));
    let vault = support::open_vault(&env.vault_file());
    let nothing = RunRecord {
        request: json!({ "command": ["echo", "a b", "$HOME"] }).to_string(),
        ..record(3, &main_fork())
    };
    Changes::default().land(&vault, Landing::RecordOnly, nothing).unwrap();
    drop(vault);
    // Fewer digits could be those of a version, which have precedence.
    let digits = run_id(2).as_str()[..8].to_owned();
    assert!(env.ok(&["runs", "list"]).contains("echo 'a b' '$HOME'"));
    for (word, id) in
        [("last", run_id(3)), ("last~1", run_id(2)), ("run:last~2", run_id(1)), (&digits, run_id(2))]
    {
        assert_eq!(env.result(&["runs", "show", word])["id"], json!(id.as_str()), "{word}");
    }
    for word in ["last~1", &digits, &format!("run:{digits}")] {
        assert_eq!(env.ok(&["cat", word, "new.txt"]), "new\n");
        assert!(env.ok(&["diff", word]).contains("new.txt"));
        assert_eq!(env.result(&["apply", word, "--dry-run"])["changes"][0]["path"], json!("new.txt"));
        assert_eq!(
            env.result(&["audit", "list", "--run", word])["rows"][0]["subject"],
            json!(format!("run-{}", run_id(2)))
        );
    }
    // Without an argument: the newest run with changes.
    for verb in [&["diff"][..], &["apply", "--dry-run"]] {
        let reported = env.run(verb);
        assert_eq!(reported.code, 0, "{reported:?}");
        assert!(
            reported.stdout.contains("new.txt") && reported.stderr.contains(run_id(2).as_str()),
            "{reported:?}"
        );
    }
    env.refused(&["apply", "last~7"], 1, "run.not_found");
    env.refused(&["diff", "last~7"], 1, "ref.unknown");
    // A fork of that name, which an older release could create, takes precedence.
    env.ok(&["fork", "create", "old", "--from", "main"]);
    support::sql(&env.vault_file()).execute("UPDATE fork SET name = 'last' WHERE name = 'old'", []).unwrap();
    env.refused(&["cat", "last", "new.txt"], 1, "path.not_found");
    env.ok(&["discard", "run:last~1"]);
    assert!(env.run(&["diff"]).stderr.contains(run_id(1).as_str()));
}

#[test]
fn control_characters_in_the_journal_are_escaped() {
    let env = TestEnv::with_project();
    let vault = support::open_vault(&env.vault_file());
    let request = json!({ "command": ["echo", "\u{1b}[2J\nforged", "\u{9b}31m"] }).to_string();
    let row = RunRecord { request, started_at: Timestamp(0), ..record(1, &main_fork()) };
    Changes::default().land(&vault, Landing::RecordOnly, row).unwrap();
    drop(vault);
    for words in [&["runs", "list"][..], &["runs", "show", run_id(1).as_str()]] {
        let shown = env.ok(words);
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{9b}'), "{shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with("forged")), "{shown:?}");
    }
}

#[test]
fn shown_run_has_each_line_once() {
    let env = TestEnv::with_project();
    let vault = support::open_vault(&env.vault_file());
    vault.create_fork(&fork("fix"), &support::reference("main"), Life::Persistent).unwrap();
    let row = RunRecord {
        request: r#"{"command":["make"],"fork":"fix","base":"live","net":"host"}"#.to_owned(),
        decision: r#"{"action":"deny","rule":"r","reason":"no reason","categories":[]}"#.to_owned(),
        result: r#"{"error":{"message":"denied: no reason"}}"#.to_owned(),
        ..record(1, &fork("fix"))
    };
    let base = vault.fork(&fork("fix")).unwrap().head;
    let landing = Landing::Fork { name: &fork("fix"), base };
    Changes::default().put("new.txt", "new\n").land(&vault, landing, row).unwrap();
    let shown = env.ok(&["runs", "show", &run_word(1)]);
    let labels: Vec<&str> = shown
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split("  ").next())
        .collect();
    let mut once = labels.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), labels.len(), "{shown}");
    assert!(
        shown.contains("base       full (requested: live)\n") && shown.contains("net        host\n"),
        "{shown}"
    );

    env.ok(&["apply", "fix", "--include", "nosuch"]);
    let quiet = env.run(&["undo", "fix"]).stderr;
    assert!(!quiet.contains("unapply"), "{quiet}");
    env.ok(&["redo", "fix"]);
    env.ok(&["apply", "fix"]);
    let undone = env.run(&["undo", "fix"]);
    assert!(undone.stderr.contains("avfs unapply fix"), "{undone:?}");
    env.ok(&["unapply", "fix"]);
    assert!(env.ok(&["runs", "show", &run_word(1)]).contains("applied    and removed again"));
}

#[test]
fn cache_explain_accepts_every_form_of_a_run() {
    let env = TestEnv::with_project();
    land(&env, 0xaa, &Changes::default().put("a", "a\n"));
    land(&env, 0xbb, &Changes::default().put("b", "b\n"));
    let (one, two) = (run_id(0xaa).to_string(), run_id(0xbb).to_string());
    let explained = |words: &[&str]| env.ok(&[&["cache", "explain"], words].concat());
    let by_prefix = explained(&[&format!("run:{two}")]);
    for word in ["last", &two, &two[..4]] {
        assert_eq!(explained(&[word]), by_prefix, "{word}");
    }
    assert_eq!(env.json(&["cache", "explain", "last~1"])["success"], json!(true));
    assert_eq!(explained(&["last~1", "--json"]), explained(&[&format!("run:{one}"), "--json"]));
    env.refused(&["cache", "explain", "last~9"], 1, "run.not_found");
    // A program of that name, and a word after --, are commands.
    let bin = env.at("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join(&two[..4]), "").unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let asked = Answer::of(env.avfs(&["cache", "explain", &two[..4]]).env("PATH", &path));
    assert!(asked.stderr.contains("interpreted as a command"), "{asked:?}");
    assert_ne!(env.run(&["cache", "explain", "--", "last"]).stdout, by_prefix);
}

#[test]
fn a_run_without_changes_is_shown_without_a_fork() {
    let env = TestEnv::with_project();
    let fork = land(&env, 1, &Changes::default());
    let list = env.ok(&["runs", "list"]);
    assert!(list.contains("  -  (no changes)") && !list.contains(fork.as_str()), "{list}");
    let shown = env.ok(&["runs", "show", &run_word(1)]);
    assert!(shown.contains("no changes") && !shown.contains("fork "), "{shown}");
}

#[test]
fn a_run_that_was_not_executed_is_shown_without_a_fork() {
    let env = TestEnv::with_project();
    let states = [RunState::Denied, RunState::ApprovalRequired, RunState::Failed, RunState::Interrupted];
    for (n, state) in (1..).zip(states) {
        let vault = support::open_vault(&env.vault_file());
        let own = fork(&format!("run-{}", run_id(n)));
        let row = RunRecord { state, ..record(n, &own) };
        vault.journal_refused(&row, AuditTexts::default()).unwrap();
        let list = env.ok(&["runs", "list"]);
        assert!(!list.contains(own.as_str()) && list.contains("  -  "), "{state:?}: {list}");
        let shown = env.ok(&["runs", "show", &run_word(n)]);
        assert!(!shown.contains("\nfork "), "{state:?}: {shown}");
    }
    // A run on a named fork shows it.
    let row = RunRecord { state: RunState::Denied, ..record(9, &fork("work")) };
    support::open_vault(&env.vault_file()).journal_refused(&row, AuditTexts::default()).unwrap();
    assert!(env.ok(&["runs", "show", &run_word(9)]).contains("fork       work\n"));
}

#[test]
fn content_of_an_earlier_partial_apply_is_no_conflict() {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "work", "--from", "main"]);
    let original = read(&env, "src/main.rs");
    land_on_work(&env, 1, Changes::default().put("src/main.rs", "one\n").put("x", "x\n"));
    env.ok(&["apply", "work", "--exclude", "x"]);
    assert_eq!(read(&env, "src/main.rs").as_deref(), Some("one\n"));
    land_on_work(&env, 2, Changes::default().put("src/main.rs", "two\n"));
    // A change of the user is a conflict still.
    env.put("src/main.rs", b"mine\n");
    env.refused(&["apply", "work"], 1, "apply.conflict");
    env.put("src/main.rs", b"one\n");
    env.ok(&["apply", "work"]);
    assert_eq!(
        (read(&env, "src/main.rs").as_deref(), read(&env, "x").as_deref()),
        (Some("two\n"), Some("x\n"))
    );
    env.ok(&["unapply", "work"]);
    assert_eq!((read(&env, "src/main.rs"), read(&env, "x")), (original, None));
}
