//! The audit log: queries, and an export that can be compared with the vault.

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::runs::land;
use crate::support;
use crate::support::landing::{Changes, run_id};

fn rows(env: &TestEnv, words: &[&str]) -> Vec<(String, String)> {
    let listed = env.result(&[&["audit", "list"], words].concat());
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = listed["rows"].as_array().unwrap().iter();
    rows.map(|row| (text(row, "action"), text(row, "subject"))).collect()
}

fn exported(env: &TestEnv, words: &[&str]) -> Vec<Value> {
    let text = env.ok(&[&["audit", "export"], words].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rows_can_be_filtered_by_run_fork_action_and_time() {
    let env = TestEnv::with_project();
    land(&env, 1, &Changes::default().put("a", "a"));
    land(&env, 2, &Changes::default().put("b", "b"));
    env.ok(&["fork", "create", "fix"]);
    env.ok(&["checkpoint", "save", "good", "--fork", "fix"]);
    env.ok(&["discard", &format!("run:{}", run_id(2))]);
    let of_second = rows(&env, &["--run", run_id(2).as_str()]);
    let actions: Vec<&str> = of_second.iter().map(|(action, _)| action.as_str()).collect();
    let steps = ["run.request", "run.decision", "run.start", "run.end", "run.capture", "run.discard"];
    assert_eq!(actions, steps);
    let of_fix = rows(&env, &["--fork", "fix"]);
    assert_eq!(
        of_fix,
        [("fork.create", "fix"), ("checkpoint.save", "fix@good")].map(|(a, s)| (a.to_owned(), s.to_owned()))
    );
    assert_eq!(rows(&env, &["--action", "run"]).len(), 11);
    assert_eq!(rows(&env, &["--action", "run.discard", "--run", run_id(1).as_str()]), []);
    assert_eq!(rows(&env, &["--since", "2200-01-01T00:00:00Z"]), []);
    let limited = env.result(&["audit", "list", "--action", "run", "--limit", "1"]);
    assert_eq!((&limited["rows"][0]["action"], &limited["left_off"]), (&json!("run.discard"), &json!(10)));
    env.refused(&["audit", "list", "--run", "zz"], 2, "ref.invalid");
    env.refused(&["audit", "list", "--since", "soon"], 2, "value.invalid");
}

#[test]
fn export_writes_the_chain_line_by_line() {
    let env = TestEnv::with_project();
    let first = exported(&env, &[]);
    assert_eq!(first[0]["previous"], json!("0".repeat(64)));
    assert!(first.windows(2).all(|pair| pair[1]["previous"] == pair[0]["digest"]), "{first:?}");
    env.ok(&["mkdir", "d"]);
    let second = exported(&env, &[]);
    assert_eq!(second[..first.len()], first, "an older export is a prefix of a newer one");
    // From a time on: each row has the digest it is chained to.
    let since = second.last().unwrap()["at"].as_str().unwrap();
    let last = exported(&env, &["--since", since]);
    assert_eq!(last, second[second.len() - 1..]);
    let digest = last[0]["digest"].as_str().unwrap();
    let verified = env.result(&["audit", "verify", "--expect", digest]);
    assert_eq!(verified["head"]["digest"], json!(digest));
    assert_eq!(env.result(&["audit", "export"])["rows"], json!(second));
}

/// Forks and checkpoints are compared with the log.
#[test]
fn manual_edits_of_forks_and_checkpoints_are_detected() {
    for (edit, message) in [
        ("UPDATE fork SET head = base WHERE name = 'side'", "the head of fork side does not match the log"),
        ("DELETE FROM fork WHERE name = 'side'", "fork side is in the log, but not in the vault"),
        (
            "UPDATE checkpoint SET version = (SELECT head FROM fork WHERE name = 'side')",
            "checkpoint main@kept does not match the log",
        ),
        ("UPDATE checkpoint SET automatic = 1", "checkpoint main@kept does not match the log"),
        ("UPDATE checkpoint SET message = 'bad'", "checkpoint main@kept does not match the log"),
        ("DELETE FROM checkpoint", "checkpoint main@kept is in the log, but not in the vault"),
    ] {
        let env = TestEnv::with_project();
        env.ok(&["checkpoint", "save", "kept"]);
        env.ok(&["fork", "create", "side"]);
        env.ok(&["write", "x", "--fork", "side", "--text", "x"]);
        env.ok(&["audit", "verify"]);
        let sql = support::sql(&env.vault_file());
        sql.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        assert!(sql.execute(edit, []).unwrap() > 0, "{edit}");
        drop(sql);
        for words in [&["audit", "verify"][..], &["fsck"]] {
            let answer = env.run(words);
            assert_eq!(answer.code, 1, "{edit}: {answer:?}");
            assert!(answer.stdout.contains(message) || answer.stderr.contains(message), "{edit}: {answer:?}");
        }
    }
}

#[test]
fn inserted_rows_are_detected() {
    for (edit, message) in [
        (
            "INSERT INTO audit SELECT 0, at, 'mallory', 'fork.delete', 'x', before, after, '', digest FROM audit WHERE seq = 1",
            "row 0 is before the first row",
        ),
        (
            "INSERT INTO audit SELECT -5, at, actor, action, subject, before, after, '', digest FROM audit WHERE seq = 1",
            "row -5 is before the first row",
        ),
        (
            "INSERT INTO run SELECT seq + 1, '00000000ff', fork, state, NULL, NULL, started_at, ended_at, exit_code, signal, \
             NULL, NULL, request, decision, result FROM run",
            "run 00000000ff is in the journal, but not in the log",
        ),
        (
            "INSERT INTO run SELECT 0, '00000000ff', fork, state, NULL, NULL, started_at, ended_at, exit_code, signal, \
             NULL, NULL, request, decision, result FROM run",
            "run 00000000ff is in the journal, but not in the log",
        ),
        (
            "INSERT INTO run SELECT -9223372036854775808, '00000000ff', fork, state, NULL, NULL, started_at, ended_at, \
             exit_code, signal, NULL, NULL, request, decision, result FROM run",
            "of a table is out of order",
        ),
        (
            "INSERT INTO audit SELECT -9223372036854775808, at, actor, action, subject, before, after, '', digest FROM audit \
             WHERE seq = 1",
            "of a table is out of order",
        ),
    ] {
        let env = TestEnv::with_project();
        land(&env, 1, &Changes::default().put("new", "new\n"));
        env.ok(&["audit", "verify"]);
        assert_eq!(support::sql(&env.vault_file()).execute(edit, []).unwrap(), 1, "{edit}");
        for words in [&["audit", "verify"][..], &["fsck"]] {
            let answer = env.run(words);
            assert_eq!(answer.code, 1, "{edit}: {answer:?}");
            assert!(answer.stdout.contains(message) || answer.stderr.contains(message), "{edit}: {answer:?}");
        }
    }
}

/// The versions that the next gc removes are in the log.
#[test]
fn manually_pruned_version_is_detected() {
    let env = TestEnv::with_project();
    for n in ["1", "2", "3", "4"] {
        env.ok(&["write", "x", "--text", n]);
    }
    env.ok(&["prune", "--keep-last", "3"]);
    env.ok(&["quota", "set", "--versions", "100"]);
    for action in ["vault.prune", "quota.set"] {
        let reported = env.result(&["audit", "list", "--action", action]);
        assert!(reported["rows"][0]["after"].is_string(), "{reported}");
    }
    env.ok(&["fork", "create", "gone", "--from", "main~1"]);
    env.ok(&["fork", "delete", "gone"]);
    env.ok(&["gc"]);
    env.ok(&["audit", "verify"]);
    let pruned = "(SELECT max(pruned_at) FROM version)";
    for edit in [
        format!("UPDATE version SET pruned_at = {pruned} WHERE id = (SELECT max(id) - 1 FROM version)"),
        "UPDATE version SET pruned_at = pruned_at + 1".to_owned(),
    ] {
        let sql = support::sql(&env.vault_file());
        sql.execute_batch("CREATE TEMP TABLE was AS SELECT id, pruned_at FROM version").unwrap();
        assert!(sql.execute(&edit, []).unwrap() > 0, "{edit}");
        for words in [&["audit", "verify"][..], &["fsck"]] {
            let answer = env.run(words);
            let reported = answer.stdout.contains("is marked as pruned")
                || answer.stderr.contains("is marked as pruned");
            assert!(answer.code == 1 && reported, "{edit}: {answer:?}");
        }
        sql.execute_batch(
            "UPDATE version SET pruned_at = (SELECT pruned_at FROM was WHERE was.id = version.id)",
        )
        .unwrap();
    }
    env.ok(&["audit", "verify"]);
}
