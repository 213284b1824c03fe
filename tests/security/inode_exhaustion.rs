//! Tried: exhausting the inodes of the file system with empty files.
//! Stopped by: `--files`: the inode limit of a tmpfs, or a supervisor that watches the upper.

use serde_json::Value;

use crate::env::TestEnv;

/// Makes 600 files. With an argument it then waits to be stopped.
const MAKE: &str = "
import signal, sys
for n in range(600): open(f'f{n}', 'w').close()
if len(sys.argv) > 1: signal.pause()
print('made all')";

#[test]
fn number_of_files_is_limited() {
    let env = TestEnv::with_project();
    let run = |options: &[&str], command: &[&str]| -> (Value, bool) {
        let mut words = vec!["--json", "--discard"];
        words.extend(options);
        words.extend(["--", "python3", "-c"]);
        words.extend(command);
        let envelope = env.run(&words).envelope();
        let made = envelope["result"]["stdout"].as_str().unwrap_or_default().contains("made all");
        (envelope, made)
    };
    // On disk the supervisor stops the command some time after it has exceeded the limit.
    for (scratch, command) in [("memory", &[MAKE][..]), ("disk", &[MAKE, "wait"])] {
        assert!(run(&["--scratch", scratch], &[MAKE]).1, "the control failed");
        let (envelope, made) = run(&["--scratch", scratch, "--files", "500"], command);
        assert!(!made, "{scratch}: {envelope}");
        assert_eq!(envelope["enforcement"]["limits"][0]["limit"], "files", "{envelope}");
        if scratch == "disk" {
            assert_eq!(envelope["result"]["stopped_by"], "files", "{envelope}");
        }
    }
    env.ok(&[], "true");
}
