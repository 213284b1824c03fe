//! The process outside: watches the command, its deadline and the supervisor's own signals until every process inside
//! is dead.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process};

use avfs_engine::{Completion, Exit, LaunchPlan, OutsideWrites, Usage, ViewStep};
use avfs_request::{Confined, LimitKind, NetMode};
use avfs_types::pause;

use crate::confine::RefusedCalls;
use crate::control::{Channel, End, Message, Order};
use crate::egress::Egress;
use crate::launch::SandboxError;
use crate::limits::Keeper;
use crate::outside_writes::{PRIVATE_DIRS_MAX, private_dirs};
use crate::renames::Renamed;
use crate::stdio::{Flow, Flowed, Streams};
use crate::sys::{Pid, Sender, SignalFd, SignalSet, Wait};
use crate::{limits, outside_writes, sys};

/// Signals that are forwarded to the command.
const FORWARDED: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// Forwarded signals that end a run whose command has not started.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT];
/// How long init may take to reap the killed processes before it is killed itself.
const REAPING: Duration = Duration::from_secs(5);

/// A sandbox whose command is running.
pub struct Supervised {
    pub pid: Pid,
    pub control: OwnedFd,
    pub memory: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    /// Stdin, if init has reopened a regular file.
    pub input: Option<OwnedFd>,
    /// The listening socket for the command's connections, if it has an allow list.
    pub listener: Option<OwnedFd>,
    /// The sandbox's /proc, to inspect its processes.
    pub proc: Option<OwnedFd>,
    pub streams: Streams,
    pub refused: RefusedCalls,
}

/// Blocks the signals and reads them from a descriptor from now on; threads started later inherit the mask.
pub fn hold_signals() -> sys::Result<SignalFd> {
    // Of an earlier run of this process.
    IS_STORED.store(false, Ordering::SeqCst);
    ASKED.store(false, Ordering::SeqCst);
    let mut held = FORWARDED.to_vec();
    held.extend([libc::SIGWINCH, libc::SIGTSTP, libc::SIGCONT]);
    let set = SignalSet::of(&held);
    sys::block(&set)?;
    SignalFd::new(&set)
}

/// Called after the command has ended and its changes are on disk: the first signal to end waits until they are
/// captured, a second one does not. Changes in memory exist nowhere else, so signals stay blocked until those are
/// captured.
fn let_signals_through() -> sys::Result<()> {
    use signal_hook::flag;
    /// The handlers stay installed when the process continues with another run.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    let refused = |error: std::io::Error| sys::Errno::from_io_error(&error).unwrap_or(sys::Errno::INVAL);
    if !INSTALLED.swap(true, Ordering::SeqCst) {
        for signal in FORWARDED.into_iter().filter(|signal| !sys::is_ignored_by_caller(*signal)) {
            match signal {
                // These signals do not request an end, and must not end the process.
                libc::SIGUSR1 | libc::SIGUSR2 => flag::register(signal, Arc::default()),
                _ => {
                    let code = i32::from(avfs_types::exit_code::RUN_SIGNALLED) + signal;
                    let number = usize::try_from(signal).unwrap_or_default();
                    // In this order: a handler first checks whether another signal came before, and then records its
                    // own.
                    flag::register_conditional_shutdown(signal, code, Arc::clone(&ASKED))
                        .and_then(|_| flag::register_usize(signal, Arc::clone(&ASKED_BY), number))
                        .and_then(|_| flag::register(signal, Arc::clone(&ASKED)))
                }
            }
            .map_err(refused)?;
        }
    }
    sys::unblock_all()
}

/// As [`let_signals_through`]. If that fails, signals merely stay blocked until the end.
pub fn take_signals() {
    if let Err(errno) = let_signals_through() {
        tracing::warn!(%errno, "cannot unblock signals; they stay blocked until the end");
    }
}

/// Whether a signal asked for the end since the command ended, and which one.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static ASKED_BY: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// Whether the changes of the command are stored.
static IS_STORED: AtomicBool = AtomicBool::new(false);

