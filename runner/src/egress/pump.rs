//! Copies data between a client and a server until both have sent all of it.
//!
//! End of file in one direction is passed on as such, and an abort as an abort: truncated data is never presented as
//! complete.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

use avfs_egress::Body;

use super::stop::{Stop, Woken};
use crate::sys::Errno;

const BUFFER_BYTES: usize = 64 * 1024;
/// A connection without traffic is closed after this.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// What the client may send.
pub enum Upward {
    /// Everything.
    Tunnel,
    /// One body; data after it is dropped.
    Body(Body),
}

/// The number of bytes copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub up: u64,
    pub down: u64,
}

/// One direction.
struct Lane {
    buffer: Vec<u8>,
    /// The unsent part of the buffer.
    from: usize,
    to: usize,
    moved: u64,
    state: State,
    sink: Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Open,
    /// It accepts no more data; further data is dropped.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flowing,
    /// No more input; the rest of the buffer is being sent.
    Ending,
    Ended,
}

/// The peer is gone or the connection is broken.
struct Broken;

impl Lane {
    fn new(waiting: Vec<u8>) -> Self {
        let to = waiting.len();
        let mut buffer = waiting;
        buffer.resize(to.max(BUFFER_BYTES), 0);
        Self { buffer, from: 0, to, moved: 0, state: State::Flowing, sink: Sink::Open }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Reads available data without blocking; true if data arrived.
    fn fill(&mut self, source: &OwnedFd) -> Result<bool, Broken> {
        if self.state != State::Flowing || !self.is_empty() {
            return Ok(false);
        }
        match rustix::net::recv(source, &mut self.buffer[..BUFFER_BYTES], RecvFlags::empty()) {
            Ok((0, _)) => {
                self.state = State::Ending;
                Ok(true)
            }
            Ok((length, _)) => {
                (self.from, self.to) = (0, length);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(_) => Err(Broken),
        }
    }

    /// Writes as much as possible without blocking; true if data was sent.
    fn empty(&mut self, sink: &OwnedFd) -> Result<bool, Broken> {
        if self.is_empty() {
            return Ok(false);
        }
        match rustix::net::send(sink, &self.buffer[self.from..self.to], SendFlags::NOSIGNAL) {
            Ok(length) => {
                self.from += length;
                self.moved += u64::try_from(length).unwrap_or(0);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(_) => Err(Broken),
        }
    }

    /// The same for a sink that may have gone while its own data is still pending: that is still read.
    fn empty_or_drop(&mut self, sink: &OwnedFd) -> bool {
        if self.sink == Sink::Open
            && let Ok(went) = self.empty(sink)
        {
            return went;
        }
        let had = !self.is_empty();
        self.from = self.to;
        self.sink = Sink::Gone;
        had
    }

    /// The events that this lane waits for: at its source, at its sink.
    fn waits_for(&self) -> (PollFlags, PollFlags) {
        match (self.is_empty(), self.state) {
            (false, _) => (PollFlags::empty(), PollFlags::OUT),
            (true, State::Flowing) => (PollFlags::IN, PollFlags::empty()),
            (true, State::Ending | State::Ended) => (PollFlags::empty(), PollFlags::empty()),
        }
    }
}

/// Copies data until both directions have ended. `early` came from the client before the server was connected; `head`
/// is ours and goes first.
pub fn pump(
    client: &OwnedFd,
    server: &OwnedFd,
    upward: Upward,
    head: Vec<u8>,
    early: &[u8],
    stop: &Stop,
) -> Moved {
    // Small writes are forwarded at once: delaying them is up to the two endpoints.
    for socket in [client, server] {
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_socket_keepalive(socket, true);
    }
    let mut pump = Pump { up: Lane::new(head), down: Lane::new(Vec::new()), upward };
    let whole = pump.take_early(early).and_then(|()| pump.run(client, server, stop));
    if whole.is_err() {
        // Closed with a reset.
        for socket in [client, server] {
            let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
    Moved { up: pump.up.moved, down: pump.down.moved }
}

struct Pump {
    up: Lane,
    down: Lane,
    upward: Upward,
}

impl Pump {
    fn take_early(&mut self, early: &[u8]) -> Result<(), Broken> {
        self.up.buffer.truncate(self.up.to);
        match &mut self.upward {
            Upward::Tunnel => self.up.buffer.extend_from_slice(early),
            Upward::Body(body) => drop(body.take(early, &mut self.up.buffer).map_err(|_| Broken)?),
        }
        self.up.to = self.up.buffer.len();
        self.up.buffer.resize(self.up.to.max(BUFFER_BYTES), 0);
        Ok(())
    }

    fn run(&mut self, client: &OwnedFd, server: &OwnedFd, stop: &Stop) -> Result<(), Broken> {
        let mut idle_until = Instant::now() + IDLE;
        while !self.is_over() {
            let mut moving = self.fill_up(client)?;
            moving |= self.up.empty_or_drop(server);
            moving |= self.down.fill(server)?;
            moving |= self.down.empty(client)?;
            self.end_lanes(client, server);
            if moving {
                continue;
            }
            let (client_in, server_out) = self.up.waits_for();
            let (server_in, client_out) = self.down.waits_for();
            let waits = [(client.as_fd(), client_in | client_out), (server.as_fd(), server_in | server_out)];
            match stop.wait_any(waits, idle_until) {
                Woken::Ready => idle_until = Instant::now() + IDLE,
                Woken::Stopped | Woken::Late => return Err(Broken),
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match self.upward {
            Upward::Tunnel if self.up.sink == Sink::Open => {
                self.up.state == State::Ended && self.down.state == State::Ended
            }
            // Only the response matters.
            Upward::Tunnel | Upward::Body(_) => self.down.state == State::Ended,
        }
    }

    fn fill_up(&mut self, client: &OwnedFd) -> Result<bool, Broken> {
        let Upward::Body(body) = &mut self.upward else { return self.up.fill(client) };
        let came = self.up.fill(client)?;
        if self.up.state == State::Ending && !body.is_done() {
            return Err(Broken);
        }
        if !came || self.up.is_empty() {
            return Ok(came);
        }
        let mut onward = Vec::with_capacity(BUFFER_BYTES);
        body.take(&self.up.buffer[..self.up.to], &mut onward).map_err(|_| Broken)?;
        (self.up.from, self.up.to) = (0, onward.len());
        onward.resize(onward.len().max(BUFFER_BYTES), 0);
        self.up.buffer = onward;
        Ok(true)
    }

    /// Passes end of file on.
    fn end_lanes(&mut self, client: &OwnedFd, server: &OwnedFd) {
        if self.up.state == State::Ending && self.up.is_empty() {
            self.up.state = State::Ended;
            match self.upward {
                Upward::Tunnel => drop(rustix::net::shutdown(server, Shutdown::Write)),
                // The body has its own end marker; some servers treat a half-closed connection as a client that left.
                Upward::Body(_) => {}
            }
        }
        if self.down.state == State::Ending && self.down.is_empty() {
            self.down.state = State::Ended;
            let _ = rustix::net::shutdown(client, Shutdown::Write);
        }
    }
}
