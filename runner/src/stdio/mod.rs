//! The command's streams: passed through if that is harmless, copied through a pipe if not, captured if requested.
//!
//! A descriptor of a host file is never given to the command, which could reopen it for writing through /proc, or
//! change the mode of the file. A regular file as stdin is reopened through a read-only mount, see [`input_file`].
//! For every other file, and for a named pipe, whose mode fchmod(2) would change, the command gets a pipe, and a
//! thread copies the data. A terminal of the host is replaced with a pseudo terminal, /dev/null with one opened
//! inside, and a directory as stdin with the root of the sandbox. Anonymous pipes are passed on unchanged.

mod input_file;
mod pump;
mod screen;
mod typing;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::FileType;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{LocalModes, Termios, tcgetattr, tcgetwinsize};

use avfs_engine::{Input, Output, OutputBuffer};
use avfs_request::MergedOutput;

pub use self::input_file::InputFile;
use self::input_file::InputPipe;
use self::pump::{KeptOutput, drain, feed, keep};
use self::screen::Screen;
use self::typing::is_foreground;
use crate::init::{Stdio, Stream};
use crate::sys::Result;

/// The file system magic of anonymous pipes in statfs(2).
const PIPEFS_MAGIC: i64 = 0x5049_5045;

/// The command's side of a stream.
enum Inner {
    /// Our own stream, unchanged.
    Ours(OwnedFd),
    /// The end of a pipe that a thread serves.
    Piped(OwnedFd),
    /// A regular file that init reopens, or the end of a pipe if init cannot.
    File(InputFile, OwnedFd),
    /// The same as the stream with this index.
    SameAs(usize),
    Terminal,
    Null,
    Dir,
}

/// What the captured bytes represent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptAs {
    OneStream,
    /// Both streams, in the order in which they were written.
    Merged,
}

/// The work on our side of a stream.
enum Outer {
    Nothing,
    /// Copy our stdin into a pipe.
    Feed {
        from: OwnedFd,
        into: OwnedFd,
    },
    /// Copy a regular file into a pipe, if init cannot reopen the file.
    FeedFile {
        file: OwnedFd,
        offset: u64,
        pipe: InputPipe,
    },
    /// Copy a pipe to one of our streams.
    Drain {
        from: OwnedFd,
        into: OwnedFd,
    },
    /// Capture a pipe in memory, and copy it to one of our streams, if given.
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
    /// The limit for captured terminal output.
    screen_bytes_max: Option<usize>,
    /// The directory for captured output that does not fit in memory.
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
                // Two pipes for one file would lose the order of the writes.
                avfs_request::Streams::Passed if number == 2 && is_one_pumped(host[1], host[2]) => {
                    (Inner::SameAs(1), Outer::Nothing)
                }
                avfs_request::Streams::Passed => output(host[number])?,
                // Captured as one stream, in order.
                avfs_request::Streams::Teed { bytes_max, merged: MergedOutput::Kept }
                    if is_passed && (is_one_pumped(host[1], host[2]) || is_one_pipe(host[1], host[2])) =>
                {
                    match number {
                        2 => (Inner::SameAs(1), Outer::Nothing),
                        _ => kept(Some(own(host[number])?), bytes_max, KeptAs::Merged)?,
                    }
                }
                // The same for one shared file or pipe, which is passed through: streams in order cannot be
                // separated. But a run with empty input is one whose result will be remembered, and capturing matters
                // more than the order between streams, or a terminal.
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

    /// True if init reports whether it has reopened stdin.
    pub fn wants_input(&self) -> bool {
        self.outer.iter().any(|outer| matches!(outer, Outer::FeedFile { .. }))
    }

