//! The channels between the supervisor and init: one for the sandbox, and one for each command.
//!
//! | channel | to init | from init |
//! |---|---|---|
//! | sandbox | "go", commands with their descriptors, "stop" | descriptors of the sandbox, the end of the sandbox |
//! | command | orders | its descriptors, stops, its end; the payload sends the seccomp listener |
//!
//! Each is a `SOCK_SEQPACKET` socket pair, which preserves message boundaries. When one side dies, the other reads end
//! of file: init then exits, and with it every process inside. The supervisor creates the channel of a command, and
//! sends one end with the command.

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
const PAUSED: u8 = b'z';
const WRITTEN: u8 = b'w';
const END: u8 = b'e';
const STOPPED: u8 = b'x';

const GO: u8 = b'g';
const EXEC: u8 = b'E';
const STOP: u8 = b'X';
const SIGNAL: u8 = b's';
const TERMINATE: u8 = b'T';
const KILL: u8 = b'K';
const PAUSE: u8 = b'Z';
const CONTINUE: u8 = b'C';

const MESSAGE_BYTES: usize = 32;
/// The descriptors of a command: image, report, channel, three streams, and two terminals.
const DESCRIPTORS_MAX: usize = 8;
/// The first byte, and the kinds of the three streams.
const COMMAND_BYTES: usize = 4;

/// An order to a command. It applies to all processes inside if the sandbox has only this command, else to the
/// command's process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Forward a signal to the command's process group.
    Signal(i32),
    Terminate,
    Kill,
    Pause,
    Continue,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its wait(2) status.
    pub status: i32,
    pub usage: TreeUsage,
}

/// How a standard stream of a command is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// To a descriptor.
    Fd,
    /// To a regular file that init reopens; if that fails, to the descriptor.
    File,
    /// To the pseudo terminal that init opens.
    Terminal,
    /// To `/dev/null`, which init opens.
    Null,
    /// To the root of the sandbox, in place of a directory of the host.
    Dir,
}

impl StreamKind {
    const ALL: [Self; 5] = [Self::Fd, Self::File, Self::Terminal, Self::Null, Self::Dir];

    const fn byte(self) -> u8 {
        match self {
            Self::Fd => b'f',
            Self::File => b'r',
            Self::Terminal => b't',
            Self::Null => b'n',
            Self::Dir => b'd',
        }
    }

    fn of_byte(byte: u8) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte).ok_or(Errno::PROTO)
    }
}

/// The meaning of a descriptor that is sent with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The file with the [`crate::sys::CommandImage`].
    Image,
    /// Closed by a successful exec; eight bytes before that mean failure.
    Report,
    Channel,
    Stdin,
    Stdout,
    Stderr,
    /// A terminal whose size the pseudo terminal gets before the command can ask for it.
    Size,
    /// A terminal whose modes it gets.
    Modes,
}

/// A command, as it is sent to init.
pub struct Sent<'a> {
    pub streams: [StreamKind; 3],
    pub descriptors: Vec<(Role, BorrowedFd<'a>)>,
}

/// A command, as init receives it.
pub struct Received {
    pub streams: [StreamKind; 3],
    /// By their roles.
    descriptors: [Option<OwnedFd>; DESCRIPTORS_MAX],
}

impl Received {
    pub fn descriptor(&self, role: Role) -> Option<BorrowedFd<'_>> {
        self.descriptors[role as usize].as_ref().map(OwnedFd::as_fd)
    }

    pub fn take(&mut self, role: Role) -> Option<OwnedFd> {
        self.descriptors[role as usize].take()
    }

    pub fn has(&self, kind: StreamKind) -> bool {
        self.streams.contains(&kind)
    }
}

/// A request to init.
pub enum Request {
    Exec(Received),
    /// Kill every process, and exit.
    Stop,
}

