//! Tried: a socket to the hypervisor, which a network namespace does not restrict.
//! Stopped by: the seccomp filter allows only the usual families.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;
use crate::support;

/// Made and closed, but never connected.
const MAKE: &str = "import socket\ntried('vsock', lambda: socket.socket(40, socket.SOCK_STREAM).close())";

#[test]
fn vsock_is_refused() {
    let env = TestEnv::with_project();
    if natively(&env, MAKE).text() != "vsock gained\n" {
        return support::skip("vsock_is_refused", "this kernel has no vsock");
    }
    // A network namespace alone does not stop it.
    assert_eq!(inside(&env, &["--seccomp", "off"], MAKE).text(), "vsock gained\n");
    for options in [&[][..], &["--net", "host"], &["--seccomp", "strict"]] {
        assert_eq!(inside(&env, options, MAKE).text(), "vsock EAFNOSUPPORT\n", "{options:?}");
    }
}
