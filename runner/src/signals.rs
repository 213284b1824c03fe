//! The signals of this process while `avfs-run` is the program: blocked and forwarded to the command while that runs,
//! and requests to end afterwards. A library leaves the signals of its process alone and does not come here.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::event::{PollFd, PollFlags, poll};

use crate::sys::{self, SignalFd, SignalSet};

/// Signals that are forwarded to the command.
const FORWARDED: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// Forwarded signals that end a run whose command has not started.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT];
/// Blocks the signals and reads them from a descriptor from now on; threads started later inherit the mask.
pub fn hold() -> sys::Result<SignalFd> {
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
pub fn take() {
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
pub fn heed() {
    take();
    IS_STORED.store(true, Ordering::SeqCst);
}

/// The signal that asks for the end, once the changes of the command are stored.
pub fn asked_to_end() -> Option<i32> {
    let is_asked = IS_STORED.load(Ordering::SeqCst) && ASKED.load(Ordering::SeqCst);
    is_asked.then(|| i32::try_from(ASKED_BY.load(Ordering::SeqCst)).unwrap_or(libc::SIGTERM))
}

/// Waits until a descriptor is readable. If a signal to end arrives first, returns that signal.
///
/// The command may already run when this returns. Other signals are meant for it, so they stay pending until it is
/// watched.
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

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[test]
    fn signals_for_the_command_stay_pending_until_it_is_watched() {
        let signals = hold().unwrap();
        raise(Signal::SIGUSR1).unwrap();
        raise(Signal::SIGTERM).unwrap();
        let (report, _open) = rustix::pipe::pipe().unwrap();
        assert_eq!(wait_readable(report.as_fd()).unwrap(), Err(libc::SIGTERM));
        assert_eq!(signals.read().unwrap(), Some(libc::SIGUSR1));
        assert_eq!(signals.read().unwrap(), None);
    }
}
