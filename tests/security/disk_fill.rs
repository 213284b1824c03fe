//! Tried: filling the disk, in the workspace and in what is private, with one file and with many, and one huge file.
//! Stopped by: `--disk` and `--file-size`: the size of a file system in memory, or a supervisor that watches the upper.

use serde_json::Value;

use crate::env::TestEnv;

/// A quarter of a gigabyte at most, slowly enough to be watched.
fn fill(at: &str) -> String {
    format!(
        "import os, time
for n in range(256):
    with open(f'{at}/fill-{{n % 16}}', 'ab') as file: file.write(os.urandom(1 << 20))
    time.sleep(0.01)
print('filled')"
    )
}

fn run(env: &TestEnv, options: &[&str], program: &str) -> (Value, bool) {
    let mut words = vec!["--json", "--discard"];
    words.extend(options);
    words.extend(["--", "python3", "-c", program]);
    let envelope = env.run(&words).envelope();
    let filled = envelope["result"]["stdout"].as_str().unwrap_or_default().contains("filled");
    (envelope, filled)
}

#[test]
fn what_is_written_is_bounded() {
    let env = TestEnv::with_project();
    for scratch in ["memory", "disk"] {
        let filling = fill(".");
        assert!(run(&env, &["--scratch", scratch], &filling).1, "the control failed");
        let (envelope, filled) = run(&env, &["--scratch", scratch, "--disk", "32MiB"], &filling);
        assert!(!filled, "{scratch}: {envelope}");
        assert_eq!(envelope["enforcement"]["limits"][0]["limit"], "disk", "{envelope}");
    }
    for private in ["/tmp", "/dev/shm", "/var/tmp"] {
        let filling = fill(private);
        assert!(run(&env, &[], &filling).1, "the control failed");
        let (envelope, filled) = run(&env, &["--disk", "32MiB"], &filling);
        assert!(!filled, "{private}: {envelope}");
    }
    env.ok(&[], "true");
}

#[test]
fn a_file_is_bounded() {
    let env = TestEnv::with_project();
    let grow = "import os\nwith open('big', 'wb') as big:\n    for n in range(64): big.write(bytes(1 << 20))\nprint('filled')";
    assert!(run(&env, &[], grow).1, "the control failed");
    let (envelope, filled) = run(&env, &["--file-size", "8MiB"], grow);
    assert!(!filled, "{envelope}");
}
