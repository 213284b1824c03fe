//! Tried: filling the disk, in the workspace and in private directories, with many files, and with one huge file.
//! Stopped by: `--disk` and `--file-size`: the size of a tmpfs, or a supervisor that watches the upper.

use serde_json::Value;

use crate::env::TestEnv;

/// Writes 12 MiB to 4 files. With an argument it then waits to be stopped.
fn fill(at: &str) -> String {
    format!(
        "import os, signal, sys
for n in range(12):
    with open(f'{at}/fill-{{n % 4}}', 'ab') as file: file.write(os.urandom(1 << 20))
if len(sys.argv) > 1: signal.pause()
print('filled')"
    )
}

fn run(env: &TestEnv, options: &[&str], command: &[&str]) -> (Value, bool) {
    let mut words = vec!["--json", "--discard"];
    words.extend(options);
    words.extend(["--", "python3", "-c"]);
    words.extend(command);
    let envelope = env.run(&words).envelope();
    let filled = envelope["result"]["stdout"].as_str().unwrap_or_default().contains("filled");
    (envelope, filled)
}

#[test]
fn written_bytes_are_limited() {
    let env = TestEnv::with_project();
    // On disk the supervisor stops the command some time after it has exceeded the limit.
    for (scratch, command) in [("memory", &[&*fill(".")][..]), ("disk", &[&fill("."), "wait"])] {
        assert!(run(&env, &["--scratch", scratch], &command[..1]).1, "the control failed");
        let (envelope, filled) = run(&env, &["--scratch", scratch, "--disk", "8MiB"], command);
        assert!(!filled, "{scratch}: {envelope}");
        assert_eq!(envelope["enforcement"]["limits"][0]["limit"], "disk", "{envelope}");
        if scratch == "disk" {
            assert_eq!(envelope["result"]["stopped_by"], "disk", "{envelope}");
        }
    }
    for private in ["/tmp", "/dev/shm", "/var/tmp"] {
        let filling = fill(private);
        assert!(run(&env, &[], &[&filling]).1, "the control failed");
        let (envelope, filled) = run(&env, &["--disk", "8MiB"], &[&filling]);
        assert!(!filled, "{private}: {envelope}");
    }
    env.ok(&[], "true");
}

#[test]
fn file_size_is_limited() {
    let env = TestEnv::with_project();
    let grow = "import os\nwith open('big', 'wb') as big:\n    for n in range(16): big.write(bytes(1 << 20))\nprint('filled')";
    assert!(run(&env, &[], &[grow]).1, "the control failed");
    let (envelope, filled) = run(&env, &["--file-size", "8MiB"], &[grow]);
    assert!(!filled, "{envelope}");
}