/// Called when the changes of the command are stored: from now on a signal ends the rest of the work.
pub fn heed_signals() {
    take_signals();
    IS_STORED.store(true, Ordering::SeqCst);
}

/// The signal that asks for the end, once the changes of the command are stored.
pub fn asked_to_end() -> Option<i32> {
    let is_asked = IS_STORED.load(Ordering::SeqCst) && ASKED.load(Ordering::SeqCst);
    is_asked.then(|| i32::try_from(ASKED_BY.load(Ordering::SeqCst)).unwrap_or(libc::SIGTERM))
}

/// Waits until a descriptor is readable. If a signal to end arrives first, returns that signal.
///
/// The command may already run when this returns. Other signals are meant for it, so they stay pending for [`watch`].
pub fn wait_readable(fd: BorrowedFd<'_>) -> sys::Result<Result<(), i32>> {
    let ending = ENDING.into_iter().filter(|signal| !sys::is_ignored_by_caller(*signal));
    let ending = SignalFd::new(&SignalSet::of(&ending.collect::<Vec<_>>()))?;
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(fd, PollFlags::IN),
            PollFd::from_borrowed_fd(ending.as_fd(), PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            return Ok(Ok(()));
        }
        if let Ok(Some(signal)) = ending.read() {
            return Ok(Err(signal));
        }
    }
}

pub fn kill_and_reap(pid: Pid) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // The process may have exited already; only the wait matters.
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = sys::reap(pid, Wait::UntilItEnds);
}

/// The exiting init process. It is waited for on drop at the latest.
pub struct Leaving(Option<Pid>);

impl Leaving {
    /// Waits for init and returns the signal that killed it.
    pub fn wait(&mut self) -> Option<i32> {
        let status = sys::reap(self.0.take()?, Wait::UntilItEnds).ok().flatten()?;
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }

