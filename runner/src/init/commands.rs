//! Process 1 while commands run: starts them, adopts orphans, forwards signals, and in the end leaves no process alive.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use avfs_engine::Commands;

use super::private_dirs::PrivateDirs;
use super::{Command, Files, payload};
use crate::control::{Channel, End, Order, Received, Request, Role};
use crate::prepare::Prepared;
use crate::stage::{At, Failed, Stage};
use crate::sys::{self, Errno, Pid, SignalFd, SignalSet, TreeUsage, Wait};

/// Commands that can be alive at once.
const COMMANDS_MAX: usize = 64;

/// A command that has been started.
struct Running {
    pid: Pid,
    /// `None` once nobody waits for the command.
    channel: Option<OwnedFd>,
}

struct Server<'a> {
    prepared: &'a Prepared,
    control: &'a Channel<'a>,
    private: &'a PrivateDirs<'a>,
    running: [Option<Running>; COMMANDS_MAX],
}

/// Executes the first command, then those that the supervisor sends, until it is ordered to stop. With one command, the
/// end of that is the order.
pub fn serve(prepared: &Prepared, control: &Channel<'_>, private: &PrivateDirs<'_>, first: Command) -> u8 {
    // Blocked since before the first child exists, so that no SIGCHLD is missed.
    let Ok(children) = SignalFd::new(&SignalSet::of(&[libc::SIGCHLD])) else { return 1 };
    let mut server = Server { prepared, control, private, running: [const { None }; COMMANDS_MAX] };
    server.start(first);
    if prepared.commands == Commands::One && server.running[0].is_none() {
        return 1;
    }
    loop {
        let ready = server.wait(&children);
        while let Ok(Some(_)) = children.read() {}
        if let Some(code) = server.reap() {
            return code;
        }
        if let Some(number) = ready.command {
            server.follow(number);
        }
        if ready.control {
            match control.next_request() {
                Some(Request::Exec(command)) => server.receive(command),
                Some(Request::Stop) => return server.stop(None),
                // The supervisor has exited; all processes die with this one.
                None => return 1,
            }
        }
    }
}

/// What there is to read, beside the ends of children.
struct Ready {
    control: bool,
    /// The number of a command with an order.
    command: Option<usize>,
}

