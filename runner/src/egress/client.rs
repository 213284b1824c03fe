//! The client side of a connection, until its destination is known.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use avfs_egress::{
    GREETED, HEAD_BYTES_MAX, Head, HeadError, HostError, HttpAsk, SocksError, Target, greeting, request,
};

use super::stop::{Stop, Woken};
use crate::sys::Errno;

/// The timeout for reading a request.
const ASKING: Duration = Duration::from_secs(30);
/// The timeout for the final reply, and for the client to receive it.
const LEAVING: Duration = Duration::from_secs(2);
const READ_BYTES: usize = 16 * 1024;
/// The limit on data that a refused client still sends.
const IGNORED_BYTES_MAX: usize = 1024 * 1024;

/// The client's protocol, and its request.
#[derive(Debug)]
pub enum Manner {
    Socks,
    Http(HttpAsk),
}

/// A client's request.
#[derive(Debug)]
pub struct Ask {
    pub target: Result<Target, HostError>,
    /// The host as it was written, or an approximation that can be displayed.
    pub shown: String,
    pub port: u16,
    pub manner: Manner,
}

/// Why a client has no valid request.
#[derive(Debug, thiserror::Error)]
pub enum NoAsk {
    #[error("the client closed the connection")]
    Gone,
    #[error("the client sent no complete request within {} seconds", ASKING.as_secs())]
    Late,
    #[error("the client speaks neither HTTP nor SOCKS5")]
    Foreign,
    #[error(transparent)]
    Socks(#[from] SocksError),
    #[error(transparent)]
    Http(#[from] HeadError),
}

pub struct Client<'a> {
    fd: OwnedFd,
    stop: &'a Stop,
    /// Data that was received but not used yet.
    bytes: Vec<u8>,
}

impl<'a> Client<'a> {
    pub fn new(fd: OwnedFd, stop: &'a Stop) -> Self {
        Self { fd, stop, bytes: Vec::new() }
    }

    /// The socket, and the data that came after the request.
    pub fn into_parts(self) -> (OwnedFd, Vec<u8>) {
        (self.fd, self.bytes)
    }

    /// Reads the request. Data after it stays in the buffer.
    pub fn ask(&mut self) -> Result<Ask, NoAsk> {
        let until = Instant::now() + ASKING;
        while self.bytes.is_empty() {
            self.more(until)?;
        }
        match self.bytes.first() {
            Some(5) => self.ask_by_socks(until),
            Some(byte) if byte.is_ascii_alphabetic() => self.ask_by_http(until),
            _ => Err(NoAsk::Foreign),
        }
    }

    fn ask_by_socks(&mut self, until: Instant) -> Result<Ask, NoAsk> {
        let length = loop {
            match greeting(&self.bytes)? {
                Some(length) => break length,
                None => self.more(until)?,
            }
        };
        self.bytes.drain(..length);
        self.say_until(&GREETED, until)?;
        let ask = loop {
            match request(&self.bytes)? {
                Some(ask) => break ask,
                None => self.more(until)?,
            }
        };
        self.bytes.drain(..ask.length);
        Ok(Ask { target: ask.target, shown: ask.shown, port: ask.port, manner: Manner::Socks })
    }

    fn ask_by_http(&mut self, until: Instant) -> Result<Ask, NoAsk> {
        let head = loop {
            match Head::parse(&self.bytes)? {
                Some(head) => break head,
                None => self.more(until)?,
            }
        };
        self.bytes.drain(..head.length);
        let (shown, port) = match &head.target {
            Ok(target) => (target.host.to_string(), target.port),
            Err(_) => (head.shown, 0),
        };
        Ok(Ask { target: head.target, shown, port, manner: Manner::Http(head.ask) })
    }

    fn more(&mut self, until: Instant) -> Result<(), NoAsk> {
        // No valid head is longer, and its parser has rejected a longer one by now.
        let room = (HEAD_BYTES_MAX + READ_BYTES).saturating_sub(self.bytes.len()).min(READ_BYTES);
        let held = self.bytes.len();
        loop {
            match self.stop.wait(self.fd.as_fd(), PollFlags::IN, until) {
                Woken::Ready => {}
                Woken::Stopped => return Err(NoAsk::Gone),
                Woken::Late => return Err(NoAsk::Late),
            }
            self.bytes.resize(held + room, 0);
            let read = rustix::net::recv(&self.fd, &mut self.bytes[held..], RecvFlags::empty());
            let length = read.as_ref().map_or(0, |(length, _)| *length);
            self.bytes.truncate(held + length);
            match read {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok((0, _)) | Err(_) => return Err(NoAsk::Gone),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Sends bytes to the client.
    pub fn say(&self, bytes: &[u8]) -> Result<(), NoAsk> {
        self.say_until(bytes, Instant::now() + LEAVING)
    }

    fn say_until(&self, mut bytes: &[u8], until: Instant) -> Result<(), NoAsk> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(length) => bytes = &bytes[length..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => match self.stop.wait(self.fd.as_fd(), PollFlags::OUT, until) {
                    Woken::Ready => {}
                    Woken::Stopped => return Err(NoAsk::Gone),
                    Woken::Late => return Err(NoAsk::Late),
                },
                Err(_) => return Err(NoAsk::Gone),
            }
        }
        Ok(())
    }

    /// Sends a final reply. Data that the client is still sending is read for a moment: if the socket was closed
    /// before, a reset would make the client's system discard the reply.
    pub fn dismiss(self, bytes: &[u8]) {
        if self.say(bytes).is_err() || rustix::net::shutdown(&self.fd, Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + LEAVING;
        let mut ignored = 0;
        let mut buffer = [0; READ_BYTES];
        while ignored < IGNORED_BYTES_MAX
            && self.stop.wait(self.fd.as_fd(), PollFlags::IN, until) == Woken::Ready
        {
            match rustix::net::recv(&self.fd, &mut buffer, RecvFlags::empty()) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok((0, _)) | Err(_) => return,
                Ok((length, _)) => ignored += length,
            }
        }
    }
}
