//! Tried: talking to a host service through an abstract socket, which has no name in the file system.
//! Stopped by: abstract names belong to the network namespace, and the command has its own.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;

#[test]
fn abstract_sockets_of_the_host_cannot_be_reached() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let env = TestEnv::with_project();
    let name = format!("avfs-test-{}", env.at("").display());
    let bound = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    listen(&bound, 5).unwrap();
    let connect = format!(
        "import socket\ntried('connect', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))"
    );
    assert_eq!(natively(&env, &connect).text(), "connect gained\n");
    assert_eq!(inside(&env, &[], &connect).text(), "connect ECONNREFUSED\n");
}
