//! Tried: socket families that few programs use and in which many bugs were found: packet sockets, kernel crypto, CAN.
//! Stopped by: the seccomp filter allows only the usual families.

use crate::attempt::{inside, outcomes};
use crate::env::TestEnv;
use crate::support;

const MAKE: &str = "import socket
for name, family, kind in (('packet', 17, 3), ('ciphers', 38, 5), ('can', 29, 3), ('tipc', 30, 2), ('rds', 21, 5),
                           ('xdp', 44, 3), ('kcm', 41, 5)):
    tried(name, lambda: socket.socket(family, kind).close())
for family in (1, 2, 10): socket.socket(family, socket.SOCK_STREAM).close()
socket.socketpair()";
const FAMILIES: usize = 7;

#[test]
fn rare_socket_families_are_refused() {
    let env = TestEnv::with_project();
    for options in [&[][..], &["--seccomp", "strict"], &["--net", "host"]] {
        let confined = outcomes(&inside(&env, options, MAKE).expect(0));
        assert_eq!(confined.len(), FAMILIES);
        assert!(confined.values().all(|outcome| outcome == "EAFNOSUPPORT"), "{options:?}: {confined:?}");
    }
    // Control: without the filter the kernel answers, for some families with a socket or a permission error.
    let relaxed = outcomes(&inside(&env, &["--seccomp", "off"], MAKE).expect(0));
    if relaxed.values().all(|outcome| outcome == "EAFNOSUPPORT") {
        support::skip("rare_socket_families_are_refused", "this kernel has no rare families");
    }
}
