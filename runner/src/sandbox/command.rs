//! One command in a sandbox, from its start to its completion.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};

use avfs_engine::{CommandPlan, Commands, Completion, Exec, Exit};
use avfs_types::pause;

use super::error::SandboxError;
use super::explain::explain;
use super::watch::{Watch, exit_of, usage_of};
use super::{Inside, Life, Stage};
use crate::confine::RefusedCalls;
use crate::control::{self, Channel, Message, Order, Role};
use crate::stage::{Failed, REPORT_BYTES};
use crate::stdio::{Flowed, Streams};
use crate::{limits, prepare, signals, sys};

/// A command that runs.
struct Command {
    inside: Arc<Inside>,
    channel: Arc<OwnedFd>,
    streams: Streams,
    terminal: Option<OwnedFd>,
    /// Stdin, if init has reopened a regular file.
    input: Option<OwnedFd>,
    refused: RefusedCalls,
    limits: Option<limits::Watch>,
    mounting: Duration,
    timeout: Option<Duration>,
    grace: Duration,
}

/// Sends a command to init, and waits until it executes its first instruction.
pub fn start(inside: &Arc<Inside>, plan: &CommandPlan) -> Result<Box<dyn Exec>, SandboxError> {
    let mut life = inside.life();
    let begun = life.begun.take().unwrap_or_else(Instant::now);
    let mut streams = Streams::prepare(plan).map_err(SandboxError::host("set up the streams"))?;
    let (channel, report) = send(inside, &life, &mut streams, plan)?;
    wait_for_start(inside, report, plan)?;
    if life.stage == Stage::Opened {
        inside.enter(&mut life)?;
    }
    let refused = RefusedCalls::new(None, Arc::clone(&inside.renames));
    let mut command = Command {
        inside: Arc::clone(inside),
        channel: Arc::new(channel),
        streams,
        terminal: None,
        input: None,
        refused,
        limits: None,
        mounting: Duration::ZERO,
        timeout: plan.timeout.duration(),
        grace: plan.grace,
    };
    command.receive_descriptors()?;
    command.mounting = begun.elapsed();
    match inside.commands {
        Commands::One => {
            command.limits = life.limits.take();
            Ok(Box::new(Only::new(command)))
        }
        Commands::Many => Ok(Box::new(OneOfMany::start(command)?)),
    }
}

/// Returns the channel to the command, and the pipe that reports its start.
fn send(
    inside: &Inside,
    life: &Life,
    streams: &mut Streams,
    plan: &CommandPlan,
) -> Result<(OwnedFd, OwnedFd), SandboxError> {
    let (channel, theirs) = control::pair().map_err(SandboxError::host("create a socket"))?;
    let pipe = pipe_with(PipeFlags::CLOEXEC).map_err(SandboxError::host("create a pipe"))?;
    let (report, their_report) = pipe;
    let image = prepare::image(plan, life.keeper.file_size(&plan.limits)?, streams.input_file())?;
    let descriptors = vec![
        (Role::Image, image.as_fd()),
        (Role::Report, their_report.as_fd()),
        (Role::Channel, theirs.as_fd()),
    ];
    match inside.control().exec(&streams.sent(descriptors)) {
        // If init has already exited, the report ends without one.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(errno) => return Err(SandboxError::host("start the command")(errno)),
    }
    streams.close_inner();
    Ok((channel, report))
}

fn wait_for_start(inside: &Inside, report: OwnedFd, plan: &CommandPlan) -> Result<(), SandboxError> {
    if inside.signals.is_some() {
        match signals::wait_readable(report.as_fd()) {
            Ok(Ok(())) => {}
            Ok(Err(signal)) => return Err(SandboxError::Interrupted { signal }),
            Err(errno) => return Err(SandboxError::host("wait for the command")(errno)),
        }
    }
    // Read before init is reaped: if it has died, its status would hide the cause.
    let mut bytes = Vec::new();
    let read = File::from(report).read_to_end(&mut bytes);
    if let Ok(bytes) = <[u8; REPORT_BYTES]>::try_from(bytes.as_slice())
        && let Some(failed) = Failed::from_bytes(bytes)
    {
        return Err(explain(failed, &inside.view, plan));
    }
    read.map(drop).map_err(|source| SandboxError::Host { operation: "read the sandbox's report", source })
}

