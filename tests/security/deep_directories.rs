//! Tried: exhausting the stack, the path length or the memory of a process that walks the upper, by nested directories.
//! Stopped by: every walk uses descriptors, without recursion and without a path; paths are bounded.

use serde_json::json;

use crate::attempt::natively;
use crate::env::TestEnv;

fn dig(depth: u32, name_bytes: u32) -> String {
    format!(
        "import os
for _ in range({depth}):
    os.mkdir('d' * {name_bytes}); os.chdir('d' * {name_bytes})
open('bottom', 'w').close()"
    )
}

#[test]
fn deeply_nested_directories_are_captured() {
    // Control: a walk by path does not reach the bottom.
    let elsewhere = TestEnv::with_project();
    let by_path = format!(
        "top = os.getcwd()\n{}\ntried('bottom', lambda: os.stat(top + ('/' + 'd' * 9) * 1000))",
        dig(1000, 9)
    );
    assert_eq!(natively(&elsewhere, &by_path).text(), "bottom ENAMETOOLONG\n");
    for (scratch, depth) in [("memory", 1500), ("disk", 1000)] {
        let env = TestEnv::with_project();
        let run = |depth: u32, name_bytes: u32| {
            let program = dig(depth, name_bytes);
            env.run(&["--json", "--scratch", scratch, "--", "python3", "-c", &program])
        };
        let bomb = run(depth, 9).expect(0).envelope();
        assert_eq!(bomb["result"]["change_counts"]["added"], json!(depth + 1), "{scratch}");
        // Every directory is known by its path, so the sum of long paths would be gigabytes.
        let bomb = run(300, 250).expect(0).envelope();
        assert_eq!(bomb["result"]["change_counts"]["added"], json!(130), "{scratch}");
        assert_eq!(bomb["result"]["left_out"].as_array().unwrap().len(), 1);
        env.assert_sound();
        // The vault still works.
        env.ok(&[], "true");
    }
}
