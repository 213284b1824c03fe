//! Tried: tracing init, to make it run the command's code with its capabilities.
//! Stopped by: init is not dumpable, and the command has no capability to trace it anyway.

use crate::attempt::own_host;
use crate::env::TestEnv;

/// PTRACE_SEIZE: it does not stop the traced process.
const SEIZE: &str = "
def seize():
    if libc.ptrace(0x4206, 1, 0, 0) < 0: raise OSError(ctypes.get_errno(), '')
tried('seize', seize)";

#[test]
fn init_cannot_be_traced() {
    let env = TestEnv::with_project();
    assert_eq!(own_host(&env, "python3 -c \"$P\"; :", SEIZE).text(), "seize gained\n");
    assert_eq!(own_host(&env, "\"$RUN\" -q -- python3 -c \"$P\"; :", SEIZE).text(), "seize EPERM\n");
}
