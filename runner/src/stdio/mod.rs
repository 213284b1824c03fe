//! The command's streams: passed through where that is harmless, pumped where it is not, kept where asked.
//!
//! A descriptor of a file of the host is never given to the command: the command could open it again through /proc for
//! writing, or change the mode of the file. A regular file as stdin is opened again through a read-only mount, see
//! [`input_file`]. For every other file, and for a named pipe, whose mode fchmod(2) would change, the command gets a pipe,
//! and a thread moves the bytes. A terminal of the host is replaced by a pseudo terminal, /dev/null by one that is opened
//! inside. Pipes without a name are given as they are.

mod input_file;
mod pump;
mod screen;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::FileType;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{tcgetattr, tcgetwinsize};

use avfs_engine::{Input, Output, OutputBuffer};
use avfs_request::MergedOutput;

pub use self::input_file::InputFile;
use self::input_file::InputPipe;
use self::pump::{KeptOutput, drain, feed, keep};
use self::screen::{Screen, is_foreground};
use crate::init::{Stdio, Stream};
use crate::sys::Result;

/// The file system of pipes without a name, as statfs(2) gives it.
const PIPEFS_MAGIC: i64 = 0x5049_5045;

/// What the command's side of a stream is.
enum Inner {
    /// Our own, as it is.
    Ours(OwnedFd),
    /// The end of a pipe that a thread serves.
    Piped(OwnedFd),
    /// A regular file that init opens again, or the end of a pipe where init cannot.
    File(InputFile, OwnedFd),
    /// The same as the stream with this number.
    SameAs(usize),
    Terminal,
    Null,
}

/// What the bytes that are kept are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptAs {
    OneStream,
    /// Both streams, in the order in which they were written.
    Merged,
}

/// What has to be done on our side.
enum Outer {
    Nothing,
    /// From our stdin into a pipe.
    Feed {
        from: OwnedFd,
        into: OwnedFd,
    },
    /// From a regular file into a pipe, where init cannot open the file again.
    FeedFile {
        file: OwnedFd,
        offset: u64,
        pipe: InputPipe,
    },
    /// From a pipe to a stream of ours.
    Drain {
        from: OwnedFd,
        into: OwnedFd,
    },
    /// From a pipe into memory, and to a stream of ours if there is one.
    Keep {
        from: OwnedFd,
        into: Option<OwnedFd>,
        bytes_max: usize,
        kept_as: KeptAs,
    },
    Terminal {
        host: OwnedFd,
    },
}

pub struct Streams {
    inner: Vec<Inner>,
    outer: Vec<Outer>,
    /// How much is kept of what goes to a terminal.
    screen_bytes_max: Option<usize>,
    /// Where output that does not fit in memory is kept.
    spool_dir: Option<PathBuf>,
}