/// Both ends of a channel; each process closes the other's.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// One end of a channel.
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
    // About the sandbox.
    /// The file system that holds the upper.
    Memory(OwnedFd),
    /// The sandbox's own /proc.
    Proc(OwnedFd),
    /// The listening socket for the connections of commands.
    Listener(OwnedFd),
    /// A private directory that is not empty, by its index. Sent right before the end.
    Written(usize, OwnedFd),
    /// No process is left, except init: how many were killed, other than commands.
    Stopped(u16),

    // About a command.
    Terminal(OwnedFd),
    /// The descriptor on which the kernel reports calls that the filter refuses, if it supports that.
    Notifier(Option<OwnedFd>),
    /// Stdin, reopened, if init succeeded.
    Input(Option<OwnedFd>),
    /// The command was stopped by a signal.
    Paused,
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

    fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::NOBUFS);
        }
        sendmsg(self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// A message and its descriptors, in order. Neither allocates nor locks.
    fn receive_with(&self, bytes: &mut [u8]) -> Result<(usize, [Option<OwnedFd>; DESCRIPTORS_MAX])> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(bytes)];
            match recvmsg(self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                // Init exited before it received an order. The kernel reports this once, before the messages that
                // init sent.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.iter_mut().zip(received).for_each(|(slot, fd)| *slot = Some(fd));
            }
        }
        Ok((received.bytes, fds))
    }

    // The supervisor's side.

    pub fn go(&self) -> Result<()> {
        self.send(&[GO])
    }

    pub fn exec(&self, command: &Sent<'_>) -> Result<()> {
        let [one, two, three] = command.streams.map(StreamKind::byte);
        let mut bytes = vec![EXEC, one, two, three];
        bytes.extend(command.descriptors.iter().map(|(role, _)| *role as u8));
        let fds: Vec<_> = command.descriptors.iter().map(|(_, fd)| *fd).collect();
        self.send_with(&bytes, &fds)
    }

    pub fn stop(&self) -> Result<()> {
        self.send(&[STOP])
    }

    pub fn order(&self, order: Order) -> Result<()> {
        match order {
            Order::Signal(signal) => self.send(&[SIGNAL, u8::try_from(signal).unwrap_or(0)]),
            Order::Terminate => self.send(&[TERMINATE]),
            Order::Kill => self.send(&[KILL]),
            Order::Pause => self.send(&[PAUSE]),
            Order::Continue => self.send(&[CONTINUE]),
        }
    }

    /// The next message; `None` if init has exited.
    pub fn next_message(&self) -> Result<Option<Message>> {
        let mut bytes = [0; MESSAGE_BYTES];
        let (length, [fd, ..]) = self.receive_with(&mut bytes)?;
        let message = match (length, bytes[0], fd) {
            (0, _, _) => return Ok(None),
            (_, MEMORY, Some(fd)) => Message::Memory(fd),
            (_, PROC, Some(fd)) => Message::Proc(fd),
            (_, LISTENER, Some(fd)) => Message::Listener(fd),
            (2, WRITTEN, Some(fd)) => Message::Written(usize::from(bytes[1]), fd),
            (3, STOPPED, None) => Message::Stopped(u16::from_le_bytes([bytes[1], bytes[2]])),
            (_, TERMINAL, Some(fd)) => Message::Terminal(fd),
            (_, NOTIFIER, Some(fd)) => Message::Notifier(Some(fd)),
            (_, NO_NOTIFIER, None) => Message::Notifier(None),
            (_, INPUT, Some(fd)) => Message::Input(Some(fd)),
            (_, NO_INPUT, None) => Message::Input(None),
            (_, PAUSED, None) => Message::Paused,
            (MESSAGE_BYTES, END, None) => Message::End(decode_end(&bytes)),
            _ => return Err(Errno::PROTO),
        };
        Ok(Some(message))
    }

    // Init's side: must not allocate.

    /// False if the supervisor has exited.
    pub fn wait_for_go(&self) -> Result<bool> {
        let mut byte = [0];
        Ok(self.receive(&mut byte)? == 1 && byte[0] == GO)
    }

    /// `None` if the supervisor has exited, or sent something else.
    pub fn next_request(&self) -> Option<Request> {
        let mut bytes = [0; COMMAND_BYTES + DESCRIPTORS_MAX];
        let (length, fds) = self.receive_with(&mut bytes).ok()?;
        if (length, bytes[0]) == (1, STOP) {
            return Some(Request::Stop);
        }
        if length < COMMAND_BYTES || bytes[0] != EXEC {
            return None;
        }
        let mut streams = [StreamKind::Null; 3];
        for (stream, byte) in streams.iter_mut().zip(&bytes[1..]) {
            *stream = StreamKind::of_byte(*byte).ok()?;
        }
        let mut descriptors = [const { None }; DESCRIPTORS_MAX];
        for (role, fd) in bytes[COMMAND_BYTES..length].iter().zip(fds) {
            *descriptors.get_mut(usize::from(*role))? = fd;
        }
        Some(Request::Exec(Received { streams, descriptors }))
    }

    /// `None` if nobody waits for the command any more.
    pub fn next_order(&self) -> Option<Order> {
        let mut bytes = [0; 2];
        match (self.receive(&mut bytes), bytes[0]) {
            (Ok(2), SIGNAL) => Some(Order::Signal(i32::from(bytes[1]))),
            (Ok(1), TERMINATE) => Some(Order::Terminate),
            (Ok(1), KILL) => Some(Order::Kill),
            (Ok(1), PAUSE) => Some(Order::Pause),
            (Ok(1), CONTINUE) => Some(Order::Continue),
            _ => None,
        }
    }

    pub fn send_fd(&self, kind: u8, fd: BorrowedFd<'_>) -> Result<()> {
        self.send_with(&[kind], &[fd])
    }

    /// A private directory that is not empty.
    pub fn send_written(&self, number: u8, fd: BorrowedFd<'_>) -> Result<()> {
        self.send_with(&[WRITTEN, number], &[fd])
    }

    pub fn send_stopped(&self, left_running: u16) -> Result<()> {
        let [low, high] = left_running.to_le_bytes();
        self.send(&[STOPPED, low, high])
    }

    pub fn send_no_notifier(&self) -> Result<()> {
        self.send(&[NO_NOTIFIER])
    }

    pub fn send_no_input(&self) -> Result<()> {
        self.send(&[NO_INPUT])
    }

    pub fn send_paused(&self) -> Result<()> {
        self.send(&[PAUSED])
    }

    pub fn send_end(&self, end: &End) -> Result<()> {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = END;
        bytes[4..8].copy_from_slice(&end.status.to_le_bytes());
        let usage = [end.usage.user_micros, end.usage.system_micros, end.usage.max_rss_kib];
        for (at, number) in usage.iter().enumerate() {
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
        }
        self.send(&bytes)
    }
}

