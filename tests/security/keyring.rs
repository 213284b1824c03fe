//! Tried: reading a key from the caller's session keyring.
//! Stopped by: the command joins a new session keyring.

use crate::attempt::{outside, program};
use crate::env::{Running, TestEnv, runner};
use crate::support;

const SEEK: &str = "
add, control = (248, 250) if X86 else (217, 219)
if len(sys.argv) > 1:
    libc.syscall(control, 1, None)
    if libc.syscall(add, b'user', b'avfs-test-key', b'secret', 6, ctypes.c_int(-3)) < 0: sys.exit(3)
    os.execvp(sys.argv[1], sys.argv[1:])
found = libc.syscall(control, 10, ctypes.c_int(-3), b'user', b'avfs-test-key', 0)
print('found' if found > 0 else 'nothing')";

#[test]
fn session_keyring_is_new() {
    let env = TestEnv::with_project();
    let seek = program(SEEK);
    let with_key = |words: &[&str]| {
        let mut command = outside(&env, SEEK);
        command.args(words);
        command
    };
    let control = Running::start(&mut with_key(&["python3", "-c", &seek])).answer();
    if control.code == Some(3) {
        return support::skip("session_keyring_is_new", "this kernel has no keyrings");
    }
    assert_eq!(control.text(), "found\n", "{control:?}");
    let run = runner();
    for profile in [&[][..], &["--profile", "host"]] {
        let mut words = vec![run.to_str().unwrap(), "-q"];
        words.extend(profile);
        words.extend(["--", "python3", "-c", &seek]);
        assert_eq!(env.answer(&mut with_key(&words)).expect(0).text(), "nothing\n");
    }
}
