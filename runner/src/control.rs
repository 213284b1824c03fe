//! The channel between the supervisor and init: orders in one direction; descriptors and the end of the run in the
//! other.
//!
//! A `SOCK_SEQPACKET` socket pair, which preserves message boundaries. When one side dies, the other reads end of
//! file.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::sys::{Result, TreeUsage};

/// The first byte of a message from init.
pub const MEMORY: u8 = b'm';
pub const TERMINAL: u8 = b't';
pub const LISTENER: u8 = b'l';
pub const NOTIFIER: u8 = b'c';
const NO_NOTIFIER: u8 = b'n';
pub const PROC: u8 = b'p';
pub const INPUT: u8 = b'i';
const NO_INPUT: u8 = b'I';
const STOPPED: u8 = b'z';
const WRITTEN: u8 = b'w';
const END: u8 = b'e';

const GO: u8 = b'g';
const SIGNAL: u8 = b's';
const TERMINATE: u8 = b'T';
const KILL: u8 = b'K';
const STOP: u8 = b'Z';
const CONTINUE: u8 = b'C';

const MESSAGE_BYTES: usize = 32;

/// An order to init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Forward a signal to the command.
    Signal(i32),
    TerminateAll,
    KillAll,
    StopAll,
    ContinueAll,
}

/// How the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The command's wait(2) status.
    pub status: i32,
    /// Number of processes that it left running, which were killed.
    pub left_running: u16,
    pub usage: TreeUsage,
}

/// Both ends of the channel; each process closes the other's.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// One end of the channel.
#[derive(Clone, Copy)]
pub struct Channel<'a>(pub BorrowedFd<'a>);

impl AsFd for Channel<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}

/// A message from init.
#[derive(Debug)]
pub enum Message {
    Memory(OwnedFd),
    Terminal(OwnedFd),
    /// The listening socket for the command's connections.
    Listener(OwnedFd),
    /// The descriptor on which the kernel reports calls that the filter refuses, if it supports that.
    Notifier(Option<OwnedFd>),
    /// The sandbox's own /proc.
    Proc(OwnedFd),
    /// Stdin, reopened, if init succeeded.
    Input(Option<OwnedFd>),
    /// The command was stopped by a signal.
    Stopped,
    /// A private directory that the command wrote to, by its index. Sent right before the end.
    Written(usize, OwnedFd),
    End(End),
}

impl Channel<'_> {
    fn send(&self, bytes: &[u8]) -> Result<()> {
        // Report a dead peer as an error, not as a fatal SIGPIPE.
        rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL).map(drop)
    }

    fn receive(&self, bytes: &mut [u8]) -> Result<usize> {
        loop {
            match rustix::net::recv(self.0, &mut *bytes, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => return other.map(|(length, _)| length),
            }
        }
    }

    // The supervisor's side.

    pub fn go(&self) -> Result<()> {
        self.send(&[GO])
    }

    pub fn order(&self, order: Order) -> Result<()> {
        match order {
            Order::Signal(signal) => self.send(&[SIGNAL, u8::try_from(signal).unwrap_or(0)]),
            Order::TerminateAll => self.send(&[TERMINATE]),
            Order::KillAll => self.send(&[KILL]),
            Order::StopAll => self.send(&[STOP]),
            Order::ContinueAll => self.send(&[CONTINUE]),
        }
    }

    /// The next message; `None` if init has exited.
    pub fn next_message(&self) -> Result<Option<Message>> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                // Init exited before it received an order. The kernel reports this once, before the messages that
                // init sent.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        let fd = ancillary.drain().find_map(|message| {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message { fds.next() } else { None }
        });
        match (received.bytes, bytes[0], fd) {
            (0, _, _) => Ok(None),
            (_, MEMORY, Some(fd)) => Ok(Some(Message::Memory(fd))),
            (_, TERMINAL, Some(fd)) => Ok(Some(Message::Terminal(fd))),
            (_, LISTENER, Some(fd)) => Ok(Some(Message::Listener(fd))),
            (_, NOTIFIER, Some(fd)) => Ok(Some(Message::Notifier(Some(fd)))),
            (_, NO_NOTIFIER, None) => Ok(Some(Message::Notifier(None))),
            (_, PROC, Some(fd)) => Ok(Some(Message::Proc(fd))),
            (_, INPUT, Some(fd)) => Ok(Some(Message::Input(Some(fd)))),
            (_, NO_INPUT, None) => Ok(Some(Message::Input(None))),
            (_, STOPPED, None) => Ok(Some(Message::Stopped)),
            (2, WRITTEN, Some(fd)) => Ok(Some(Message::Written(usize::from(bytes[1]), fd))),
            (_, END, _) => Ok(Some(Message::End(decode_end(&bytes)))),
            _ => Err(Errno::PROTO),
        }
    }

    // Init's side: must not allocate.

    /// False if the supervisor has exited.
    pub fn wait_for_go(&self) -> Result<bool> {
        let mut byte = [0];
        Ok(self.receive(&mut byte)? == 1 && byte[0] == GO)
    }

    pub fn next_order(&self) -> Option<Order> {
        let mut bytes = [0; 2];
        match (self.receive(&mut bytes), bytes[0]) {
            (Ok(2), SIGNAL) => Some(Order::Signal(i32::from(bytes[1]))),
            (Ok(1), TERMINATE) => Some(Order::TerminateAll),
            (Ok(1), KILL) => Some(Order::KillAll),
            (Ok(1), STOP) => Some(Order::StopAll),
            (Ok(1), CONTINUE) => Some(Order::ContinueAll),
            _ => None,
        }
    }

    pub fn send_fd(&self, kind: u8, fd: BorrowedFd<'_>) -> Result<()> {
        self.send_with(&[kind], fd)
    }

    /// A private directory that is not empty.
    pub fn send_written(&self, number: u8, fd: BorrowedFd<'_>) -> Result<()> {
        self.send_with(&[WRITTEN, number], fd)
    }

    fn send_with(&self, bytes: &[u8], fd: BorrowedFd<'_>) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::NOBUFS);
        }
        sendmsg(self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    pub fn send_no_notifier(&self) -> Result<()> {
        self.send(&[NO_NOTIFIER])
    }

    pub fn send_no_input(&self) -> Result<()> {
        self.send(&[NO_INPUT])
    }

    pub fn send_stopped(&self) -> Result<()> {
        self.send(&[STOPPED])
    }

    pub fn send_end(&self, end: &End) -> Result<()> {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = END;
        bytes[2..4].copy_from_slice(&end.left_running.to_le_bytes());
        bytes[4..8].copy_from_slice(&end.status.to_le_bytes());
        let usage = [end.usage.user_micros, end.usage.system_micros, end.usage.max_rss_kib];
        for (at, number) in usage.iter().enumerate() {
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
        }
        self.send(&bytes)
    }

    /// Closes all descriptors except this channel, so that init does not keep any stream open. End of file on the
    /// report pipe signals to the supervisor that the command runs.
    pub fn keep_alone(&self) -> Result<()> {
        crate::sys::close_all_but(self.0)
    }
}

