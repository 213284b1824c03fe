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
    // A file system in memory takes what is longer than any version holds.
    let bomb = "truncate -s 17T bomb; stat -c %s bomb; echo kept > other";
    let control = env.json(&["--scratch", "memory", "--discard"], bomb);
    assert_eq!(control["result"]["stdout"], json!(format!("{}\n", 17_u64 << 40)), "{control}");
    let envelope = env.json(&["--scratch", "memory"], bomb);
    let left = &envelope["result"]["left_out"];
    assert_eq!(left[0]["path"], json!("bomb"), "{envelope}");
    assert!(left[0]["reason"].as_str().unwrap().contains("18691697672192 bytes long"), "{left}");
    let run = format!("run:{}", envelope["result"]["run_id"].as_str().unwrap());
    assert_eq!(env.cat(&run, "other"), "kept\n");
    assert!(begun.elapsed() < Duration::from_secs(60), "{envelope}");
    env.assert_sound();
    // The vault goes on.
    env.ok(&[], "true");
}
