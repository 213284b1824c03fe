//! Signals: blocked, read from a descriptor, and given back to a command as it would have found them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Errno, Result, check};

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset initializes what it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialized by the call above.
        let mut set = unsafe { set.assume_init() };
        for signal in signals {
            // SAFETY: `set` is valid; a number that is no signal is refused, not written.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        Self(set)
    }
}

fn mask(how: i32, set: &SignalSet) -> Result<()> {
    // SAFETY: the set is valid and the old one is not asked for.
    let failed = unsafe { libc::pthread_sigmask(how, &raw const set.0, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(failed)) }
}

/// Holds these signals back in this thread and in those it starts from now on.
pub fn block(set: &SignalSet) -> Result<()> {
    mask(libc::SIG_BLOCK, set)
}

/// As [`block`]; gives what was held back before.
pub fn block_also(set: &SignalSet) -> Result<SignalSet> {
    let mut before = SignalSet::of(&[]);
    // SAFETY: both sets are valid, and the old one is written to a set of our own.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set.0, &raw mut before.0) };
    if failed == 0 { Ok(before) } else { Err(Errno::from_raw_os_error(failed)) }
}

/// Holds these signals back in this thread, and no others.
pub fn set_blocked(set: &SignalSet) -> Result<()> {
    mask(libc::SIG_SETMASK, set)
}

pub fn unblock_all() -> Result<()> {
    mask(libc::SIG_SETMASK, &SignalSet::of(&[]))
}

/// Every signal does what it does to a fresh process, whatever was ignored before. (Rust ignores SIGPIPE.)
pub fn reset_to_default() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is a valid disposition; for SIGKILL, SIGSTOP and the C library's own the call fails
        // and changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Signals as something to poll and read.
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// The set should be blocked, or the signals are handled elsewhere.
    pub fn new(set: &SignalSet) -> Result<Self> {
        // SAFETY: the set is valid; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        check(libc::c_long::from(fd))?;
        // SAFETY: the call succeeded, so `fd` is open and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal that came, if one did.
    pub fn read(&self) -> Result<Option<i32>> {
        let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for `size` bytes.
        let outcome = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        match check(i64::try_from(outcome).unwrap_or(-1)) {
            Ok(length) if usize::try_from(length) == Ok(size) => {
                // SAFETY: the kernel wrote the whole record, and any bytes are a valid one.
                let info = unsafe { info.assume_init() };
                Ok(i32::try_from(info.ssi_signo).ok())
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
