//! Tried: typing into the command's own terminal, for the next process that reads it, with TIOCSTI; also with bits set
//! above the number, so that a filter that compares all 64 bits does not recognize the call.
//! Stopped by: the filter compares only the 32 bits that the kernel uses.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively};
use crate::env::TestEnv;
use crate::support;

/// In its own session, with a terminal that it made.
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
fn tiocsti_with_high_bits_is_refused() {
    let env = TestEnv::with_project();
    let control = natively(&env, TYPE);
    if !control.text().contains("plain gained") {
        return support::skip("tiocsti_with_high_bits_is_refused", "TIOCSTI is disabled in this kernel");
    }
    assert_all_gained(&control, &NAMES);
    assert_all_gained(&inside(&env, &["--seccomp", "off"], TYPE), &NAMES);
    for options in [&[][..], &["--seccomp", "strict"]] {
        assert_nothing_gained(&inside(&env, options, TYPE), &NAMES);
    }
}
