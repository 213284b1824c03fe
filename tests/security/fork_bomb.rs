//! Tried: a fork bomb.
//! Stopped by: `--pids`, by a cgroup, the user's process limit in the namespace, or the namespace's own pid_max.

use serde_json::json;

use crate::env::TestEnv;

/// At most one hundred processes. All of them live until the first process ends.
const FORK: &str = "
import os, signal
made = 0
for n in range(100):
    try: child = os.fork()
    except OSError: break
    if child == 0: signal.pause()
    made += 1
print(made)";

#[test]
fn number_of_processes_is_limited() {
    let env = TestEnv::with_project();
    let run = |options: &[&str]| {
        let mut words = vec!["--json"];
        words.extend(options);
        words.extend(["--", "python3", "-c", FORK]);
        env.run(&words).expect(0).envelope()
    };
    let made = |envelope: &serde_json::Value| {
        envelope["result"]["stdout"]
            .as_str()
            .unwrap()
            .trim()
            .parse::<u32>()
            .unwrap_or_else(|_| panic!("{envelope}"))
    };
    assert_eq!(made(&run(&[])), 100, "the control failed");
    let envelope = run(&["--pids", "40"]);
    assert!((10..=40).contains(&made(&envelope)), "{envelope}");
    assert_eq!(envelope["enforcement"]["limits"][0]["limit"], json!("pids"), "{envelope}");
}
