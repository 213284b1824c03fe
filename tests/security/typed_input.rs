//! Tried: typing into the terminal that the run was started from (TIOCSTI), also with bits set above the number, which
//! a filter that compares all bits does not recognize.
//! Stopped by: the command has its own terminal.

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
fn input_cannot_be_typed_into_the_terminal_of_the_host() {
    let env = TestEnv::with_project();
    // The interactive shell runs the characters that were pushed into its terminal.
    let shell = PERSON.replace("os.execv(words[0], words)", "os.execvp('sh', ['sh', '-i'])");
    let script = "send((words[0] + '; echo do\"\"ne\\n').encode()); wait_for(b'done'); send(b'exit\\n')";
    let injected = |typed: &str| {
        let mut command = env.clean(Path::new("python3"));
        command.args(["-c", &shell, script, typed]);
        command.env("RUN", runner()).env("INJECT", INJECT).env("TERM", "dumb").env("PS1", "$ ");
        let answer = Running::start(&mut command).answer().expect(0);
        // The prompt may precede the output.
        let text = answer.text().replace('\r', "");
        text.lines().filter(|line| line.trim_start_matches("$ ") == "injected").count()
    };
    if injected("python3 -c \"$INJECT\"") == 0 {
        return support::skip(
            "input_cannot_be_typed_into_the_terminal_of_the_host",
            "TIOCSTI is disabled in this kernel",
        );
    }
    assert_eq!(injected("\"$RUN\" -q -- python3 -c \"$INJECT\""), 0);
}
