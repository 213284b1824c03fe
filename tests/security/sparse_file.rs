//! Tried: filling the vault, or keeping the capture busy for ever, with a file that is mostly holes.
//! Stopped by: holes are skipped; what is longer than a version can hold fails the capture by its name.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::env::TestEnv;

#[test]
fn holes_cost_nothing() {
    let env = TestEnv::with_project();
    for scratch in ["memory", "disk"] {
        let begun = Instant::now();
        let envelope = env.json(&["--scratch", scratch], "truncate -s 8G holes; echo end >> holes");
        assert_eq!(envelope["success"], json!(true), "{envelope}");
        // Control: read byte by byte it is long.
        assert_eq!(envelope["result"]["changes"][0]["size_after"], json!((8_u64 << 30) + 4));
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
    assert!(std::fs::metadata(env.vault_file()).unwrap().len() < 64 << 20);
    env.assert_sound();
}

#[test]
fn a_bomb_of_holes_is_told_by_its_name() {
    let env = TestEnv::with_project();
    let begun = Instant::now();
    let answer = env.shell(&["--json", "--scratch", "disk"], "truncate -s 15T bomb; echo kept > other");
    let envelope = answer.envelope();
    assert!(begun.elapsed() < Duration::from_secs(60), "{envelope}");
    // Refused by name, or kept at next to no cost.
    if answer.code != Some(0) {
        assert_eq!(answer.code, Some(123), "{answer:?}");
        assert!(envelope["error"]["message"].as_str().unwrap().contains("bomb"), "{envelope}");
    }
    env.assert_sound();
}
