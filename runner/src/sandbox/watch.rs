//! Watches one command until it has ended: its deadline, its limits, its refused calls, and the signals of this process
//! if they are forwarded.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process};

use avfs_engine::{Exit, Usage};
use avfs_request::LimitKind;
use avfs_types::pause;

use crate::confine::RefusedCalls;
use crate::control::{Channel, End, Message, Order};
use crate::stdio::Flow;
use crate::sys::{Pid, Sender, SignalFd, Wait};
use crate::{limits, sys};

/// How long init may take to reap the killed processes before it is killed itself.
pub const REAPING: Duration = Duration::from_secs(5);

/// Init, until it has been waited for; on drop at the latest.
pub struct Init(pub Option<Pid>);

impl Init {
    /// Waits for init and returns the signal that killed it.
    pub fn wait(&mut self) -> Option<i32> {
        let status = sys::reap(self.0.take()?, Wait::UntilItEnds).ok().flatten()?;
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }

    /// Kills init, and with it every process inside, and waits until they are dead.
    pub fn kill(&mut self) -> Option<i32> {
        if let Some(pid) = self.0.and_then(rustix::process::Pid::from_raw) {
            // It may be dead already.
            let _ = kill_process(pid, Signal::KILL);
        }
        self.wait()
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The state of ending a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// All processes were sent SIGTERM; at this time they are killed.
    Asked {
        kill_at: Instant,
    },
    /// All processes were sent SIGTERM, with unlimited time to end.
    AskedForEver,
    /// Init was ordered to kill all processes; at this time init itself is killed.
    Killed {
        give_up_at: Instant,
    },
}

/// A command that is being watched.
pub struct Watch<'a> {
    channel: Channel<'a>,
    /// The signals of this process, if they are forwarded.
    signals: Option<&'a SignalFd>,
    /// The watch over the limits, if this is the only command.
    limits: Option<&'a limits::Watch>,
    deadline: Option<Instant>,
    grace: Duration,
    ending: Ending,
    pub timed_out: bool,
    /// The exceeded limit, if the processes were killed for one.
    pub exceeded: Option<LimitKind>,
    /// The number of SIGINT or SIGTERM signals from outside.
    requests: u32,
    /// A signal of any kind was forwarded.
    pub signalled: bool,
    /// SIGTSTP came from outside, and the command was asked to stop.
    asked_to_stop: bool,
    /// Why no message can be received any more.
    pub lost: Option<std::io::Error>,
}

impl<'a> Watch<'a> {
    pub fn new(
        channel: Channel<'a>,
        signals: Option<&'a SignalFd>,
        limits: Option<&'a limits::Watch>,
        (deadline, grace): (Option<Instant>, Duration),
    ) -> Self {
        Self {
            channel,
            signals,
            limits,
            deadline,
            grace,
            ending: Ending::No,
            timed_out: false,
            exceeded: None,
            requests: 0,
            signalled: false,
            asked_to_stop: false,
            lost: None,
        }
    }
}