impl Streams {
    pub fn prepare(input_from: Input, mode: avfs_request::Streams, spool_dir: Option<&Path>) -> Result<Self> {
        let host = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let screen_bytes_max = match mode {
            avfs_request::Streams::Teed { bytes_max, merged: MergedOutput::Kept } => Some(bytes_max),
            avfs_request::Streams::Teed { merged: MergedOutput::Passed, .. }
            | avfs_request::Streams::Passed
            | avfs_request::Streams::Captured { .. } => None,
        };
        let (inner, outer) = (Vec::with_capacity(3), Vec::with_capacity(3));
        let spool_dir = spool_dir.map(Path::to_owned);
        let mut streams = Self { inner, outer, screen_bytes_max, spool_dir };
        let (inner, outer) = match input_from {
            Input::Passed => input(host[0], mode)?,
            Input::Empty => (Inner::Null, Outer::Nothing),
        };
        streams.inner.push(inner);
        streams.outer.push(outer);
        let is_passed = matches!(input_from, Input::Passed);
        for number in [1, 2] {
            let (inner, outer) = match mode {
                avfs_request::Streams::Captured { bytes_max } => kept(None, bytes_max, KeptAs::OneStream)?,
                // Two pipes for one file would mix up the order of what is written.
                avfs_request::Streams::Passed if number == 2 && is_one_pumped(host[1], host[2]) => {
                    (Inner::SameAs(1), Outer::Nothing)
                }
                avfs_request::Streams::Passed => output(host[number])?,
                // Kept as one, in order.
                avfs_request::Streams::Teed { bytes_max, merged: MergedOutput::Kept }
                    if is_passed && (is_one_pumped(host[1], host[2]) || is_one_pipe(host[1], host[2])) =>
                {
                    match number {
                        2 => (Inner::SameAs(1), Outer::Nothing),
                        _ => kept(Some(own(host[number])?), bytes_max, KeptAs::Merged)?,
                    }
                }
                // The same for one pipe, which is passed on as it is: what is in order cannot be told apart. But whose
                // input is empty is to be remembered, and that matters more than order between streams, or a terminal.
                avfs_request::Streams::Teed { .. } if is_passed && is_one_pumped(host[1], host[2]) => {
                    match number {
                        2 => (Inner::SameAs(1), Outer::Nothing),
                        _ => output(host[number])?,
                    }
                }
                avfs_request::Streams::Teed { .. } if is_passed && is_one_pipe(host[1], host[2]) => {
                    output(host[number])?
                }
                avfs_request::Streams::Teed { bytes_max, .. } => match kind(host[number]) {
                    Kind::Terminal if is_passed => output(host[number])?,
                    Kind::Closed => kept(None, bytes_max, KeptAs::OneStream)?,
                    Kind::Terminal | Kind::Null | Kind::Pipe | Kind::Other => {
                        kept(Some(own(host[number])?), bytes_max, KeptAs::OneStream)?
                    }
                },
            };
            streams.inner.push(inner);
            streams.outer.push(outer);
        }
        Ok(streams)
    }

    pub fn wants_terminal(&self) -> bool {
        self.outer.iter().any(|outer| matches!(outer, Outer::Terminal { .. }))
    }

    /// True if init reports whether it has opened stdin again.
    pub fn wants_input(&self) -> bool {
        self.outer.iter().any(|outer| matches!(outer, Outer::FeedFile { .. }))
    }

