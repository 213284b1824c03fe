//! A person at a terminal, simulated by a script.
//!
//! This module asserts nothing: it returns the content of the screen.

use std::path::Path;
use std::process::Command;

use crate::env::{Answer, TestEnv, runner};

/// Runs `avfs-run` in a pseudo terminal of 40 rows and 100 columns, and executes the script.
pub const PERSON: &str = r#"
import fcntl, os, pty, struct, sys, termios
script, words = sys.argv[1], sys.argv[2:]
go, wait = os.pipe()
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 100, 0, 0))
    os.close(wait)
    os.read(go, 1)
    os.execv(words[0], words)
before = termios.tcgetattr(terminal)
os.close(wait)
seen = b''
def read():
    global seen
    # Once nobody has the terminal open the read fails.
    try: part = os.read(terminal, 65536)
    except OSError: return False
    seen += part
    return True
def wait_for(text):
    while text not in seen:
        if not read(): sys.exit(f'the terminal was closed before {text}: {seen}')
def send(data): os.write(terminal, data)
def resize(rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
exec(script)
while read(): pass
_, status = os.waitpid(pid, 0)
same = termios.tcgetattr(terminal) == before
sys.stdout.buffer.write(seen)
print(f'\nmodes {"as before" if same else "changed"}, code {os.waitstatus_to_exitcode(status)}')
"#;

/// The command that simulates the person, not started.
pub fn person_command(env: &TestEnv, script: &str, words: &[&str]) -> Command {
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", PERSON, script]).arg(runner()).args(words).env("TERM", "xterm");
    command
}

#[track_caller]
pub fn person(env: &TestEnv, script: &str, words: &[&str]) -> Answer {
    env.answer(&mut person_command(env, script, words)).expect(0)
}
