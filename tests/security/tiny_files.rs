//! Tried: drowning the capture in files.
//! Stopped by: nothing is refused; a capture takes a bounded time and memory for each of them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::env::TestEnv;

const FILES: u64 = 1_000_000;

#[test]
fn many_files_are_captured() {
    let env = TestEnv::with_project();
    let program = format!(
        "import os
for d in range({FILES} // 1000):
    os.mkdir(f'd{{d}}')
    at = os.open(f'd{{d}}', os.O_RDONLY)
    for n in range(1000): os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)"
    );
    let begun = Instant::now();
    let words = [
        "--json",
        "--scratch",
        "memory",
        "--disk",
        "8GiB",
        "--timeout",
        "600s",
        "--",
        "python3",
        "-c",
        &program,
    ];
    let envelope = env.run(&words).expect(0).envelope();
    assert_eq!(envelope["result"]["change_counts"]["added"], json!(FILES + FILES / 1000));
    assert!(begun.elapsed() < Duration::from_secs(170), "{:?}", begun.elapsed());
    // What is told of them is bounded.
    assert!(envelope["result"]["changes"].as_array().unwrap().len() < 20_000);
    env.assert_sound();
}
