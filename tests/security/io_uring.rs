//! Tried: system calls that no filter sees, through a ring shared with the kernel.
//! Stopped by: the filter refuses the ring.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;
use crate::support;

const RING: &str = "tried('ring', lambda: os.close(call(425, 1, ctypes.create_string_buffer(120))))";

#[test]
fn no_ring_is_made() {
    let env = TestEnv::with_project();
    if natively(&env, RING).text() != "ring gained\n" {
        return support::skip("no_ring_is_made", "this kernel has no io_uring");
    }
    assert_eq!(inside(&env, &["--seccomp", "off"], RING).text(), "ring gained\n");
    for options in [&[][..], &["--seccomp", "strict"], &["--allow-userns"], &["--profile", "host"]] {
        let text = inside(&env, options, RING).text();
        assert!(["ring EPERM\n", "ring ENOSYS\n"].contains(&&*text), "{options:?}: {text}");
    }
}
