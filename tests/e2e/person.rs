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

#[test]
fn an_apply_without_changes_is_not_the_one_to_revert() {
    let env = TestEnv::with_project();
    env.shell(&[], "echo b > b").expect(0);
    env.avfs(&["apply"]).expect(0);
    env.shell(&[], "true").expect(0);
    let nothing = env.avfs(&["apply", "last"]).expect(0);
    assert!(nothing.text().contains("no changes to apply"), "{nothing:?}");
    env.avfs(&["unapply"]).expect(0);
    assert!(!env.project().join("b").exists());
}

#[test]
fn diff_of_a_run_without_changes_shows_none() {
    let env = TestEnv::with_project();
    env.put("new", b"of the host\n");
    env.shell(&[], "true").expect(0);
    let diff = env.avfs(&["diff", "last"]).expect(0);
    assert_eq!(diff.text(), "no changes\n");
}

#[test]
fn unapply_names_the_fork_and_the_paths_that_were_applied() {
    let env = TestEnv::with_project();
    env.shell(&["--fork", "task"], "echo 1 > new-1").expect(0);
    env.shell(&["--fork", "task"], "echo 2 > new-2; echo 3 > other").expect(0);
    env.avfs(&["apply", "task", "--include", "new*"]).expect(0);
    let reverted = env.avfs(&["unapply"]).expect(0);
    assert!(reverted.stderr.contains("fork task: 2 runs"), "{reverted:?}");
    assert!(
        reverted.text().contains("apply it again with: avfs apply task --include 'new*'"),
        "{reverted:?}"
    );
}
