//! Threads that do not receive signals sent to the process.
//!
//! The kernel delivers such a signal to any thread that does not block it. A command that waits for signals blocks
//! them on its own thread; a helper thread that does not block them would let the default action end the process.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// The signals that users and other programs send to a process.
const SENT: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Runs `start`; the threads that it starts block these signals, and this thread blocks them only during the call.
pub fn shielded<T>(start: impl FnOnce() -> T) -> T {
    let before = SENT.into_iter().collect::<SigSet>().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    if let Ok(before) = before {
        // Restoring cannot fail: it was this thread's mask before.
        let _ = before.thread_set_mask();
    }
    started
}
