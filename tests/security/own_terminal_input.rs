//! Tried: typing into the command's own terminal, for whoever reads it next, by TIOCSTI; also with bits set above
//! the number, which a filter that compares all 64 of them takes for another call.
//! Stopped by: the filter compares the half that the kernel looks at.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively};
use crate::env::TestEnv;
use crate::support;

/// In a session of its own, with a terminal that it has made.
const TYPE: &str = "import pty
at = '/tmp/avfs-typed-' + str(os.getpid())
pid, terminal = pty.fork()
if pid == 0:
    def push(bits):
        if libc.ioctl(0, ctypes.c_ulong(bits | 0x5412), ctypes.byref(ctypes.c_char(b'x'))) < 0:
            raise OSError(ctypes.get_errno(), '')
    out = os.open(at, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(out, 1)
    tried('plain', lambda: push(0))
    tried('high bit', lambda: push(1 << 32))
    tried('all high bits', lambda: push(0xffffffff << 32))
    os._exit(0)
os.waitpid(pid, 0)
print(open(at).read(), end='')
os.unlink(at)";
const NAMES: [&str; 3] = ["plain", "high bit", "all high bits"];

#[test]
fn nothing_is_typed_by_a_number_in_disguise() {
    let env = TestEnv::with_project();
    let control = natively(&env, TYPE);
    if !control.text().contains("plain gained") {
        return support::skip(
            "nothing_is_typed_by_a_number_in_disguise",
            "this kernel lets nobody type for others",
        );
    }
    assert_all_gained(&control, &NAMES);
    assert_all_gained(&inside(&env, &["--seccomp", "off"], TYPE), &NAMES);
    for options in [&[][..], &["--seccomp", "strict"]] {
        assert_nothing_gained(&inside(&env, options, TYPE), &NAMES);
    }
}
