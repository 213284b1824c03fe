//! A person at a terminal, played by a script.
//!
//! Nothing is judged here: what was seen on the screen is the answer.

use std::path::Path;

use crate::env::{Answer, TestEnv, runner};

/// Plays the person: runs `avfs-run` in a pseudo terminal of 40 by 100, and does what the script says.
pub const PERSON: &str = r#"
import fcntl, os, pty, select, signal, struct, sys, termios, time
script, words = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 100, 0, 0))
    os.execv(words[0], words)
before = termios.tcgetattr(terminal)
seen = b''
def read():
    global seen
    ready, _, _ = select.select([terminal], [], [], 0.05)
    if ready:
        try: part = os.read(terminal, 65536)
        except OSError: return False
        if not part: return False
        seen += part
    return True
def wait_for(text):
    give_up = time.monotonic() + 120
    while text not in seen:
        if not read() or time.monotonic() > give_up: sys.exit(f'waited in vain for {text}: {seen}')
def send(data): os.write(terminal, data)
def resize(rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
exec(script)
while True:
    done, status = os.waitpid(pid, os.WNOHANG)
    read()
    if done: break
while read() and select.select([terminal], [], [], 0.05)[0]: pass
same = termios.tcgetattr(terminal) == before
sys.stdout.buffer.write(seen)
print(f'\nmodes {"as before" if same else "changed"}, code {os.waitstatus_to_exitcode(status)}')
"#;

#[track_caller]
pub fn person(env: &TestEnv, script: &str, words: &[&str]) -> Answer {
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", PERSON, script]).arg(runner()).args(words).env("TERM", "xterm");
    env.answer(&mut command).expect(0)
}