impl Watch<'_> {
    /// Waits for the end of the command; `None` if it cannot be waited for any more.
    pub fn until_the_end(&mut self, refused: &mut RefusedCalls, flow: &mut Flow) -> Option<End> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN)];
            // The watch reports only once.
            let limits = self.limits.filter(|_| self.exceeded.is_none());
            let others =
                [self.signals.map(SignalFd::as_fd), refused.listener(), limits.map(limits::Watch::as_fd)];
            let places = others.map(|fd| {
                fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
                fd.map(|_| fds.len() - 1)
            });
            let wait = self.next_moment().map(|moment| moment.saturating_duration_since(Instant::now()));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            if poll(&mut fds, wait.as_ref()).is_err() {
                continue;
            }
            let came = |at: Option<usize>| at.map_or(PollFlags::empty(), |at| fds[at].revents());
            let [signalled, refusals, limit] = places.map(came);
            if !fds[0].revents().is_empty() {
                match self.channel.next_message() {
                    Ok(Some(Message::End(end))) => return Some(end),
                    Ok(Some(Message::Paused)) => {
                        self.paused(flow);
                        continue;
                    }
                    Ok(
                        Some(
                            Message::Memory(_)
                            | Message::Proc(_)
                            | Message::Listener(_)
                            | Message::Written(..)
                            | Message::Stopped(_)
                            | Message::Terminal(_)
                            | Message::Notifier(_)
                            | Message::Input(_),
                        )
                        | None,
                    ) => return None,
                    Err(errno) => {
                        self.lost = Some(errno.into());
                        return None;
                    }
                }
            }
            if !limit.is_empty() {
                self.limit_exceeded();
            }
            while !signalled.is_empty()
                && let Some(Ok(Some((signal, sender)))) = self.signals.map(SignalFd::read_with_sender)
            {
                self.signal(signal, sender, flow);
            }
            if refusals.contains(PollFlags::IN) {
                refused.answer_one();
            } else if !refusals.is_empty() {
                refused.nobody_left();
            }
            if !self.time_passed() {
                return None;
            }
        }
    }

    fn next_moment(&self) -> Option<Instant> {
        match self.ending {
            Ending::No => self.deadline,
            Ending::AskedForEver => None,
            Ending::Asked { kill_at } => Some(kill_at),
            Ending::Killed { give_up_at } => Some(give_up_at),
        }
    }

    fn signal(&mut self, signal: i32, sender: Sender, flow: &mut Flow) {
        // Keys are for the foreground of the command's terminal, however often they are pressed.
        let is_key = |flow: &Flow| sender == Sender::Kernel && flow.pass_key(signal);
        match signal {
            libc::SIGWINCH => return flow.resize(),
            libc::SIGCONT => return self.go_on(flow),
            libc::SIGTSTP => {
                self.asked_to_stop = !sys::is_ignored_by_caller(signal);
                // The command may handle it, or ignore it. If init is gone, the next read from the channel shows
                // that.
                if !is_key(flow) {
                    let _ = self.channel.order(Order::Signal(signal));
                }
                return;
            }
            _ => {}
        }
        self.signalled = true;
        pause::point("signalled");
        if is_key(flow) {
            return;
        }
        // The command ignores the signals that the caller ignores, unless it installs a handler.
        if (signal == libc::SIGINT || signal == libc::SIGTERM) && !sys::is_ignored_by_caller(signal) {
            self.requests += 1;
            if self.requests > 1 {
                self.kill();
                return;
            }
        }
        // If init is gone, the next read from the channel shows that.
        let _ = self.channel.order(Order::Signal(signal));
    }

    /// Called when the command was stopped by ^Z, or by a forwarded SIGTSTP. Then all processes inside and this
    /// process are stopped as well, since no limit and no timeout is watched meanwhile. If a command without a
    /// terminal stops on its own, only the command is stopped, and its timeout continues.
    fn paused(&mut self, flow: &mut Flow) {
        if self.signals.is_none() {
            // The process of a library is not ours to stop.
            return;
        }
        let asked = std::mem::take(&mut self.asked_to_stop);
        let whom = match (asked, flow.has_terminal()) {
            (true, _) => sys::Suspend::Process,
            (false, true) => sys::Suspend::Group,
            (false, false) => return,
        };
        let begun = Instant::now();
        let _ = self.channel.order(Order::Pause);
        flow.leave_terminal();
        pause::point("suspended");
        if let Err(errno) = sys::suspend(whom) {
            tracing::warn!(%errno, "cannot suspend this process");
        }
        self.postpone(begun.elapsed());
        // If nothing could stop this process, nothing will continue it.
        if !sys::is_pending(libc::SIGCONT) {
            self.go_on(flow);
        }
    }

    fn go_on(&mut self, flow: &mut Flow) {
        self.asked_to_stop = false;
        flow.take_terminal();
        let _ = self.channel.order(Order::Continue);
    }

    /// Excludes the time during which the run was suspended.
    fn postpone(&mut self, by: Duration) {
        let later = |moment: Instant| moment.checked_add(by).unwrap_or(moment);
        self.deadline = self.deadline.map(later);
        self.ending = match self.ending {
            Ending::No => Ending::No,
            Ending::AskedForEver => Ending::AskedForEver,
            Ending::Asked { kill_at } => Ending::Asked { kill_at: later(kill_at) },
            Ending::Killed { give_up_at } => Ending::Killed { give_up_at: later(give_up_at) },
        };
    }

    /// Kills at once: processes that exceed a limit get no grace time.
    fn limit_exceeded(&mut self) {
        self.exceeded = self.limits.and_then(limits::Watch::exceeded);
        if self.exceeded.is_none() {
            tracing::error!("the watch over the limits has ended; killing the command");
            self.limits = None;
        }
        self.kill();
    }

    fn kill(&mut self) {
        let _ = self.channel.order(Order::Kill);
        self.ending = Ending::Killed { give_up_at: Instant::now() + REAPING };
    }

    /// Handles expired deadlines; returns false if there is nothing left to wait for.
    fn time_passed(&mut self) -> bool {
        let now = Instant::now();
        match self.ending {
            Ending::No if self.deadline.is_some_and(|deadline| now >= deadline) => {
                self.timed_out = true;
                pause::point("timed-out");
                let _ = self.channel.order(Order::Terminate);
                // An overflow means an unlimited grace time.
                self.ending = match now.checked_add(self.grace) {
                    Some(kill_at) => Ending::Asked { kill_at },
                    None => Ending::AskedForEver,
                };
            }
            Ending::Asked { kill_at } if now >= kill_at => {
                pause::point("grace-over");
                self.kill();
            }
            Ending::Killed { give_up_at } if now >= give_up_at => return false,
            Ending::No | Ending::AskedForEver | Ending::Asked { .. } | Ending::Killed { .. } => {}
        }
        true
    }
}

pub fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        return Exit::Signal(libc::WTERMSIG(status));
    }
    Exit::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
}

pub fn usage_of(end: &End) -> Usage {
    Usage {
        user: Duration::from_micros(end.usage.user_micros),
        system: Duration::from_micros(end.usage.system_micros),
        max_rss_bytes: end.usage.max_rss_kib.saturating_mul(1024),
    }
}
