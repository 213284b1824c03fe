//! The listening socket inside, from which the proxy outside accepts connections. The socket stays in the sandbox's
//! network namespace even after its descriptor is passed out.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use avfs_egress::PROXY_PORT;

use crate::sys::Result;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on every address inside; only loopback addresses exist there. Neither allocates nor locks.
pub fn open() -> Result<OwnedFd> {
    match socket(AddressFamily::INET6) {
        Ok(socket) => {
            // One socket for both families.
            sockopt::set_ipv6_v6only(&socket, false)?;
            bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, PROXY_PORT)))?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        }
        // A kernel without IPv6.
        Err(Errno::AFNOSUPPORT) => {
            let socket = socket(AddressFamily::INET)?;
            bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT)))?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        }
        Err(errno) => Err(errno),
    }
}

fn socket(family: AddressFamily) -> Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}
