//! Tried: kill(0), which signals the caller's process group, including the shell that started the run.
//! Stopped by: the command has its own session and process group.

use std::path::Path;

use crate::env::{Running, TestEnv, runner};

#[test]
fn signals_to_the_process_group_stay_inside() {
    let env = TestEnv::with_project();
    let with = |start: &str| {
        let line = format!(
            "trap 'echo hit; exit 0' TERM; {start} -- python3 -c 'import os; os.kill(0, 15)'; echo missed"
        );
        let mut command = env.clean(Path::new("setsid"));
        command.args(["--wait", "sh", "-c", &line]).env("RUN", runner());
        command
    };
    assert_eq!(Running::start(&mut with("env")).answer().text(), "hit\n");
    assert_eq!(env.answer(&mut with("\"$RUN\" -q")).text(), "missed\n");
    assert_eq!(env.shell(&[], "sleep 1000 & kill -TERM 0; echo not reached").expect(143).text(), "");
}
