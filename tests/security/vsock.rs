//! Tried: a socket to the hypervisor, which no network namespace holds back.
//! Stopped by: the filter of system calls lets only the usual families through.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;
use crate::support;

/// Made and closed: nobody is called.
const MAKE: &str = "import socket\ntried('vsock', lambda: socket.socket(40, socket.SOCK_STREAM).close())";

#[test]
fn no_socket_leads_to_the_hypervisor() {
    let env = TestEnv::with_project();
    if natively(&env, MAKE).text() != "vsock gained\n" {
        return support::skip("no_socket_leads_to_the_hypervisor", "this kernel has no vsock");
    }
    // A namespace alone does not stop it.
    assert_eq!(inside(&env, &["--seccomp", "off"], MAKE).text(), "vsock gained\n");
    for options in [&[][..], &["--net", "host"], &["--seccomp", "strict"]] {
        assert_eq!(inside(&env, options, MAKE).text(), "vsock EAFNOSUPPORT\n", "{options:?}");
    }
}
