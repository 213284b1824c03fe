//! Tried: reading tokens from the caller's environment, through the command's own environment and that of others.
//! Stopped by: the environment is an allow list; processes outside are not in the /proc inside.

use crate::attempt::own_host_command;
use crate::env::TestEnv;

const LOOK: &str = "
import glob
def has(path):
    if b'precious-token' not in open(path, 'rb').read(): raise OSError(errno.ENOENT, '')
tried('own', lambda: has('/proc/self/environ'))
def anyone():
    for path in glob.glob('/proc/[0-9]*/environ'):
        try: return has(path)
        except OSError: pass
    raise OSError(errno.ENOENT, '')
tried('anyone', anyone)";

#[test]
fn variables_of_the_caller_are_not_inherited() {
    let env = TestEnv::with_project();
    // On a separate host, where all processes belong to the test: no other variables are read.
    let with = |start: &str| {
        let mut command = own_host_command(&env, &format!("{start} -- python3 -c \"$P\"; :"), LOOK);
        command.env("AWS_SECRET_ACCESS_KEY", "precious-token").env("LD_PRELOAD_TOKEN", "precious-token");
        env.answer(&mut command).text()
    };
    assert_eq!(with("env"), "own gained\nanyone gained\n");
    for start in ["\"$RUN\" -q", "\"$RUN\" -q --profile host"] {
        assert_eq!(with(start), "own ENOENT\nanyone ENOENT\n", "{start}");
    }
}
