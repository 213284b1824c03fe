//! Tried: using up all memory, with one process and with many that each stay within limits.
//! Stopped by: `--memory`, by a cgroup or a watching supervisor; the envelope names both mechanism and limit.

use serde_json::{Value, json};

use crate::env::TestEnv;

/// Each program takes 192 MiB and keeps it until the end.
const ONE: &str = "
kept = [bytearray(b'x') * (8 << 20) for n in range(24)]";
const MANY: &str = "
pipes = []
for n in range(8):
    held, hold = os.pipe()
    if os.fork() == 0:
        kept = bytearray(b'x') * (24 << 20)
        os.write(hold, b'x')
        signal.pause()
    os.close(hold)
    pipes.append(held)
# A child killed before it had its memory has closed its pipe without writing a byte.
if not all(os.read(held, 1) for held in pipes): sys.exit(1)
# If the kernel kills only one process, it may be one that has written its byte.
if len(sys.argv) > 1:
    os.wait()
    sys.exit(1)";
const SHARED: &str = "
with open('/dev/shm/bomb', 'wb') as bomb:
    for n in range(24): bomb.write(b'x' * (8 << 20))";

/// Processes are counted in a `/proc` that the command does not need to see.
const COVERED: [[&str; 2]; 2] = [["--tmpfs", "/proc"], ["--hide", "/proc"]];

/// With an argument the command then waits to be stopped.
fn run(env: &TestEnv, options: &[&str], program: &str, arguments: &[&str]) -> (Value, bool) {
    let program = format!(
        "import os, signal, sys{program}
if len(sys.argv) > 1: signal.pause()
print('took it all')"
    );
    let mut words = vec!["--json"];
    words.extend(options);
    words.extend(["--", "python3", "-c", &program]);
    words.extend(arguments);
    let envelope = env.run(&words).envelope();
    let took = envelope["result"]["stdout"].as_str().unwrap_or_default().contains("took it all");
    (envelope, took)
}

#[test]
fn memory_use_is_limited() {
    let env = TestEnv::with_project();
    for program in [ONE, MANY, SHARED] {
        assert!(run(&env, &[], program, &[]).1, "the control failed");
        let (envelope, took) = run(&env, &["--memory", "128MiB"], program, &["wait"]);
        assert!(!took, "{envelope}");
        assert_eq!(envelope["enforcement"]["limits"][0]["limit"], json!("memory"), "{envelope}");
        if program == ONE {
            assert_eq!(envelope["result"]["stopped_by"], json!("memory"), "{envelope}");
        }
    }
    env.ok(&[], "true");
}

#[test]
fn memory_use_is_limited_if_the_view_covers_proc() {
    let env = TestEnv::with_project();
    for covered in COVERED {
        let seen = env.run(&[&covered[..], &["--", "ls", "/proc/self"]].concat());
        assert_ne!(seen.code, Some(0), "/proc is not covered: {seen:?}");
        for program in [ONE, MANY] {
            assert!(run(&env, &covered, program, &[]).1, "the control failed");
            let options = [&covered[..], &["--memory", "128MiB"]].concat();
            let (envelope, took) = run(&env, &options, program, &["wait"]);
            assert!(!took, "{envelope}");
        }
    }
}
