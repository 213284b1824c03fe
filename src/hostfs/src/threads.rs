//! Threads that signals to the process pass by.
//!
//! The kernel hands such a signal to any thread that does not block it. A command that watches for signals blocks them
//! on its own thread; one helper thread that does not would let the default action end the process.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// What people and other programs send to a process.
const SENT: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Runs `start`; the threads that it starts block what is sent to the process, and this thread does so only meanwhile.
pub fn shielded<T>(start: impl FnOnce() -> T) -> T {
    let before = SENT.into_iter().collect::<SigSet>().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    if let Ok(before) = before {
        // It was this thread's mask a moment ago, so that it can be again.
        let _ = before.thread_set_mask();
    }
    started
}
