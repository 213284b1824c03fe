//! Recordings: start, stop, list and delete; and how a word selects runs.

use serde_json::json;

use crate::env::TestEnv;
use crate::runs::land;
use crate::support::landing::{Changes, run_id};
use crate::support::sql;

fn change(n: u8) -> Changes {
    Changes::default().put(&format!("file-{n}"), &format!("{n}\n"))
}

/// The runs in a list, by their numbers.
fn exported(env: &TestEnv, words: &[&str]) -> Vec<u8> {
    let result = env.result(&[&["record", "export"], words].concat());
    let lines = result["list"].as_array().unwrap();
    assert_eq!(lines[0]["avfs_list"], json!(1));
    assert_eq!(result["items"], json!(lines.len() - 1));
    let number = |id: &str| (0..=u8::MAX).find(|n| run_id(*n).as_str() == id).unwrap();
    lines[1..].iter().map(|line| number(line["id"].as_str().unwrap())).collect()
}

#[test]
fn recording_contains_the_runs_between_start_and_stop() {
    let env = TestEnv::with_project();
    land(&env, 1, &change(1));
    assert_eq!(env.ok(&["record", "list"]), "");
    env.ok(&["record", "start"]);
    env.ok(&["record", "start", "second"]);
    let of_fork = land(&env, 2, &change(2));
    env.ok(&["record", "start", "of-fork", "--fork", of_fork.as_str()]);
    env.ok(&["record", "stop", "second"]);
    land(&env, 3, &change(3));
    env.ok(&["record", "stop", "recording-1"]);
    land(&env, 4, &change(4));
    assert_eq!(exported(&env, &["recording-1"]), [2, 3]);
    assert_eq!(exported(&env, &["second"]), [2]);
    assert_eq!(exported(&env, &["of-fork"]), [0_u8; 0]);
    let listed = env.result(&["record", "list"]);
    let open = |n: usize| listed["recordings"][n]["open"].clone();
    assert_eq!([open(0), open(1), open(2)], [json!(false), json!(false), json!(true)]);
    assert!(env.ok(&["record", "list"]).contains("of-fork"));
    env.ok(&["record", "delete", "second"]);
    env.refused(&["record", "export", "recording:second"], 1, "recording.not_found");
    assert_eq!(env.result(&["record", "start"])["recording"]["name"], json!("recording-2"));
    let rows = env.result(&["audit", "list", "--action", "recording"]);
    let actions: Vec<_> = rows["rows"].as_array().unwrap().iter().map(|row| row["action"].clone()).collect();
    assert_eq!(actions[..2], [json!("recording.start"), json!("recording.start")]);
    assert!(actions.contains(&json!("recording.stop")) && actions.contains(&json!("recording.delete")));
    env.assert_sound();
}

#[test]
fn export_accepts_a_fork_a_recording_runs_or_a_range() {
    let env = TestEnv::with_project();
    let forks: Vec<String> = (1..=5).map(|n| land(&env, n, &change(n)).to_string()).collect();
    let id = |n: u8| run_id(n).to_string();
    assert_eq!(exported(&env, &[&forks[1]]), [2]);
    assert_eq!(exported(&env, &[&format!("fork:{}", forks[1])]), [2]);
    assert_eq!(exported(&env, &[&format!("{}..{}", id(2), id(4))]), [2, 3, 4]);
    assert_eq!(exported(&env, &[&format!("{}..{}", id(4), id(2))]), [2, 3, 4]);
    assert_eq!(exported(&env, &[&format!("run:{}..", &id(4)[..4])]), [4, 5]);
    assert_eq!(exported(&env, &[&format!("..{}", id(1))]), [1]);
    assert_eq!(exported(&env, &[".."]), [1, 2, 3, 4, 5]);
    assert_eq!(exported(&env, &["--runs", &format!("{},{},{}", id(5), id(1), id(5))]), [1, 5]);
    assert_eq!(exported(&env, &[&id(3)]), [3]);
    assert_eq!(exported(&env, &["main"]), [0_u8; 0]);
    // To stdout as lines; to a file atomically.
    let text = env.ok(&["record", "export", ".."]);
    assert_eq!(text.lines().count(), 6);
    let file = env.at("list.jsonl");
    env.ok(&["record", "export", "..", "--output", file.to_str().unwrap()]);
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written.lines().skip(1).collect::<Vec<_>>(), text.lines().skip(1).collect::<Vec<_>>());
    assert_eq!(
        std::fs::read_dir(file.parent().unwrap())
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().contains("list.jsonl"))
            .count(),
        1
    );
}

#[test]
fn invalid_record_requests_are_refused() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["record", "stop"], 1, "recording.none_open");
    env.refused(&["record", "stop", "x"], 1, "recording.not_found");
    env.refused(&["record", "delete", "x"], 1, "recording.not_found");
    env.refused(&["record", "export", "nothing"], 1, "record.unknown");
    env.refused(&["record", "export", "fork:no/name"], 1, "record.unknown");
    env.refused(&["record", "export", "0123..4567"], 1, "run.not_found");
    env.refused(&["record", "export", "--runs", "0123"], 1, "run.not_found");
    let nowhere = env.at("no/such/dir/list");
    env.refused(&["record", "export", "main", "--output", nowhere.to_str().unwrap()], 1, "host.io");
    assert_eq!(env.state(), before);
    env.ok(&["record", "start", "main"]);
    env.refused(&["record", "start", "main"], 1, "recording.exists");
    env.refused(&["record", "export", "main"], 1, "record.ambiguous");
    env.ok(&["record", "start", "b"]);
    env.refused(&["record", "stop"], 1, "recording.ambiguous");
    env.ok(&["record", "stop", "b"]);
    env.refused(&["record", "stop", "b"], 1, "recording.stopped");
}

#[test]
fn export_omits_and_counts_runs_that_cannot_be_replayed() {
    let env = TestEnv::with_project();
    land(&env, 1, &change(1));
    land(&env, 2, &change(2));
    crate::runs::ask(&env, 3);
    let odd = r#"UPDATE run SET request = '{"command":["x"],"of_a_newer":1}' WHERE seq = 1"#;
    sql(&env.vault_file()).execute(odd, []).unwrap();
    let result = env.result(&["record", "export", ".."]);
    assert_eq!(result["left_out"], json!({ "approval_required": 1, "unreadable": 1 }));
    assert_eq!(result["items"], json!(1));
}

#[test]
fn fsck_finds_recordings_that_end_beyond_the_journal() {
    let env = TestEnv::with_project();
    env.ok(&["record", "start", "r"]);
    sql(&env.vault_file()).execute("UPDATE recording SET last_run = 99, stopped_at = 1", []).unwrap();
    let report = env.json(&["fsck"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"), "{report}");
    assert!(report["result"]["findings"][0]["message"].as_str().unwrap().contains("recording r"), "{report}");
}
