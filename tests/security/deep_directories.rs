//! Tried: exhausting the stack or the paths of whoever walks the upper, by directories in directories.
//! Stopped by: every walk goes by descriptors, without recursion and without a path.

use serde_json::json;

use crate::attempt::natively;
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
fn directories_in_directories_are_captured() {
    // Control: who goes by a path does not get to the bottom.
    let elsewhere = TestEnv::with_project();
    let by_path = format!(
        "top = os.getcwd()\n{}\ntried('bottom', lambda: os.stat(top + ('/' + 'd' * 40) * 3000))",
        dig(3000)
    );
    assert_eq!(natively(&elsewhere, &by_path).text(), "bottom ENAMETOOLONG\n");
    for options in [&["--scratch", "memory"][..], &["--scratch", "disk"]] {
        let env = TestEnv::with_project();
        let run = |depth: u32| {
            let program = dig(depth);
            let mut words = vec!["--json"];
            words.extend(options);
            words.extend(["--", "python3", "-c", &program]);
            env.run(&words)
        };
        let bomb = run(3000).expect(0).envelope();
        assert_eq!(bomb["result"]["change_counts"]["added"], json!(3001), "{options:?}");
        env.assert_sound();
        // The vault goes on.
        env.ok(&[], "true");
    }
}
