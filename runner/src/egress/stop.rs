//! Waits for a descriptor, but not longer than the run.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The read end of a pipe that is closed when the run is over.
pub struct Stop(pub OwnedFd);

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Ready,
    Stopped,
    Late,
}

impl Stop {
    /// Waits for one descriptor.
    pub fn wait(&self, fd: BorrowedFd<'_>, flags: PollFlags, until: Instant) -> Woken {
        self.wait_any([(fd, flags)], until)
    }

    /// Waits for the first of several. A descriptor without flags is not polled, not even for errors.
    pub fn wait_any<const N: usize>(&self, fds: [(BorrowedFd<'_>, PollFlags); N], until: Instant) -> Woken {
        let wanted = fds.into_iter().filter(|(_, flags)| !flags.is_empty());
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(N + 1);
        polled.push(PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN));
        polled.extend(wanted.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Woken::Late;
            }
            // A duration too long to represent means no timeout.
            let left = Timespec::try_from(left).ok();
            // An interrupted wait is restarted.
            let Ok(count) = poll(&mut polled, left.as_ref()) else { continue };
            if !polled[0].revents().is_empty() {
                return Woken::Stopped;
            }
            if count > 0 {
                return Woken::Ready;
            }
        }
    }
}
