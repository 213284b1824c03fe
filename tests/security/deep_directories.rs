//! Tried: exhausting the stack or the paths of whoever walks the upper, by directories in directories.
//! Stopped by: every walk goes by descriptors without recursion; what is deeper than a version can hold is an error
//! that names it, with the upper kept.

use serde_json::json;

use crate::env::TestEnv;

fn dig(depth: u32) -> String {
    format!(
        "import os
for _ in range({depth}):
    os.mkdir('d' * 40); os.chdir('d' * 40)
open('bottom', 'w').close()"
    )
}

#[test]
fn directories_in_directories_are_captured_or_told() {
    for options in [&["--scratch", "memory"][..], &["--scratch", "disk"]] {
        let env = TestEnv::with_project();
        let run = |depth: u32| {
            let program = dig(depth);
            let mut words = vec!["--json"];
            words.extend(options);
            words.extend(["--", "python3", "-c", &program]);
            env.run(&words)
        };
        // Control: far beyond what one path may have, 12 kB.
        let deep = run(300).expect(0).envelope();
        assert_eq!(deep["result"]["change_counts"]["added"], json!(301), "{options:?}");
        let bomb = run(3000);
        let envelope = bomb.envelope();
        assert!(matches!(bomb.code, Some(0 | 123)), "{options:?}: {bomb:?}");
        if bomb.code == Some(123) {
            let message = envelope["error"]["message"].as_str().unwrap();
            assert!(message.contains("levels deep") || message.contains("dddd"), "{message}");
        }
        env.assert_sound();
        // The vault goes on.
        env.ok(&[], "true");
    }
}
