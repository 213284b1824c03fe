//! Tried: kill(-1), which hits everybody the caller may signal.
//! Stopped by: a pid namespace; its first process takes no signal from inside.

use crate::attempt::{own_host, own_host_command};
use crate::env::TestEnv;

const KILL: &str = "tried('kill', lambda: os.kill(-1, 9))";

#[test]
fn killing_everybody_reaches_nobody_outside() {
    let env = TestEnv::with_project();
    // On a host of the test's own: the control kills everything there but the shell, its first process. A process
    // that was killed first does not end by TERM.
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
fn the_first_process_takes_no_signal_from_inside() {
    let env = TestEnv::with_project();
    // Here too: should it get out it meets nobody but the test.
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
