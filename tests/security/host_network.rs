//! Tried: connecting to a server on the host's loopback, and to anything beyond.
//! Stopped by: a network namespace that has only its own loopback interface.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;

#[test]
fn network_has_only_loopback() {
    let env = TestEnv::with_project();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!(
        "import socket\ntried('connect', lambda: socket.create_connection(('127.0.0.1', {port}), 5))"
    );
    assert_eq!(natively(&env, &connect).text(), "connect gained\n");
    assert_eq!(inside(&env, &["--net", "host"], &connect).text(), "connect gained\n");
    assert_eq!(inside(&env, &[], &connect).text(), "connect ECONNREFUSED\n");
    let own = "import socket; s = socket.create_server(('127.0.0.1', 0)); \
               socket.create_connection(s.getsockname()); print([name for _, name in socket.if_nameindex()])";
    assert_eq!(inside(&env, &[], own).expect(0).text(), "['lo']\n");
    // An address reserved for documentation: nothing answers there, and inside there is no route to it.
    let far = "import socket\ntried('far', lambda: socket.create_connection(('192.0.2.1', 80), 5))";
    assert_eq!(inside(&env, &[], far).text(), "far ENETUNREACH\n");
}