impl Command {
    fn channel(&self) -> Channel<'_> {
        Channel(self.channel.as_fd())
    }

    /// Receives what init and the payload have sent before the first instruction.
    fn receive_descriptors(&mut self) -> Result<(), SandboxError> {
        let wanted = [self.streams.wants_terminal(), self.streams.wants_input(), self.inside.is_filtered];
        for _ in wanted.into_iter().filter(|wanted| *wanted) {
            match self.channel().next_message() {
                Ok(Some(Message::Terminal(fd))) => self.terminal = Some(fd),
                Ok(Some(Message::Input(fd))) => self.input = fd,
                Ok(Some(Message::Notifier(fd))) => {
                    self.refused = RefusedCalls::new(fd, Arc::clone(&self.inside.renames));
                }
                Ok(
                    Some(
                        Message::Memory(_)
                        | Message::Proc(_)
                        | Message::Listener(_)
                        | Message::Written(..)
                        | Message::Stopped(_)
                        | Message::Paused
                        | Message::End(_),
                    )
                    | None,
                ) => return Err(SandboxError::Vanished),
                Err(errno) => return Err(SandboxError::host("receive from the sandbox")(errno)),
            }
        }
        Ok(())
    }

    /// Watches the command to its end. Returns the listener's state as well: processes that it left running may use it.
    fn finish(self) -> (Completion, RefusedCalls) {
        let Self { inside, channel, streams, terminal, input, mut refused, limits, .. } = self;
        let begun = Instant::now();
        pause::point("streams");
        let signals = inside.signals.as_ref();
        let deadline = self.timeout.and_then(|limit| begun.checked_add(limit));
        let mut watch =
            Watch::new(Channel(channel.as_fd()), signals, limits.as_ref(), (deadline, self.grace));
        // Without its streams the command is useless, and it must not continue to write.
        let (end, flow) = match streams.start(terminal, input, inside.commands) {
            Ok(mut flow) => (watch.until_the_end(&mut refused, &mut flow), Some(flow)),
            Err(errno) => {
                watch.lost = Some(errno.into());
                let _ = Channel(channel.as_fd()).order(Order::Kill);
                (None, None)
            }
        };
        let Watch { signalled, timed_out, exceeded, lost: unwatched, .. } = watch;
        let killed = match (end, inside.commands) {
            (Some(_), _) | (None, Commands::Many) => None,
            // Init died early, or did not end: only after it is reaped can no process write.
            (None, Commands::One) => inside.kill(),
        };
        let executing = begun.elapsed();
        let flowed = flow.map(|flow| flow.finish());
        let Flowed { stdout, stderr, merged, undelivered } = flowed.unwrap_or_default();
        let exit = match end {
            Some(end) => exit_of(end.status),
            None => Exit::Signal(killed.unwrap_or(libc::SIGKILL)),
        };
        if signals.is_some() && exit != Exit::Signal(libc::SIGINT) {
            sys::interrupt_was_handled();
        }
        let looks = limits.and_then(limits::Watch::finish);
        let exceeded = exceeded.or_else(|| inside.exceeded.get().copied());
        let kept = inside.life().keeper.settle(limits::Ended { exit, timed_out, exceeded }, looks);
        let completion = Completion {
            timed_out,
            stdout,
            stderr,
            merged,
            usage: end.map(|end| usage_of(&end)).unwrap_or_default(),
            mounting: self.mounting,
            executing,
            undelivered,
            unwatched,
            confined: inside.confined,
            limits: kept.limits,
            stopped_by: kept.stopped_by,
            limits_reached: kept.reached,
            signalled,
            refused_calls: refused.take_calls(),
            ..Completion::of(kept.exit)
        };
        (completion, refused)
    }
}

/// What a caller can do with a command that runs.
struct Handle {
    channel: Arc<OwnedFd>,
    terminal: Option<OwnedFd>,
}

impl Handle {
    fn of(command: &Command) -> Self {
        let terminal = command.terminal.as_ref().and_then(|terminal| terminal.try_clone().ok());
        Self { channel: Arc::clone(&command.channel), terminal }
    }

    fn signal(&self, signal: i32) -> std::io::Result<()> {
        Ok(Channel(self.channel.as_fd()).order(Order::Signal(signal))?)
    }

    fn resize(&self, rows: u16, columns: u16) -> std::io::Result<()> {
        let terminal = self.terminal.as_ref().ok_or(Errno::NOTTY)?;
        Ok(tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
    }
}

/// The only command of a sandbox, which the thread watches that waits for it.
struct Only {
    handle: Handle,
    command: Option<Command>,
}

impl Only {
    fn new(command: Command) -> Self {
        Self { handle: Handle::of(&command), command: Some(command) }
    }
}

impl Exec for Only {
    fn wait(&mut self) -> Completion {
        match self.command.take() {
            Some(command) => command.finish().0,
            None => waited_for(),
        }
    }

    fn signal(&self, signal: i32) -> std::io::Result<()> {
        self.handle.signal(signal)
    }

    fn resize(&self, rows: u16, columns: u16) -> std::io::Result<()> {
        self.handle.resize(rows, columns)
    }
}

/// One of several commands, which a separate thread watches.
struct OneOfMany {
    handle: Handle,
    completion: Receiver<Completion>,
}

impl OneOfMany {
    fn start(command: Command) -> Result<Self, SandboxError> {
        let handle = Handle::of(&command);
        let (sender, completion) = channel();
        let watching = move || {
            let (completion, mut refused) = command.finish();
            // If nobody waits for it, nobody needs to know.
            let _ = sender.send(completion);
            // The processes that it left running need answers too.
            while let Some(listener) = refused.listener() {
                let mut fds = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
                match poll(&mut fds, None).map(|_| fds[0].revents().contains(PollFlags::IN)) {
                    Ok(true) => refused.answer_one(),
                    Ok(false) => refused.nobody_left(),
                    Err(_) => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("command".to_owned()).spawn(watching);
        if let Err(source) = thread {
            // Nobody would watch it.
            let _ = Channel(handle.channel.as_fd()).order(Order::Kill);
            return Err(SandboxError::Host { operation: "start a thread", source });
        }
        Ok(Self { handle, completion })
    }
}

impl Exec for OneOfMany {
    fn wait(&mut self) -> Completion {
        self.completion.recv().unwrap_or_else(|_| waited_for())
    }

    fn signal(&self, signal: i32) -> std::io::Result<()> {
        self.handle.signal(signal)
    }

    fn resize(&self, rows: u16, columns: u16) -> std::io::Result<()> {
        self.handle.resize(rows, columns)
    }
}

/// The completion of a command whose completion was taken before.
fn waited_for() -> Completion {
    let unwatched = Some(std::io::Error::other("it was waited for already"));
    Completion { unwatched, ..Completion::of(Exit::Signal(libc::SIGKILL)) }
}
