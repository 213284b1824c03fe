//! Tried: typing into the terminal that the run was started from (TIOCSTI), also with bits set above the number,
//! which a filter that compares all of them does not know.
//! Stopped by: the command has a terminal of its own.

use std::path::Path;

use crate::env::{Running, TestEnv, runner};
use crate::person::PERSON;
use crate::support;

const INJECT: &str = "
import ctypes
libc = ctypes.CDLL(None)
for c in b'echo injected\\n':
    for bits in (0, 1 << 32, 0xffffffff << 32):
        if libc.ioctl(0, ctypes.c_ulong(bits | 0x5412), ctypes.byref(ctypes.c_char(c))) == 0: break";

#[test]
fn nothing_is_typed_into_the_hosts_terminal() {
    let env = TestEnv::with_project();
    // The person's shell runs what was pushed into its terminal.
    let shell = PERSON.replace("os.execv(words[0], words)", "os.execvp('sh', ['sh', '-i'])");
    let script = "send((words[0] + '; echo do\"\"ne\\n').encode()); wait_for(b'done'); send(b'exit\\n')";
    let injected = |typed: &str| {
        let mut command = env.clean(Path::new("python3"));
        command.args(["-c", &shell, script, typed]);
        command.env("RUN", runner()).env("INJECT", INJECT).env("TERM", "dumb").env("PS1", "$ ");
        let answer = Running::start(&mut command).answer().expect(0);
        // Its prompt may stand before what it prints.
        let text = answer.text().replace('\r', "");
        text.lines().filter(|line| line.trim_start_matches("$ ") == "injected").count()
    };
    if injected("python3 -c \"$INJECT\"") == 0 {
        return support::skip(
            "nothing_is_typed_into_the_hosts_terminal",
            "this kernel lets nobody type for others",
        );
    }
    assert_eq!(injected("\"$RUN\" -q -- python3 -c \"$INJECT\""), 0);
}
