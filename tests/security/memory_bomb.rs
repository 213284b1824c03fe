//! Tried: taking all memory, by one process and by many that are each within bounds.
//! Stopped by: `--memory`, by a control group or a watching supervisor; the envelope says which, and that it did.

use serde_json::{Value, json};

use crate::env::TestEnv;

/// Half a gigabyte at most, so that a machine on which nothing stops it survives.
const ONE: &str = "
import sys, time
kept = []
for n in range(64):
    kept.append(bytearray(b'x') * (8 << 20)); time.sleep(0.02)
print('took it all')";
const MANY: &str = "
import os, sys, time
children = []
for n in range(8):
    child = os.fork()
    if child == 0:
        kept = []
        for n in range(8): kept.append(bytearray(b'x') * (8 << 20)); time.sleep(0.05)
        time.sleep(5); os._exit(0)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
if not any(codes): print('took it all')";
const SHARED: &str = "
import time
with open('/dev/shm/bomb', 'wb') as bomb:
    for n in range(64): bomb.write(b'x' * (8 << 20)); time.sleep(0.02)
print('took it all')";

fn run(env: &TestEnv, options: &[&str], program: &str) -> (Value, bool) {
    let mut words = vec!["--json"];
    words.extend(options);
    words.extend(["--", "python3", "-c", program]);
    let envelope = env.run(&words).envelope();
    let took = envelope["result"]["stdout"].as_str().unwrap_or_default().contains("took it all");
    (envelope, took)
}

#[test]
fn memory_is_bounded() {
    let env = TestEnv::with_project();
    for program in [ONE, MANY, SHARED] {
        assert!(run(&env, &[], program).1, "the control failed");
        let (envelope, took) = run(&env, &["--memory", "128MiB"], program);
        assert!(!took, "{envelope}");
    }
    let (envelope, _) = run(&env, &["--memory", "128MiB"], ONE);
    assert_eq!(envelope["result"]["stopped_by"], json!("memory"), "{envelope}");
    assert_eq!(envelope["enforcement"]["limits"][0]["limit"], json!("memory"), "{envelope}");
    env.ok(&[], "true");
}