    /// The command's side, for init.
    pub fn inner(&self) -> Stdio<'_> {
        let stream = |number: usize| match &self.inner[number] {
            Inner::Ours(fd) | Inner::Piped(fd) => Stream::Fd(fd.as_fd()),
            Inner::File(file, pipe) => Stream::File(file, pipe.as_fd()),
            Inner::Terminal | Inner::SameAs(_) => Stream::Terminal,
            Inner::Null => Stream::Null,
        };
        let resolve = |number: usize| match &self.inner[number] {
            Inner::SameAs(other) => stream(*other),
            Inner::Ours(_) | Inner::Piped(_) | Inner::File(..) | Inner::Terminal | Inner::Null => {
                stream(number)
            }
        };
        let terminal = |number: usize| match &self.outer[number] {
            Outer::Terminal { host } => Some(host),
            Outer::Nothing
            | Outer::Feed { .. }
            | Outer::FeedFile { .. }
            | Outer::Drain { .. }
            | Outer::Keep { .. } => None,
        };
        Stdio {
            streams: [resolve(0), resolve(1), resolve(2)],
            size: [1, 2, 0].into_iter().find_map(terminal).and_then(|host| tcgetwinsize(host).ok()),
            modes: terminal(0).filter(|host| is_foreground(host)).and_then(|host| tcgetattr(host).ok()),
        }
    }

    /// Lets go of the command's ends, so that their end can be seen.
    pub fn close_inner(&mut self) {
        for inner in &mut self.inner {
            *inner = Inner::Terminal;
        }
    }

    /// Starts the threads. `input` is stdin as init has opened it again.
    pub fn start(self, terminal: Option<OwnedFd>, input: Option<OwnedFd>) -> Result<Flow> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut flow = Flow {
            stop: Some(stop),
            feeders: Vec::new(),
            drains: Vec::new(),
            input: None,
            kept: [None, None],
            merged: None,
            screen: None,
        };
        let (mut hosts, mut input) = ([None, None, None], input);
        for (number, outer) in self.outer.into_iter().enumerate() {
            match outer {
                Outer::Nothing => {}
                Outer::Feed { from, into } => {
                    let stopped = stopped.try_clone().map_err(|_| rustix::io::Errno::MFILE)?;
                    flow.feeders.push(thread(move || feed(from, into, &stopped))?);
                }
                Outer::FeedFile { file, offset, pipe } => match input.take() {
                    Some(again) => flow.input = Some(Reopened { file, offset, again }),
                    None => {
                        let stopped = stopped.try_clone().map_err(|_| rustix::io::Errno::MFILE)?;
                        flow.feeders.push(thread(move || pipe.feed(&file, offset, &stopped))?);
                    }
                },
                Outer::Drain { from, into } => {
                    flow.drains.push(thread(move || drain(from, into))?);
                }
                Outer::Keep { from, into, bytes_max, kept_as } => {
                    let output = OutputBuffer::new(bytes_max, self.spool_dir.clone());
                    let keeping = Some(thread(move || keep(from, into, output))?);
                    match kept_as {
                        KeptAs::OneStream => flow.kept[number - 1] = keeping,
                        KeptAs::Merged => flow.merged = keeping,
                    }
                }
                Outer::Terminal { host } => hosts[number] = Some(host),
            }
        }
        if let Some(terminal) = terminal {
            let spool_dir = self.spool_dir;
            let output = self.screen_bytes_max.map(|bytes_max| OutputBuffer::new(bytes_max, spool_dir));
            flow.screen = Some(Screen::start(terminal, hosts, output, &mut flow)?);
        }
        Ok(flow)
    }
}

/// A thread, where the limit on processes (`ulimit -u`) leaves one.
fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let began = std::thread::Builder::new().spawn(work);
    began.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN))
}

/// Whether two streams are one file, named pipe or socket, to which a thread moves the bytes.
fn is_one_pumped(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    matches!(kind(one), Kind::Other) && is_one(one, other)
}

fn is_one_pipe(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    matches!(kind(one), Kind::Pipe) && is_one(one, other)
}

fn is_one(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let (Ok(one), Ok(other)) = (rustix::fs::fstat(one), rustix::fs::fstat(other)) else { return false };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// A pipe whose other end is kept, and passed on to a stream of ours if there is one.
fn kept(ours: Option<OwnedFd>, bytes_max: usize, kept_as: KeptAs) -> Result<(Inner, Outer)> {
    let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Inner::Piped(into), Outer::Keep { from, into: ours, bytes_max, kept_as }))
}

/// What one of our own streams is, as far as it matters.
enum Kind {
    Terminal,
    Null,
    /// Without a name.
    Pipe,
    Other,
    Closed,
}

fn kind(fd: BorrowedFd<'_>) -> Kind {
    let Ok(stat) = rustix::fs::fstat(fd) else { return Kind::Closed };
    if rustix::termios::isatty(fd) {
        return Kind::Terminal;
    }
    let is_unnamed = || rustix::fs::fstatfs(fd).is_ok_and(|system| system.f_type == PIPEFS_MAGIC);
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type == FileType::CharacterDevice && stat.st_rdev == rustix::fs::makedev(1, 3) {
        Kind::Null
    } else if file_type == FileType::Fifo && is_unnamed() {
        Kind::Pipe
    } else {
        Kind::Other
    }
}

fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

