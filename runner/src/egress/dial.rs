//! Name lookups, the addresses of this machine, and outgoing connections.
//!
//! Connects only to the addresses of a [`Route`].

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::pipe::{PipeFlags, pipe_with};

use avfs_egress::{Outside, Route};
use avfs_hostfs::machine;

use super::resolver;
use super::stop::{Stop, Woken};
use crate::sys;
use crate::sys::Errno;

const LOOKUP: Duration = Duration::from_secs(10);
/// Timeout for all addresses of a host.
const DIALLING: Duration = Duration::from_secs(30);
/// Timeout for one address if others remain.
const DIALLING_ONE: Duration = Duration::from_secs(10);
/// The maximum number of concurrent lookups, twice that of connections: the system's resolver cannot be interrupted,
/// and an abandoned lookup continues for a while.
const LOOKUPS_MAX: usize = 512;
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot look up its address: {source}")]
    Lookup {
        #[source]
        source: std::io::Error,
    },
    #[error("it has no address")]
    Nowhere,
    #[error("the connection timed out")]
    Late,
    #[error("too many lookups in progress")]
    Busy,
    #[error("cannot list the addresses of this machine: {0}")]
    Own(Errno),
    #[error("{address}: {source}")]
    Connect {
        address: SocketAddr,
        #[source]
        source: Errno,
    },
    #[error("the run ended first")]
    Stopped,
}

impl DialError {
    /// The last address tried.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Connect { address, .. } => Some(address.ip()),
            Self::Lookup { .. } | Self::Nowhere | Self::Late | Self::Busy | Self::Own(_) | Self::Stopped => {
                None
            }
        }
    }
}

/// The network, as seen from this machine.
pub struct World<'a> {
    pub stop: &'a Stop,
}

/// Counts as one lookup until it is dropped.
struct Lookup;

impl Lookup {
    fn begin() -> Option<Self> {
        let room = |count: usize| (count < LOOKUPS_MAX).then_some(count + 1);
        LOOKUPS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok().map(|_| Self)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outside for World<'_> {
    type Error = DialError;

    fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, DialError> {
        let lookup = Lookup::begin().ok_or(DialError::Busy)?;
        let io = |source| DialError::Lookup { source };
        // Closed when the thread ends, which wakes us up.
        let (done, working) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| io(errno.into()))?;
        let (answer, answered) = mpsc::channel();
        let name = name.to_owned();
        let thread = std::thread::Builder::new().name("lookup".to_owned());
        let looking = thread.spawn(move || {
            // The receiver may have given up waiting.
            let _ = answer.send(look_up(&name));
            drop((lookup, working));
        });
        looking.map_err(io)?;
        match self.stop.wait(done.as_fd(), PollFlags::IN, Instant::now() + LOOKUP) {
            Woken::Ready => {}
            Woken::Stopped => return Err(DialError::Stopped),
            Woken::Late => return Err(DialError::Late),
        }
        answered.try_recv().map_err(|_| DialError::Nowhere)?.map_err(io)
    }

    fn own_addresses(&self) -> Result<Vec<IpAddr>, DialError> {
        sys::own_addresses().map_err(DialError::Own)
    }
}

fn look_up(name: &str) -> std::io::Result<Vec<IpAddr>> {
    if machine::HAS_NAME_SERVICE {
        Ok((name, 0_u16).to_socket_addrs()?.map(|address| address.ip()).collect())
    } else {
        resolver::lookup(name)
    }
}

/// Tries the addresses of a route in order until one accepts.
pub fn dial(route: &Route, stop: &Stop) -> Result<(OwnedFd, IpAddr), DialError> {
    let until = Instant::now() + DIALLING;
    let mut failed = DialError::Nowhere;
    let mut left = route.addresses().count();
    for address in route.addresses() {
        left -= 1;
        let now = Instant::now();
        let until = if left > 0 { until.min(now + DIALLING_ONE) } else { until };
        match dial_one(address, stop, until) {
            Ok(socket) => return Ok((socket, address.ip())),
            Err(DialError::Stopped) => return Err(DialError::Stopped),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn dial_one(address: SocketAddr, stop: &Stop, until: Instant) -> Result<OwnedFd, DialError> {
    let failed = |errno: Errno| DialError::Connect { address, source: errno };
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            match stop.wait(socket.as_fd(), PollFlags::OUT, until) {
                Woken::Ready => {}
                Woken::Stopped => return Err(DialError::Stopped),
                Woken::Late => return Err(DialError::Late),
            }
            sockopt::socket_error(&socket).and_then(|outcome| outcome).map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno)),
    }
    Ok(socket)
}
