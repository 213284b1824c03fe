//! Tried: kill(-1), which signals every process the caller may signal.
//! Stopped by: a pid namespace, whose init ignores signals from inside.

use crate::attempt::{own_host, own_host_command};
use crate::env::TestEnv;

const KILL: &str = "tried('kill', lambda: os.kill(-1, 9))";

#[test]
fn kill_minus_one_does_not_reach_host_processes() {
    let env = TestEnv::with_project();
    // On a separate host: the control kills everything there except the shell, which is init. A process that was
    // already killed does not end with TERM.
    let script = |start: &str| {
        format!(
            "sleep 7777 & victim=$!; {start} -- python3 -c \"$P\"; kill -TERM $victim 2>/dev/null; \
             wait $victim 2>/dev/null; echo $?"
        )
    };
    assert_eq!(own_host(&env, &script("env"), KILL).text(), "kill gained\n137\n");
    assert_eq!(own_host(&env, &script("\"$RUN\" -q"), KILL).text(), "kill ESRCH\n143\n");
}

#[test]
fn init_ignores_signals_from_inside() {
    let env = TestEnv::with_project();
    // On a separate host too: an escaped signal reaches only processes of the test.
    let run = |line: &str| {
        let mut command = own_host_command(&env, "\"$RUN\" -q --shell \"$LINE\"; exit $?", "");
        env.answer(command.env("LINE", line))
    };
    let everybody = "sleep 1000 & sleep 1000 & python3 -c 'import os; os.kill(-1, 9)'; echo not reached";
    assert_eq!(run(everybody).expect(137).text(), "");
    for signals in ["kill -9 1", "kill -TERM 1; kill -INT 1; kill -HUP 1"] {
        assert_eq!(run(&format!("{signals}; echo still here")).expect(0).text(), "still here\n");
    }
}
