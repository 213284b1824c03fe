//! Tried: filling the vault, or keeping the capture busy indefinitely, with a file that is mostly holes.
//! Stopped by: holes are skipped; a file that is longer than a version can hold is left out and named.

use serde_json::json;

use crate::env::{Running, TestEnv};
use crate::support::pause::Pauses;

const FILE_BYTES: u64 = 8 << 30;
/// The most that a run may read in total.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Bytes that a process has read so far.
fn bytes_read(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn holes_are_not_read() {
    let env = TestEnv::with_project();
    for scratch in ["memory", "disk"] {
        let pauses = Pauses::new(&env.at(""));
        pauses.hold("completed");
        let line = format!("truncate -s {FILE_BYTES} holes; echo end >> holes");
        let mut command = env.command(&["--json", "--scratch", scratch, "--shell", &line]);
        let mut running = Running::start(pauses.set(&mut command));
        pauses.wait("completed", &mut running.child);
        let read = bytes_read(running.child.id());
        assert!((1..READ_BYTES_MAX).contains(&read), "{read} bytes were read");
        pauses.release("completed");
        let envelope = running.answer().expect(0).envelope();
        assert_eq!(envelope["result"]["changes"][0]["size_after"], json!(FILE_BYTES + 4), "{envelope}");
    }
    assert!(std::fs::metadata(env.vault_file()).unwrap().len() < 64 << 20);
    env.assert_sound();
}

#[test]
fn file_longer_than_a_version_can_hold_is_left_out_and_named() {
    let env = TestEnv::with_project();
    // A tmpfs accepts files that are longer than a version can hold.
    let bomb = "truncate -s 17T bomb; stat -c %s bomb; echo kept > other";
    let control = env.json(&["--scratch", "memory", "--discard"], bomb);
    assert_eq!(control["result"]["stdout"], json!(format!("{}\n", 17_u64 << 40)), "{control}");
    let envelope = env.json(&["--scratch", "memory"], bomb);
    let left = &envelope["result"]["left_out"];
    assert_eq!(left[0]["path"], json!("bomb"), "{envelope}");
    assert!(left[0]["reason"].as_str().unwrap().contains("18691697672192 bytes long"), "{left}");
    let run = format!("run:{}", envelope["result"]["run_id"].as_str().unwrap());
    assert_eq!(env.cat(&run, "other"), "kept\n");
    env.assert_sound();
    // The vault still works.
    env.ok(&[], "true");
}