    fn kill(&mut self) -> Option<i32> {
        if let Some(pid) = self.0.and_then(rustix::process::Pid::from_raw) {
            // It may be dead already.
            let _ = kill_process(pid, Signal::KILL);
        }
        self.wait()
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The state of ending a run.
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

struct Watch<'a> {
    control: Channel<'a>,
    ending: Ending,
    timed_out: bool,
    limits: Option<&'a limits::Watch>,
    /// The exceeded limit, if the processes were killed for one.
    exceeded: Option<LimitKind>,
    /// The number of SIGINT or SIGTERM signals from outside.
    requests: u32,
    /// A signal of any kind was forwarded.
    signalled: bool,
    /// SIGTSTP came from outside, and the command was asked to stop.
    asked_to_stop: bool,
    deadline: Option<Instant>,
    grace: Duration,
    refused: RefusedCalls,
    /// Private directories that the command wrote to, by their indexes.
    written: Vec<(usize, OwnedFd)>,
    /// Why no message can be received any more.
    lost: Option<std::io::Error>,
}

/// Watches the run to its end. When this returns, only init is left inside, and it is exiting.
pub fn watch(
    sandbox: Supervised,
    signals: &SignalFd,
    plan: &LaunchPlan,
    mut keeper: Keeper,
) -> Result<(Completion, Leaving), SandboxError> {
    let Supervised { pid, control, memory, terminal, input, listener, proc, streams, refused } = sandbox;
    let begun = Instant::now();
    pause::point("streams");
    // Without its streams the command is useless, and it must not continue to write.
    let mut flow = streams.start(terminal, input).map_err(|errno| {
        kill_and_reap(pid);
        SandboxError::host("start the streams")(errno)
    })?;
    let egress = start_egress(listener, &plan.request.net, begun).map_err(|errno| {
        kill_and_reap(pid);
        SandboxError::host("start the proxy")(errno)
    })?;
    // The command must not run without the watch over its limits either.
    let limits = keeper.watch(proc).map_err(|source| {
        kill_and_reap(pid);
        SandboxError::Host { operation: "start a thread", source }
    })?;
    let mut watch = Watch {
        control: Channel(control.as_fd()),
        limits: limits.as_ref(),
        exceeded: None,
        ending: Ending::No,
        timed_out: false,
        requests: 0,
        signalled: false,
        asked_to_stop: false,
        deadline: plan.request.timeout.duration().and_then(|limit| begun.checked_add(limit)),
        grace: plan.request.grace,
        refused,
        written: Vec::new(),
        lost: None,
    };
    let end = watch.until_the_end(signals, &mut flow);
    let Watch { signalled, timed_out, exceeded, mut refused, written, lost: unwatched, .. } = watch;
    let Renamed { dirs_failed: dirs_not_renamed, names: names_renamed } = refused.finish_renames();
    let outside_writes = outside_writes(written, &plan.view);
    let mut leaving = Leaving(Some(pid));
    let killed = match end {
        // Init has reaped all other processes and only exits, which releases all mounts and namespaces.
        Some(_) if !keeper.keeps_anything() => None,
        // The control groups of a run can be removed only when they are empty.
        Some(_) => leaving.wait(),
        // Init died early, or did not end: only after it is reaped can no process write.
        None => leaving.kill(),
    };
    let executing = begun.elapsed();
    let connections = egress.map(Egress::finish).unwrap_or_default();
    let Flowed { stdout, stderr, merged, undelivered } = flow.finish();
    // The changes of the command matter more than an immediate reaction to signals.
    if memory.is_none() {
        take_signals();
    }
    let exit = match end {
        Some(end) => exit_of(end.status),
        None => Exit::Signal(killed.unwrap_or(libc::SIGKILL)),
    };
    if exit != Exit::Signal(libc::SIGINT) {
        sys::interrupt_was_handled();
    }
    let kept = keeper.settle(limits::Ended { exit, timed_out, exceeded }, limits);
    let completion = Completion {
        exit: kept.exit,
        timed_out,
        stdout,
        stderr,
        merged,
        usage: end.map(|end| usage_of(&end)).unwrap_or_default(),
        left_running: end.map_or(0, |end| end.left_running.into()),
        mounting: Duration::ZERO,
        executing,
        memory,
        undelivered,
        unwatched,
        confined: Confined::NOTHING,
        limits: kept.limits,
        stopped_by: kept.stopped_by,
        limits_reached: kept.reached,
        signalled,
        connections,
        refused_calls: refused.into_calls(),
        dirs_not_renamed,
        names_renamed,
        outside_writes,
    };
    Ok((completion, leaving))
}

/// The files that the command left in the directories that init has handed over.
fn outside_writes(written: Vec<(usize, OwnedFd)>, view: &[ViewStep]) -> OutsideWrites {
    if written.is_empty() {
        return OutsideWrites::default();
    }
    let paths = private_dirs(view);
    let dirs = written.into_iter().filter_map(|(number, dir)| Some((*paths.get(number)?, dir)));
    outside_writes::look(&dirs.collect::<Vec<_>>(), view)
}

/// Starts the proxy, if the network mode is an allow list.
fn start_egress(listener: Option<OwnedFd>, net: &NetMode, begun: Instant) -> sys::Result<Option<Egress>> {
    match (listener, net) {
        (Some(listener), NetMode::Allow(list)) => Egress::start(listener, list.clone(), begun).map(Some),
        (Some(_), NetMode::None | NetMode::Host) | (None, _) => Ok(None),
    }
}

impl Watch<'_> {
    fn until_the_end(&mut self, signals: &SignalFd, flow: &mut Flow) -> Option<End> {
        loop {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            // The watch reports only once.
            let limits = self.limits.filter(|_| self.exceeded.is_none());
            let [refused_at, limit_at] =
                [self.refused.listener(), limits.map(limits::Watch::as_fd)].map(|fd| {
                    fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
                    fd.map(|_| fds.len() - 1)
                });
            let wait = self.next_moment().map(|moment| moment.saturating_duration_since(Instant::now()));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            if poll(&mut fds, wait.as_ref()).is_err() {
                continue;
            }
            let came = |at: Option<usize>| at.map_or(PollFlags::empty(), |at| fds[at].revents());
            let (refusals, limit) = (came(refused_at), came(limit_at));
            let signalled = !fds[1].revents().is_empty();
            if !fds[0].revents().is_empty() {
                return match self.control.next_message() {
                    Ok(Some(Message::End(end))) => Some(end),
                    Ok(Some(Message::Written(number, dir))) if self.written.len() < PRIVATE_DIRS_MAX => {
                        self.written.push((number, dir));
                        continue;
                    }
                    Ok(Some(Message::Stopped)) => {
                        self.stopped(flow);
                        continue;
                    }
                    Ok(
                        Some(
                            Message::Memory(_)
                            | Message::Terminal(_)
                            | Message::Listener(_)
                            | Message::Notifier(_)
                            | Message::Proc(_)
                            | Message::Input(_)
                            | Message::Written(..),
                        )
                        | None,
                    ) => None,
                    Err(errno) => {
                        self.lost = Some(errno.into());
                        None
                    }
                };
            }
            if !limit.is_empty() {
                self.limit_exceeded();
            }
            while signalled && let Ok(Some((signal, sender))) = signals.read_with_sender() {
                self.signal(signal, sender, flow);
            }
            if refusals.contains(PollFlags::IN) {
                self.refused.answer_one();
            } else if !refusals.is_empty() {
                self.refused.nobody_left();
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
                    let _ = self.control.order(Order::Signal(signal));
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
        let _ = self.control.order(Order::Signal(signal));
    }

    /// Called when the command was stopped by ^Z, or by a forwarded SIGTSTP. Then all processes inside and this
    /// process are stopped as well, since no limit and no timeout is watched meanwhile. If a command without a
    /// terminal stops on its own, only the command is stopped, and its timeout continues.
    fn stopped(&mut self, flow: &mut Flow) {
        let asked = std::mem::take(&mut self.asked_to_stop);
        let whom = match (asked, flow.has_terminal()) {
            (true, _) => sys::Suspend::Process,
            (false, true) => sys::Suspend::Group,
            (false, false) => return,
        };
        let begun = Instant::now();
        let _ = self.control.order(Order::StopAll);
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
        let _ = self.control.order(Order::ContinueAll);
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
        let _ = self.control.order(Order::KillAll);
        self.ending = Ending::Killed { give_up_at: Instant::now() + REAPING };
    }

    /// Handles expired deadlines; returns false if there is nothing left to wait for.
    fn time_passed(&mut self) -> bool {
        let now = Instant::now();
        match self.ending {
            Ending::No if self.deadline.is_some_and(|deadline| now >= deadline) => {
                self.timed_out = true;
                pause::point("timed-out");
                let _ = self.control.order(Order::TerminateAll);
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

fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        return Exit::Signal(libc::WTERMSIG(status));
    }
    Exit::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
}

fn usage_of(end: &End) -> Usage {
    Usage {
        user: Duration::from_micros(end.usage.user_micros),
        system: Duration::from_micros(end.usage.system_micros),
        max_rss_bytes: end.usage.max_rss_kib.saturating_mul(1024),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[test]
    fn signals_for_the_command_stay_pending_until_it_is_watched() {
        let signals = hold_signals().unwrap();
        raise(Signal::SIGUSR1).unwrap();
        raise(Signal::SIGTERM).unwrap();
        let (report, _open) = rustix::pipe::pipe().unwrap();
        assert_eq!(wait_readable(report.as_fd()).unwrap(), Err(libc::SIGTERM));
        assert_eq!(signals.read().unwrap(), Some(libc::SIGUSR1));
        assert_eq!(signals.read().unwrap(), None);
    }
}