impl Server<'_> {
    fn wait(&self, children: &SignalFd) -> Ready {
        let mut fds: [PollFd<'_>; COMMANDS_MAX + 2] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN));
        let mut numbers = [0; COMMANDS_MAX];
        fds[1] = PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN);
        let mut count = 0;
        for (number, running) in self.running.iter().enumerate() {
            if let Some(Running { channel: Some(channel), .. }) = running {
                fds[2 + count] = PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN);
                numbers[count] = number;
                count += 1;
            }
        }
        let fds = &mut fds[..2 + count];
        if poll(fds, None).is_err() {
            return Ready { control: false, command: None };
        }
        let came = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let command = fds[2..].iter().zip(numbers).find(|(fd, _)| came(fd)).map(|(_, number)| number);
        Ready { control: came(&fds[1]), command }
    }

    fn receive(&mut self, command: Received) {
        let report = command.descriptor(Role::Report);
        let report = report.and_then(|report| rustix::io::fcntl_dupfd_cloexec(report, 3).ok());
        match Command::open(command, Files::OfView) {
            Ok(command) => self.start(command),
            Err(failed) => payload::report(report.as_ref().map(OwnedFd::as_fd), failed),
        }
    }

    /// Starts a command, or reports why it cannot be started.
    fn start(&mut self, mut command: Command) {
        let Some(number) = self.running.iter().position(Option::is_none) else {
            return command.report(Failed { stage: Stage::Fork, errno: Errno::AGAIN });
        };
        match self.clone_payload(&mut command) {
            Ok(pid) => {
                self.running[number] = Some(Running { pid, channel: command.received.take(Role::Channel) })
            }
            Err(failed) => command.report(failed),
        }
    }

    fn clone_payload(&self, command: &mut Command) -> Result<Pid, Failed> {
        command.open_terminal()?;
        if let (Commands::One, Some(terminal)) = (self.prepared.commands, &command.opened.terminal) {
            rustix::process::ioctl_tiocsctty(terminal).at(Stage::Session)?;
        }
        sys::clone_process(sys::CloneFlags::default(), || payload::run(self.prepared, command))
            .at(Stage::Fork)
    }

    /// Takes the status of every child that has one. Returns the exit code if that was the end of the sandbox.
    fn reap(&mut self) -> Option<u8> {
        loop {
            match sys::reap_any(Wait::No) {
                Ok(Some(reaped)) if libc::WIFSTOPPED(reaped.status) => {
                    // If the supervisor is gone, end of file on the channel follows.
                    if let Some(channel) = self.channel_of(reaped.pid) {
                        let _ = channel.send_paused();
                    }
                }
                Ok(Some(reaped)) => {
                    if let Some(code) = self.ended(reaped.pid, reaped.status, reaped.usage) {
                        return Some(code);
                    }
                }
                // Without children, or on a host where wait4(2) fails. The signal is not repeated, so check for the
                // commands by their pids.
                Err(_) => return self.reap_commands(),
                Ok(None) => return None,
            }
        }
    }

    fn reap_commands(&mut self) -> Option<u8> {
        for number in 0..COMMANDS_MAX {
            let Some(pid) = self.running[number].as_ref().map(|running| running.pid) else { continue };
            match (sys::reap(pid, Wait::No), self.prepared.commands) {
                (Ok(None), _) => {}
                (Ok(Some(status)), _) => {
                    if let Some(code) = self.ended(pid, status, TreeUsage::default()) {
                        return Some(code);
                    }
                }
                // Its status is lost; the supervisor sees the channel closed without an end.
                (Err(_), Commands::One) => return Some(1),
                (Err(_), Commands::Many) => self.running[number] = None,
            }
        }
        None
    }

    /// Handles the end of a child: of a command, or of an orphan.
    fn ended(&mut self, pid: Pid, status: i32, usage: TreeUsage) -> Option<u8> {
        let number = self.running.iter().position(|it| it.as_ref().is_some_and(|it| it.pid == pid))?;
        let command = self.running[number].take()?;
        match self.prepared.commands {
            Commands::One => Some(self.stop(Some((command, status)))),
            Commands::Many => {
                command.end(status, usage);
                None
            }
        }
    }

    /// Kills and reaps every process. `only` is the command whose end stops the sandbox.
    fn stop(&mut self, only: Option<(Running, i32)>) -> u8 {
        // Resource usage of dead processes is counted only if they are waited for.
        let _ = sys::kill_all(libc::SIGKILL);
        let mut left_running = 0_u16;
        loop {
            match sys::reap_any(Wait::UntilItEnds) {
                Ok(Some(reaped)) => {
                    let is_command =
                        |it: &Option<Running>| it.as_ref().is_some_and(|it| it.pid == reaped.pid);
                    match self.running.iter().position(is_command) {
                        Some(number) => {
                            if let Some(command) = self.running[number].take() {
                                command.end(reaped.status, reaped.usage);
                            }
                        }
                        None => {
                            left_running = left_running.saturating_add(u16::from(is_killed(reaped.status)))
                        }
                    }
                }
                Ok(None) => {}
                Err(Errno::CHILD) => break,
                Err(_) => return 1,
            }
        }
        self.private.hand_over(self.control);
        let stopped = self.control.send_stopped(left_running);
        if let Some((command, status)) = only {
            command.end(status, sys::children_usage());
        }
        u8::from(stopped.is_err())
    }

    fn channel_of(&self, pid: Pid) -> Option<Channel<'_>> {
        let running = self.running.iter().flatten().find(|running| running.pid == pid)?;
        running.channel.as_ref().map(|channel| Channel(channel.as_fd()))
    }

    /// Executes the next order to a command.
    fn follow(&mut self, number: usize) {
        // It may have just ended.
        let Some(running) = &mut self.running[number] else { return };
        let Some(channel) = &running.channel else { return };
        let to_all = |signal| match self.prepared.commands {
            // Every process that handles SIGTERM gets the chance to do so.
            Commands::One => drop(sys::kill_all(signal)),
            Commands::Many => signal_group(running.pid, signal),
        };
        match Channel(channel.as_fd()).next_order() {
            Some(Order::Signal(signal)) => signal_group(running.pid, signal),
            Some(Order::Terminate) => to_all(libc::SIGTERM),
            Some(Order::Kill) => to_all(libc::SIGKILL),
            Some(Order::Pause) => to_all(libc::SIGSTOP),
            Some(Order::Continue) => to_all(libc::SIGCONT),
            None => running.channel = None,
        }
    }
}

impl Running {
    fn end(self, status: i32, usage: TreeUsage) {
        if let Some(channel) = self.channel {
            // If nobody waits for it, nobody needs to know.
            let _ = Channel(channel.as_fd()).send_end(&End { status, usage });
        }
    }
}

fn is_killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
}

/// Signals a command's process group, as a terminal would.
fn signal_group(command: Pid, signal: i32) {
    let group = rustix::process::Pid::from_raw(command);
    let signal = rustix::process::Signal::from_named_raw(signal);
    if let (Some(group), Some(signal)) = (group, signal) {
        // It may have just exited.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
