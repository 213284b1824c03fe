//! Tried: overloading the capture with files.
//! Stopped by: nothing is refused; a capture takes bounded time and memory per file.

use serde_json::json;

use crate::env::TestEnv;
use crate::support::is_long;

/// Files per directory.
const FILES: u64 = 1000;

#[test]
fn capture_handles_many_files() {
    let env = TestEnv::with_project();
    // More than an envelope lists. A capture with quadratic cost would take longer than a test may.
    let dirs = if is_long() { 1000 } else { 50 };
    let program = format!(
        "import os
for d in range({dirs}):
    os.mkdir(f'd{{d}}')
    at = os.open(f'd{{d}}', os.O_RDONLY)
    for n in range({FILES}): os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)"
    );
    let limits = ["--json", "--scratch", "memory", "--disk", "8GiB", "--timeout", "none"];
    let words = [&limits[..], &["--", "python3", "-c", &program]].concat();
    let envelope = env.run(&words).expect(0).envelope();
    assert_eq!(envelope["result"]["change_counts"]["added"], json!(dirs * (FILES + 1)));
    // The list in the envelope is bounded.
    assert!(envelope["result"]["changes"].as_array().unwrap().len() < 20_000);
    env.assert_sound();
}
