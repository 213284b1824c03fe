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

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::thread::JoinHandle;

use rustix::fs::FileType;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{LocalModes, Termios, tcgetattr};

use avfs_engine::{CommandPlan, Commands, Output, OutputBuffer};
use avfs_request::MergedOutput;

pub use self::input_file::InputFile;
use self::input_file::InputPipe;
use self::pump::{KeptOutput, Source, drain, feed, keep};
use self::screen::Screen;
use self::typing::is_foreground;
use crate::control::{Role, Sent, StreamKind};
use crate::sys::Result;

/// The file system magic of anonymous pipes in statfs(2).
const PIPEFS_MAGIC: i64 = 0x5049_5045;

/// The command's side of a stream.
enum Inner {
    /// The caller's stream, unchanged.
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
    /// Copy the caller's stdin into a pipe.
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
    /// Copy a pipe to one of the caller's streams.
    Drain {
        from: OwnedFd,
        into: OwnedFd,
    },
    /// Capture a pipe in memory, and copy it to one of the caller's streams, if given.
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
    pub fn prepare(plan: &CommandPlan) -> Result<Self> {
        let given = [&plan.stdio.stdin, &plan.stdio.stdout, &plan.stdio.stderr];
        let host = given.map(|stream| stream.as_ref().map(OwnedFd::as_fd));
        let mode = plan.streams;
        let screen_bytes_max = match mode {
            avfs_request::Streams::Teed { bytes_max, merged: MergedOutput::Kept } => Some(bytes_max),
            avfs_request::Streams::Teed { merged: MergedOutput::Passed, .. }
            | avfs_request::Streams::Passed
            | avfs_request::Streams::Captured { .. } => None,
        };
        let (inner, outer) = (Vec::with_capacity(3), Vec::with_capacity(3));
        let mut streams = Self { inner, outer, screen_bytes_max, spool_dir: plan.spool_dir.clone() };
        let (inner, outer) = input(host[0], mode)?;
        streams.inner.push(inner);
        streams.outer.push(outer);
        let is_passed = host[0].is_some();
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
                        _ => kept(host[number], bytes_max, KeptAs::Merged)?,
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
                    Kind::Terminal(_) if is_passed => output(host[number])?,
                    Kind::Closed => kept(None, bytes_max, KeptAs::OneStream)?,
                    Kind::Terminal(fd) | Kind::Null(fd) | Kind::Pipe(fd) | Kind::Other(fd) => {
                        kept(Some(fd), bytes_max, KeptAs::OneStream)?
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

    /// The regular file that init reopens as stdin.
    pub fn input_file(&self) -> Option<&InputFile> {
        match self.inner.first() {
            Some(Inner::File(file, _)) => Some(file),
            Some(
                Inner::Ours(_)
                | Inner::Piped(_)
                | Inner::SameAs(_)
                | Inner::Terminal
                | Inner::Null
                | Inner::Dir,
            )
            | None => None,
        }
    }

    /// The command with its side of the streams, for init.
    pub fn sent<'a>(&'a self, mut descriptors: Vec<(Role, BorrowedFd<'a>)>) -> Sent<'a> {
        let stream = |number: usize| match &self.inner[number] {
            Inner::Ours(fd) | Inner::Piped(fd) => (StreamKind::Fd, Some(fd.as_fd())),
            Inner::File(_, pipe) => (StreamKind::File, Some(pipe.as_fd())),
            Inner::Terminal | Inner::SameAs(_) => (StreamKind::Terminal, None),
            Inner::Null => (StreamKind::Null, None),
            Inner::Dir => (StreamKind::Dir, None),
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
        let streams = [resolve(0), resolve(1), resolve(2)];
        for (role, (_, fd)) in [Role::Stdin, Role::Stdout, Role::Stderr].into_iter().zip(streams) {
            descriptors.extend(fd.map(|fd| (role, fd)));
        }
        let terminal = |number: usize| match &self.outer[number] {
            Outer::Terminal { host } => Some(host),
            Outer::Nothing
            | Outer::Feed { .. }
            | Outer::FeedFile { .. }
            | Outer::Drain { .. }
            | Outer::Keep { .. } => None,
        };
        let size = [1, 2, 0].into_iter().find_map(terminal);
        descriptors.extend(size.map(|host| (Role::Size, host.as_fd())));
        // A pager that reads stdout may have changed the modes already.
        let is_of_others =
            |modes: &Termios| terminal(1).is_none() && !modes.local_modes.contains(LocalModes::ICANON);
        let is_ours =
            |host: &&OwnedFd| is_foreground(host) && tcgetattr(host).is_ok_and(|modes| !is_of_others(&modes));
        descriptors.extend(terminal(0).filter(is_ours).map(|host| (Role::Modes, host.as_fd())));
        Sent { streams: streams.map(|(kind, _)| kind), descriptors }
    }

    /// Closes the command's ends, so that end of file can be seen.
    pub fn close_inner(&mut self) {
        for inner in &mut self.inner {
            *inner = Inner::Terminal;
        }
    }

    /// Starts the threads. `input` is the stdin that init has reopened.
    pub fn start(
        self,
        terminal: Option<OwnedFd>,
        input: Option<OwnedFd>,
        commands: Commands,
    ) -> Result<Flow> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        // The streams of the only command end by themselves: no process that holds them is left.
        let cut = || match commands {
            Commands::One => Ok(None),
            Commands::Many => stopped.try_clone().map(Some).map_err(|_| rustix::io::Errno::MFILE),
        };
        let mut flow = Flow {
            ends: commands,
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
                    let from = Source::new(from, cut()?);
                    flow.drains.push(thread(move || drain(from, into))?);
                }
                Outer::Keep { from, into, bytes_max, kept_as } => {
                    let output = OutputBuffer::new(bytes_max, self.spool_dir.clone());
                    let from = Source::new(from, cut()?);
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
            flow.screen = Some(Screen::start(terminal, hosts, output, cut()?, &mut flow)?);
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
fn is_one_pumped(one: Option<BorrowedFd<'_>>, other: Option<BorrowedFd<'_>>) -> bool {
    matches!(kind(one), Kind::Other(_)) && is_one(one, other)
}

fn is_one_pipe(one: Option<BorrowedFd<'_>>, other: Option<BorrowedFd<'_>>) -> bool {
    matches!(kind(one), Kind::Pipe(_)) && is_one(one, other)
}

fn is_one(one: Option<BorrowedFd<'_>>, other: Option<BorrowedFd<'_>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    let (Ok(one), Ok(other)) = (rustix::fs::fstat(one), rustix::fs::fstat(other)) else { return false };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// A pipe whose other end is captured, and copied to one of the caller's streams, if given.
fn kept(copied_to: Option<BorrowedFd<'_>>, bytes_max: usize, kept_as: KeptAs) -> Result<(Inner, Outer)> {
    let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
    let copied_to = copied_to.map(own).transpose()?;
    Ok((Inner::Piped(into), Outer::Keep { from, into: copied_to, bytes_max, kept_as }))
}

/// The relevant types of the caller's streams.
enum Kind<'a> {
    Terminal(BorrowedFd<'a>),
    Null(BorrowedFd<'a>),
    /// Anonymous.
    Pipe(BorrowedFd<'a>),
    Other(BorrowedFd<'a>),
    Closed,
}

fn kind(fd: Option<BorrowedFd<'_>>) -> Kind<'_> {
    let Some(fd) = fd else { return Kind::Closed };
    let Ok(stat) = rustix::fs::fstat(fd) else { return Kind::Closed };
    if rustix::termios::isatty(fd) {
        return Kind::Terminal(fd);
    }
    let is_unnamed = || rustix::fs::fstatfs(fd).is_ok_and(|system| system.f_type == PIPEFS_MAGIC);
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type == FileType::CharacterDevice && stat.st_rdev == rustix::fs::makedev(1, 3) {
        Kind::Null(fd)
    } else if file_type == FileType::Fifo && is_unnamed() {
        Kind::Pipe(fd)
    } else {
        Kind::Other(fd)
    }
}

fn is_dir(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

fn input(fd: Option<BorrowedFd<'_>>, mode: avfs_request::Streams) -> Result<(Inner, Outer)> {
    Ok(match (kind(fd), mode) {
        // With captured output, a terminal would have no display.
        (Kind::Terminal(_), avfs_request::Streams::Captured { .. }) | (Kind::Closed | Kind::Null(_), _) => {
            (Inner::Null, Outer::Nothing)
        }
        (Kind::Terminal(fd), avfs_request::Streams::Passed | avfs_request::Streams::Teed { .. }) => {
            (Inner::Terminal, Outer::Terminal { host: own(fd)? })
        }
        (Kind::Pipe(fd), _) => (Inner::Ours(own(fd)?), Outer::Nothing),
        (Kind::Other(fd), _) => match InputFile::of(fd) {
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

fn output(fd: Option<BorrowedFd<'_>>) -> Result<(Inner, Outer)> {
    Ok(match kind(fd) {
        Kind::Closed | Kind::Null(_) => (Inner::Null, Outer::Nothing),
        Kind::Terminal(fd) => (Inner::Terminal, Outer::Terminal { host: own(fd)? }),
        Kind::Pipe(fd) => (Inner::Ours(own(fd)?), Outer::Nothing),
        Kind::Other(fd) => {
            let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
            (Inner::Piped(into), Outer::Drain { from, into: own(fd)? })
        }
    })
}

/// The running threads of a command's streams.
pub struct Flow {
    ends: Commands,
    /// Closed to stop threads that wait for input that is no longer needed, or for output of processes that a command
    /// has left running.
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
#[derive(Default)]
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

    /// Waits for data in transit. If the command was the only one, every process that could write more is dead; else
    /// only the output that is already in the pipes counts.
    pub fn finish(mut self) -> Flowed {
        if self.ends == Commands::Many {
            self.stop = None;
        }
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
