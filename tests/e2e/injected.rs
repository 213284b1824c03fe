//! System calls that fail in rare cases.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::env::{TestEnv, runner};

/// Executes a program for which a system call fails, either with any arguments or only with one of these second
/// arguments. A seccomp filter does it, so it applies to every process that the program starts.
const FAILING: &str = r#"
import ctypes, errno, os, struct, sys
name, error, seconds, words = sys.argv[1], sys.argv[2], eval(sys.argv[3]), sys.argv[4:]
number = {'wait4': (61, 260), 'fcntl': (72, 25)}[name][os.uname().machine != 'x86_64']
LOAD, EQUAL, ANSWER = 0x20, 0x15, 0x06
refuse = (ANSWER, 0, 0, 0x00050000 | getattr(errno, error))
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, len(seconds) + 1 if seconds else 1, number)]
if seconds:
    steps.append((LOAD, 0, 0, 24))
    steps += [(EQUAL, len(seconds) - at, 0, second) for at, second in enumerate(seconds)]
    steps += [(ANSWER, 0, 0, 0x7fff0000), refuse]
else:
    steps += [refuse, (ANSWER, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
class Program(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execvp(words[0], words)
"#;
/// fcntl(2) for locks: F_GETLK, F_SETLK, F_SETLKW and those of open file descriptions.
const LOCKS: &str = "[5, 6, 7, 36, 37, 38]";

fn failing(env: &TestEnv, call: &str, error: &str, seconds: &str) -> Command {
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", FAILING, call, error, seconds]).arg(runner());
    command
}

/// wait4(2) of the command fails too.
#[test]
fn a_run_ends_with_its_exit_code_even_if_wait4_fails() {
    let env = TestEnv::with_project();
    for (line, code, signal) in [("exit 7", 7, json!(null)), ("kill -9 $$", 137, json!(9))] {
        let mut command = failing(&env, "wait4", "ECHILD", "[]");
        command.args(["--json", "--timeout", "none", "--", "sh", "-c", line]);
        assert_eq!(env.answer(&mut command).expect(code).envelope()["result"]["signal"], signal);
    }
    env.assert_sound();
}

#[test]
fn a_file_system_without_locks_is_reported_at_once() {
    for env in [TestEnv::with_project(), TestEnv::new()] {
        let had_vault = env.project().join(".avfs").exists();
        let mut command = failing(&env, "fcntl", "ENOLCK", LOCKS);
        let envelope = env.answer(command.args(["--json", "--", "true"])).expect(125).envelope();
        assert_eq!(envelope["error"]["code"], json!("vault.locks_unsupported"), "{envelope}");
        // The unfinished vault is removed.
        assert!(had_vault || !env.vault_file().exists());
        env.avfs(&["init"]).expect(0);
        env.run(&["--", "true"]).expect(0);
    }
}

/// The supervisor cannot receive from the sandbox: before or while the command runs, the error is one of avfs, the
/// command is killed, and the run ends.
#[test]
fn a_lost_connection_to_the_sandbox_is_no_signal_of_the_command() {
    let env = TestEnv::with_project();
    let (mut before, mut later) = (0, 0);
    for number in 1.. {
        let mut strace = env.clean(Path::new("strace"));
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=recvmsg"]);
        strace.args(["-e", &format!("inject=recvmsg:error=EIO:when={number}")]).arg(runner());
        strace.args(["--json", "--timeout", "none", "--shell", "echo kept > kept"]);
        let answer = env.answer(&mut strace);
        if answer.code == Some(0) {
            break;
        }
        let envelope = answer.expect(125).envelope();
        if envelope["error"]["code"] == json!("run.host") {
            before += 1;
            continue;
        }
        let notes = envelope["result"]["notes"].as_array().unwrap();
        assert!(notes.iter().any(|note| note["code"] == json!("sandbox.lost")), "{envelope}");
        later += 1;
    }
    assert!(before > 0 && later > 0, "{before} and {later}");
    env.assert_sound();
}
