//! Answers calls that the filter refused, and counts them by name; passes renames on.
//!
//! The decision does not depend on the caller's memory: the notification contains the call's number. The number of
//! names is bounded by the number of system calls, so this cannot grow without limit.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use avfs_request::RefusedCall;
use avfs_seccomp::{Answer, REFUSALS, STRICT_REFUSAL, WATCHED_CALLS};

use super::numbers::{name_on_aarch64, name_on_x86_64};
use crate::renames::Renames;
use crate::sys::{Errno, receive_notification, refuse_notification};

#[derive(Debug, Default)]
pub struct RefusedCalls {
    /// `None` if the kernel does not support a listener, and once no process is left under the filter.
    listener: Option<Arc<OwnedFd>>,
    counts: BTreeMap<&'static str, u64>,
    /// Those of the sandbox.
    renames: Arc<Renames>,
}

impl RefusedCalls {
    #[must_use]
    pub fn new(listener: Option<OwnedFd>, renames: Arc<Renames>) -> Self {
        Self { listener: listener.map(Arc::new), counts: BTreeMap::new(), renames }
    }

    /// The descriptor to poll.
    #[must_use]
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(|listener| listener.as_fd())
    }

    /// Answers one call only: a process that calls in a loop takes turns with the supervisor's other work.
    pub fn answer_one(&mut self) {
        let Some(listener) = self.listener.clone() else { return };
        let outcome = receive_notification(listener.as_fd()).and_then(|notification| {
            let name = name_of(notification.number);
            if WATCHED_CALLS.contains(&name) {
                return self.renames.answer(&listener, &notification).map(|()| None);
            }
            refuse_notification(listener.as_fd(), notification.id, answer_to(name).number())
                .map(|()| Some(name))
        });
        match outcome {
            Ok(None) => {}
            Ok(Some(name)) => *self.counts.entry(name).or_default() += 1,
            // The caller was killed or interrupted by a signal; a repeated call is counted then.
            Err(Errno::NOENT | Errno::INTR) => {}
            // Without a listener, the kernel fails the call with ENOSYS.
            Err(_) => self.nobody_left(),
        }
    }

    /// Closes the listener: no process is left under the filter.
    pub fn nobody_left(&mut self) {
        self.listener = None;
    }

    /// The refused calls, most frequent first.
    #[must_use]
    pub fn take_calls(&mut self) -> Vec<RefusedCall> {
        let counts = std::mem::take(&mut self.counts).into_iter();
        let mut calls: Vec<RefusedCall> =
            counts.map(|(call, count)| RefusedCall { call: call.to_owned(), count }).collect();
        calls.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.call.cmp(&other.call)));
        calls
    }
}

fn name_of(number: i32) -> &'static str {
    let name_here = if cfg!(target_arch = "aarch64") { name_on_aarch64 } else { name_on_x86_64 };
    u32::try_from(number).ok().and_then(name_here).unwrap_or("a call without a name")
}

/// The errno that the filter itself would return.
fn answer_to(name: &str) -> Answer {
    let named = REFUSALS.iter().find(|refusal| refusal.calls.contains(&name));
    named.map_or(STRICT_REFUSAL.answer, |refusal| refusal.answer)
}

#[cfg(test)]
mod tests {
    use avfs_seccomp::UNIX_REFUSAL;

    use super::*;

    #[test]
    fn calls_are_named_and_answered_as_in_the_table() {
        assert_eq!(name_of(i32::try_from(libc::SYS_ptrace).unwrap()), "ptrace");
        assert_eq!(name_of(-1), "a call without a name");
        assert_eq!(answer_to("mount"), Answer::NotPermitted);
        assert_eq!(answer_to("socket"), Answer::NoSuchFamily);
        assert_eq!(answer_to("socket"), UNIX_REFUSAL.answer);
        assert_eq!(answer_to("vmsplice"), STRICT_REFUSAL.answer);
        // One answer per name: the listener knows only the name.
        for refusal in REFUSALS {
            for name in refusal.calls {
                assert_eq!(answer_to(name), refusal.answer, "{name}");
            }
        }
    }

    #[test]
    fn the_most_frequent_refusal_comes_first() {
        let mut calls = RefusedCalls::default();
        calls.counts.extend([("ptrace", 1), ("mount", 5), ("bpf", 1)]);
        let counts: Vec<_> = calls.take_calls().into_iter().map(|it| (it.call, it.count)).collect();
        assert_eq!(counts, [("mount".to_owned(), 5), ("bpf".to_owned(), 1), ("ptrace".to_owned(), 1)]);
    }
}
