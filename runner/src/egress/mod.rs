//! The only way out of a sandbox with an allow list: connections to a listener inside are read, checked against the
//! list, and opened from here.
//!
//! The listener belongs to one thread and is closed when the thread ends for any reason; then there is no way out.

mod answer;
mod client;
mod dial;
mod log;
mod pump;
mod resolver;
mod serve;
mod stop;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::pipe::{PipeFlags, pipe_with};

use avfs_engine::Connections;
use avfs_request::AllowList;

use self::log::Log;
use self::stop::Stop;
use crate::sys::{Errno, Result};

/// The proxy of one run.
pub struct Egress {
    /// Closed to end it.
    running: OwnedFd,
    thread: JoinHandle<()>,
    log: Arc<Log>,
}

impl Egress {
    /// Starts accepting connections. `began` is when the command started.
    pub fn start(listener: OwnedFd, list: AllowList, began: Instant) -> Result<Self> {
        let (stopped, running) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        let log = Arc::new(Log::new(began));
        let context = serve::Context { list, log: Arc::clone(&log), stop: Stop(stopped) };
        let thread = std::thread::Builder::new().name("egress".to_owned());
        let thread = thread.spawn(move || serve::serve(listener, &context));
        let thread = thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self { running, thread, log })
    }

    /// Ends every connection and returns the log.
    pub fn finish(self) -> Connections {
        drop(self.running);
        if self.thread.join().is_err() {
            tracing::warn!("the proxy ended early: connections after that were refused");
        }
        self.log.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn start(list: &str) -> (Egress, SocketAddr, OwnedFd) {
        // A loopback address that no other process uses, so that no process reuses the port once it is closed.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let listener = TcpListener::bind((Ipv4Addr::new(127, a | 64, b, c), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let handle = OwnedFd::from(listener.try_clone().unwrap());
        let list = AllowList::parse(list).unwrap();
        (Egress::start(listener.into(), list, Instant::now()).unwrap(), address, handle)
    }

    fn is_refused(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    #[test]
    fn a_failed_listener_is_closed_and_connections_are_refused() {
        let (egress, address, handle) = start("127.0.0.1");
        assert!(TcpStream::connect(address).is_ok());
        // From now on it cannot accept connections.
        rustix::net::shutdown(&handle, rustix::net::Shutdown::Both).unwrap();
        drop(handle);
        let Egress { running, thread, log } = egress;
        thread.join().unwrap();
        assert!(is_refused(address));
        assert_eq!(log.take(), Connections::default());
        drop(running);
    }

    #[test]
    fn the_end_of_a_run_ends_its_connections() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let (egress, address, handle) = start(&format!("127.0.0.1:{port}"));
        drop(handle);
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").unwrap();
        let (mut inner, _) = server.accept().unwrap();
        let mut said = [0; 12];
        client.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"HTTP/1.1 200");
        let connections = egress.finish();
        assert_eq!(connections.list.len(), 1);
        // Aborted, not ended: the client must not mistake it for a complete response.
        assert!(inner.read(&mut said).is_err());
        assert!(is_refused(address));
    }

    #[test]
    fn an_aborted_response_is_aborted_for_the_client_too() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let (egress, address, _handle) = start(&format!("127.0.0.1:{port}"));
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n").unwrap();
        let (mut inner, _) = server.accept().unwrap();
        let mut head = [0; 5];
        inner.read_exact(&mut head).unwrap();
        inner.write_all(b"HTTP/1.1 200 OK\r\n\r\nhal").unwrap();
        // With a linger time of zero, the socket is closed with a reset.
        rustix::net::sockopt::set_socket_linger(&inner, Some(Duration::ZERO)).unwrap();
        drop(inner);
        let mut said = Vec::new();
        assert!(client.read_to_end(&mut said).is_err(), "{said:?}");
        egress.finish();
    }
}