fn decode_end(bytes: &[u8; MESSAGE_BYTES]) -> End {
    let number = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    let status = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let usage = TreeUsage { user_micros: number(8), system_micros: number(16), max_rss_kib: number(24) };
    End { status, left_running: u16::from_le_bytes([bytes[2], bytes[3]]), usage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_descriptors_and_the_end_are_transmitted() {
        let (ours, theirs) = pair().unwrap();
        let (supervisor, init) = (Channel(ours.as_fd()), Channel(theirs.as_fd()));
        supervisor.go().unwrap();
        assert!(init.wait_for_go().unwrap());
        for order in
            [Order::Signal(15), Order::TerminateAll, Order::KillAll, Order::StopAll, Order::ContinueAll]
        {
            supervisor.order(order).unwrap();
            assert_eq!(init.next_order(), Some(order));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        init.send_fd(MEMORY, file.as_fd()).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Memory(_))));
        init.send_fd(NOTIFIER, file.as_fd()).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Notifier(Some(_)))));
        init.send_written(2, file.as_fd()).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Written(2, _))));
        init.send_no_notifier().unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Notifier(None))));
        init.send_fd(INPUT, file.as_fd()).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Input(Some(_)))));
        init.send_stopped().unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Stopped)));
        init.send_no_input().unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Input(None))));
        let usage = TreeUsage { user_micros: 1, system_micros: 2, max_rss_kib: 3 };
        let end = End { status: 256, left_running: 515, usage };
        init.send_end(&end).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::End(came)) if came == end));
        drop(theirs);
        assert!(supervisor.next_message().unwrap().is_none());
    }

    #[test]
    fn the_end_is_received_from_an_init_that_leaves_orders_unread() {
        let (ours, theirs) = pair().unwrap();
        let (supervisor, init) = (Channel(ours.as_fd()), Channel(theirs.as_fd()));
        let usage = TreeUsage { user_micros: 1, system_micros: 2, max_rss_kib: 3 };
        init.send_end(&End { status: 0, left_running: 0, usage }).unwrap();
        supervisor.order(Order::Signal(15)).unwrap();
        drop(theirs);
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::End(end)) if end.status == 0));
        assert!(supervisor.next_message().unwrap().is_none());
    }

    #[test]
    fn a_dead_supervisor_is_detected() {
        let (ours, theirs) = pair().unwrap();
        drop(ours);
        assert!(!Channel(theirs.as_fd()).wait_for_go().unwrap());
        assert_eq!(Channel(theirs.as_fd()).next_order(), None);
    }
}
