//! Process 1 while the command runs: adopts orphans, forwards signals, and in the end leaves no process alive.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

use super::private_dirs::PrivateDirs;
use crate::control::{Channel, End, Order};
use crate::sys;
use crate::sys::{Errno, Pid, SignalFd, SignalSet, Wait};

/// Waits for the command, kills and reaps all other processes, and reports the end.
pub fn until_the_end(payload: Pid, control: &Channel<'_>, private: &PrivateDirs<'_>) -> u8 {
    let Ok(children) = SignalFd::new(&SignalSet::of(&[libc::SIGCHLD])) else { return 1 };
    let mut status = None;
    while status.is_none() {
        let mut fds = [
            PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        let ordered = !fds[1].revents().is_empty();
        while let Ok(Some(_)) = children.read() {}
        loop {
            match sys::reap_any(Wait::No) {
                Ok(Some(reaped)) if libc::WIFSTOPPED(reaped.status) => {
                    // If the supervisor is gone, end of file on the channel follows.
                    if reaped.pid == payload {
                        let _ = control.send_stopped();
                    }
                }
                Ok(Some(reaped)) if reaped.pid == payload => status = Some(reaped.status),
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The signal is not repeated, so check for the command by its pid.
                Err(_) if status.is_none() => match sys::reap(payload, Wait::No) {
                    Ok(found) => {
                        status = found;
                        break;
                    }
                    // Its status is lost; the supervisor sees this process exit without reporting it.
                    Err(_) => return 1,
                },
                Err(_) => break,
            }
        }
        if ordered && status.is_none() {
            match control.next_order() {
                Some(Order::Signal(signal)) => signal_group(payload, signal),
                // Every process that handles SIGTERM gets the chance to do so.
                Some(Order::TerminateAll) => drop(sys::kill_all(libc::SIGTERM)),
                Some(Order::KillAll) => drop(sys::kill_all(libc::SIGKILL)),
                Some(Order::StopAll) => drop(sys::kill_all(libc::SIGSTOP)),
                Some(Order::ContinueAll) => drop(sys::kill_all(libc::SIGCONT)),
                // The supervisor has exited; all processes die with this one.
                None => return 1,
            }
        }
    }
    // Resource usage of dead processes is counted only if they are waited for.
    let _ = sys::kill_all(libc::SIGKILL);
    let mut left_running = 0_u16;
    loop {
        match sys::reap_any(Wait::UntilItEnds) {
            Ok(Some(reaped)) if is_killed(reaped.status) => left_running = left_running.saturating_add(1),
            Ok(_) => {}
            Err(Errno::CHILD) => break,
            Err(_) => return 1,
        }
    }
    private.hand_over(control);
    let end = End { status: status.unwrap_or(0), left_running, usage: sys::children_usage() };
    u8::from(control.send_end(&end).is_err())
}

fn is_killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
}

/// Signals the command's process group, as a terminal would.
fn signal_group(payload: Pid, signal: i32) {
    let group = rustix::process::Pid::from_raw(payload);
    let signal = rustix::process::Signal::from_named_raw(signal);
    if let (Some(group), Some(signal)) = (group, signal) {
        // It may have just exited.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