    /// The command's side of the streams, for init.
    pub fn inner(&self) -> Stdio<'_> {
        let stream = |number: usize| match &self.inner[number] {
            Inner::Ours(fd) | Inner::Piped(fd) => Stream::Fd(fd.as_fd()),
            Inner::File(file, pipe) => Stream::File(file, pipe.as_fd()),
            Inner::Terminal | Inner::SameAs(_) => Stream::Terminal,
            Inner::Null => Stream::Null,
            Inner::Dir => Stream::Dir,
        };
        let resolve = |number: usize| match &self.inner[number] {
            Inner::SameAs(other) => stream(*other),
            Inner::Ours(_)
            | Inner::Piped(_)
            | Inner::File(..)
            | Inner::Terminal
            | Inner::Null
            | Inner::Dir => stream(number),
        };
        let terminal = |number: usize| match &self.outer[number] {
            Outer::Terminal { host } => Some(host),
            Outer::Nothing
            | Outer::Feed { .. }
            | Outer::FeedFile { .. }
            | Outer::Drain { .. }
            | Outer::Keep { .. } => None,
        };
        // A pager that reads stdout may have changed the modes already.
        let is_of_others =
            |modes: &Termios| terminal(1).is_none() && !modes.local_modes.contains(LocalModes::ICANON);
        let modes = terminal(0).filter(|host| is_foreground(host)).and_then(|host| tcgetattr(host).ok());
        Stdio {
            streams: [resolve(0), resolve(1), resolve(2)],
            size: [1, 2, 0].into_iter().find_map(terminal).and_then(|host| tcgetwinsize(host).ok()),
            modes: modes.filter(|modes| !is_of_others(modes)),
        }
    }

    /// Closes the command's ends, so that end of file can be seen.
    pub fn close_inner(&mut self) {
        for inner in &mut self.inner {
            *inner = Inner::Terminal;
        }
    }

    /// Starts the threads. `input` is the stdin that init has reopened.
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
                    flow.drains.push(thread(move || drain(File::from(from), into))?);
                }
                Outer::Keep { from, into, bytes_max, kept_as } => {
                    let output = OutputBuffer::new(bytes_max, self.spool_dir.clone());
                    let keeping = Some(thread(move || keep(File::from(from), into, output))?);
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

/// Starts a thread, which fails at the limit on processes (`ulimit -u`).
fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let began = std::thread::Builder::new().spawn(work);
    began.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN))
}

/// Whether two streams are the same file, named pipe or socket, to which a thread copies the data.
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

/// A pipe whose other end is captured, and copied to one of our streams, if given.
fn kept(ours: Option<OwnedFd>, bytes_max: usize, kept_as: KeptAs) -> Result<(Inner, Outer)> {
    let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Inner::Piped(into), Outer::Keep { from, into: ours, bytes_max, kept_as }))
}

/// The relevant types of our own streams.
enum Kind {
    Terminal,
    Null,
    /// Anonymous.
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

fn is_dir(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

fn input(fd: BorrowedFd<'_>, mode: avfs_request::Streams) -> Result<(Inner, Outer)> {
    Ok(match (kind(fd), mode) {
        // With captured output, a terminal would have no display.
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
            None if is_dir(fd) => (Inner::Dir, Outer::Nothing),
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

/// The running threads of a command's streams.
pub struct Flow {
    /// Closed to stop threads that wait for input that is no longer needed.
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
    /// The offset of `file` when the command was started.
    offset: u64,
    /// Shares its offset with the command's descriptor.
    again: OwnedFd,
}

/// The captured output.
pub struct Flowed {
    /// `None` if it was not captured.
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Both streams as one, if that was requested.
    pub merged: Option<Output>,
    /// Why some of the output did not reach our own streams.
    pub undelivered: Option<std::io::Error>,
}

impl Flow {
    /// True if the command has a pseudo terminal.
    pub fn has_terminal(&self) -> bool {
        self.screen.is_some()
    }

    /// Restores the real terminal to its previous state, after all output of the command was written to it.
    pub fn leave_terminal(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.leave();
        }
    }

    /// Takes the real terminal again, if we are in the foreground.
    pub fn take_terminal(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.take();
        }
    }

    /// Passes a signal on that was sent by a key of the real terminal; false if that is not possible.
    pub fn pass_key(&self, signal: i32) -> bool {
        self.screen.as_ref().is_some_and(|screen| screen.pass_key(signal))
    }

    /// Sets the size of the pseudo terminal to that of the real one.
    pub fn resize(&self) {
        if let Some(screen) = &self.screen {
            screen.resize();
        }
    }

    /// Waits for data in transit; every process that could write more is dead.
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
