//! Tried: using up the file system's inodes with empty files.
//! Stopped by: `--files`: the inodes of a file system in memory, or a supervisor that watches the upper.

use serde_json::Value;

use crate::env::TestEnv;

/// Six thousand at most, slowly enough to be watched.
const MAKE: &str = "
import time
for n in range(6000):
    open(f'f{n}', 'w').close()
    if n % 20 == 0: time.sleep(0.01)
print('made all')";

#[test]
fn files_are_bounded() {
    let env = TestEnv::with_project();
    let run = |options: &[&str]| -> (Value, bool) {
        let mut words = vec!["--json", "--discard"];
        words.extend(options);
        words.extend(["--", "python3", "-c", MAKE]);
        let envelope = env.run(&words).envelope();
        let made = envelope["result"]["stdout"].as_str().unwrap_or_default().contains("made all");
        (envelope, made)
    };
    for scratch in ["memory", "disk"] {
        assert!(run(&["--scratch", scratch]).1, "the control failed");
        let (envelope, made) = run(&["--scratch", scratch, "--files", "500"]);
        assert!(!made, "{scratch}: {envelope}");
        assert_eq!(envelope["enforcement"]["limits"][0]["limit"], "files", "{envelope}");
    }
    env.ok(&[], "true");
}
