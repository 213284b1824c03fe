//! Tried: system calls that bypass the filter, through a ring shared with the kernel.
//! Stopped by: the filter refuses io_uring.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;
use crate::support;

const RING: &str = "tried('ring', lambda: os.close(call(425, 1, ctypes.create_string_buffer(120))))";

#[test]
fn io_uring_is_refused() {
    let env = TestEnv::with_project();
    if natively(&env, RING).text() != "ring gained\n" {
        return support::skip("io_uring_is_refused", "this kernel has no io_uring");
    }
    assert_eq!(inside(&env, &["--seccomp", "off"], RING).text(), "ring gained\n");
    for options in [&[][..], &["--seccomp", "strict"], &["--allow-userns"], &["--profile", "host"]] {
        let text = inside(&env, options, RING).text();
        assert!(["ring EPERM\n", "ring ENOSYS\n"].contains(&&*text), "{options:?}: {text}");
    }
}