fn decode_end(bytes: &[u8; MESSAGE_BYTES]) -> End {
    let number = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    let status = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    End {
        status,
        usage: TreeUsage { user_micros: number(8), system_micros: number(16), max_rss_kib: number(24) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; DESCRIPTORS_MAX] = [
        Role::Image,
        Role::Report,
        Role::Channel,
        Role::Stdin,
        Role::Stdout,
        Role::Stderr,
        Role::Size,
        Role::Modes,
    ];
    const USAGE: TreeUsage = TreeUsage { user_micros: 1, system_micros: 2, max_rss_kib: 3 };

    #[test]
    fn requests_and_orders_are_transmitted() {
        let (ours, theirs) = pair().unwrap();
        let (supervisor, init) = (Channel(ours.as_fd()), Channel(theirs.as_fd()));
        supervisor.go().unwrap();
        assert!(init.wait_for_go().unwrap());
        for order in [Order::Signal(15), Order::Terminate, Order::Kill, Order::Pause, Order::Continue] {
            supervisor.order(order).unwrap();
            assert_eq!(init.next_order(), Some(order));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        let streams = [StreamKind::Fd, StreamKind::Terminal, StreamKind::Dir];
        let descriptors = vec![(Role::Stdin, file.as_fd()), (Role::Image, file.as_fd())];
        supervisor.exec(&Sent { streams, descriptors }).unwrap();
        let Some(Request::Exec(mut received)) = init.next_request() else { panic!("no command") };
        assert_eq!(received.streams, streams);
        let has = |received: &Received| ROLES.map(|role| received.descriptor(role).is_some());
        assert_eq!(has(&received), [true, false, false, true, false, false, false, false]);
        assert!(received.take(Role::Image).is_some() && received.take(Role::Image).is_none());
        supervisor.stop().unwrap();
        assert!(matches!(init.next_request(), Some(Request::Stop)));
    }

    #[test]
    fn descriptors_and_the_end_are_transmitted() {
        let (ours, theirs) = pair().unwrap();
        let (supervisor, init) = (Channel(ours.as_fd()), Channel(theirs.as_fd()));
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
        init.send_paused().unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Paused)));
        init.send_no_input().unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Input(None))));
        init.send_stopped(515).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::Stopped(515))));
        let end = End { status: 256, usage: USAGE };
        init.send_end(&end).unwrap();
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::End(came)) if came == end));
        drop(theirs);
        assert!(supervisor.next_message().unwrap().is_none());
    }

    #[test]
    fn the_end_is_received_from_an_init_that_leaves_orders_unread() {
        let (ours, theirs) = pair().unwrap();
        let (supervisor, init) = (Channel(ours.as_fd()), Channel(theirs.as_fd()));
        init.send_end(&End { status: 0, usage: USAGE }).unwrap();
        supervisor.order(Order::Signal(15)).unwrap();
        drop(theirs);
        assert!(matches!(supervisor.next_message().unwrap(), Some(Message::End(end)) if end.status == 0));
        assert!(supervisor.next_message().unwrap().is_none());
    }

    #[test]
    fn a_dead_supervisor_is_detected() {
        let (ours, theirs) = pair().unwrap();
        drop(ours);
        let init = Channel(theirs.as_fd());
        assert!(!init.wait_for_go().unwrap());
        assert!(init.next_order().is_none() && init.next_request().is_none());
    }
}