fn input(fd: BorrowedFd<'_>, mode: avfs_request::Streams) -> Result<(Inner, Outer)> {
    Ok(match (kind(fd), mode) {
        // With captured output there is no screen for a terminal.
        (Kind::Terminal, avfs_request::Streams::Captured { .. }) | (Kind::Closed | Kind::Null, _) => {
            (Inner::Null, Outer::Nothing)
        }
        (Kind::Terminal, avfs_request::Streams::Passed | avfs_request::Streams::Teed { .. }) => {
            (Inner::Terminal, Outer::Terminal { host: own(fd)? })
        }
        (Kind::Pipe, _) => (Inner::Ours(own(fd)?), Outer::Nothing),
        (Kind::Other, _) => match InputFile::of(fd) {
            Some(file) => {
                let (offset, file_fd) = (file.offset, own(fd)?);
                let (pipe, inner) = InputPipe::new()?;
                (Inner::File(file, inner), Outer::FeedFile { file: file_fd, offset, pipe })
            }
            None => {
                let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
                (Inner::Piped(from), Outer::Feed { from: own(fd)?, into })
            }
        },
    })
}

fn output(fd: BorrowedFd<'_>) -> Result<(Inner, Outer)> {
    Ok(match kind(fd) {
        Kind::Closed | Kind::Null => (Inner::Null, Outer::Nothing),
        Kind::Terminal => (Inner::Terminal, Outer::Terminal { host: own(fd)? }),
        Kind::Pipe => (Inner::Ours(own(fd)?), Outer::Nothing),
        Kind::Other => {
            let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
            (Inner::Piped(into), Outer::Drain { from, into: own(fd)? })
        }
    })
}

/// Everything that moves while the command runs.
pub struct Flow {
    /// Closed to stop who waits for input that nobody wants any more.
    stop: Option<OwnedFd>,
    feeders: Vec<JoinHandle<()>>,
    drains: Vec<JoinHandle<std::io::Result<()>>>,
    input: Option<Reopened>,
    kept: [Option<JoinHandle<KeptOutput>>; 2],
    /// Both streams as one.
    merged: Option<JoinHandle<KeptOutput>>,
    screen: Option<Screen>,
}

/// A regular file as stdin.
struct Reopened {
    /// Shares its offset with the caller's descriptor.
    file: OwnedFd,
    /// Of `file`, when the command was started.
    offset: u64,
    /// Shares its offset with the command's descriptor.
    again: OwnedFd,
}

/// What the streams gave.
pub struct Flowed {
    /// Nothing where it was not kept.
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Both as one, where that was to be kept.
    pub merged: Option<Output>,
    /// Why some of the output did not reach our own streams.
    pub undelivered: Option<std::io::Error>,
}

impl Flow {
    /// True if the command has a pseudo terminal.
    pub fn has_terminal(&self) -> bool {
        self.screen.is_some()
    }

    /// Gives the real terminal back, as it was found, with everything on it that the command has written.
    pub fn leave_terminal(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.leave();
        }
    }

    /// Takes the real terminal again, if it is ours.
    pub fn take_terminal(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.take();
        }
    }

    /// Tells the pseudo terminal the size of the real one.
    pub fn resize(&self) {
        if let Some(screen) = &self.screen {
            screen.resize();
        }
    }

    /// Waits for what is still on its way; everybody who could write more is dead.
    pub fn finish(mut self) -> Flowed {
        let mut undelivered = None;
        for drain in self.drains.drain(..) {
            let drained = drain.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            undelivered = undelivered.or(drained.err());
        }
        if let Some(Reopened { file, offset, again }) = &self.input
            && let Ok(end) = rustix::fs::tell(again)
        {
            input_file::leave_at(file, *offset, end);
        }
        self.stop = None;
        for feeder in self.feeders.drain(..) {
            let _ = feeder.join();
        }
        if let Some(screen) = &mut self.screen {
            screen.stop_typing();
        }
        let [stdout, stderr] = self.kept;
        let [stdout, stderr, merged] = [stdout, stderr, self.merged].map(|thread| {
            let kept = thread.map(JoinHandle::join);
            let (output, delivered) =
                kept.map(|kept| kept.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))?;
            undelivered = undelivered.take().or(delivered.err());
            output
        });
        Flowed { stdout, stderr, merged, undelivered }
    }
}
