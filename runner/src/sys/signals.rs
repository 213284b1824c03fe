//! Signals: blocked, read from a descriptor, and restored to the caller's dispositions for a command.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::{Errno, Result, check};

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset initializes its argument.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialized by the call above.
        let mut set = Self(unsafe { set.assume_init() });
        for signal in signals {
            set.add(*signal);
        }
        set
    }

    /// Every signal.
    #[must_use]
    pub fn all() -> Self {
        let mut set = Self::of(&[]);
        // SAFETY: the set is valid for writing.
        unsafe { libc::sigfillset(&raw mut set.0) };
        set
    }

    fn add(&mut self, signal: i32) {
        // SAFETY: the set is valid; an invalid signal number is rejected, not written.
        unsafe { libc::sigaddset(&raw mut self.0, signal) };
    }

    fn has(&self, signal: i32) -> bool {
        // SAFETY: the set is valid; an invalid signal number is an error.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }
}

fn mask(how: i32, set: &SignalSet) -> Result<()> {
    // SAFETY: the set is valid and the old one is not requested.
    let failed = unsafe { libc::pthread_sigmask(how, &raw const set.0, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(failed)) }
}

/// Blocks these signals in this thread and in those it starts from now on.
pub fn block(set: &SignalSet) -> Result<()> {
    mask(libc::SIG_BLOCK, set)
}

/// As [`block`]; returns the previous mask.
pub fn block_also(set: &SignalSet) -> Result<SignalSet> {
    let mut before = SignalSet::of(&[]);
    // SAFETY: both sets are valid, and the old mask is written to our own set.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set.0, &raw mut before.0) };
    if failed == 0 { Ok(before) } else { Err(Errno::from_raw_os_error(failed)) }
}

/// Blocks exactly these signals in this thread.
pub fn set_blocked(set: &SignalSet) -> Result<()> {
    mask(libc::SIG_SETMASK, set)
}

pub fn unblock_all() -> Result<()> {
    mask(libc::SIG_SETMASK, &SignalSet::of(&[]))
}

/// Who has sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// As for ^C on a terminal.
    Kernel,
    Process,
}

/// Signals the foreground process group of a pseudo terminal, as its keys do: SIGINT, SIGQUIT or SIGTSTP.
pub fn signal_foreground(main: BorrowedFd<'_>, signal: i32) -> Result<()> {
    // SAFETY: the call takes a number only.
    let outcome = unsafe { libc::ioctl(main.as_raw_fd(), libc::TIOCSIG, signal) };
    check(libc::c_long::from(outcome)).map(drop)
}

/// How the last ^C on the terminal arrived: none did, as a signal to the process group, or as input for the command.
static INTERRUPT_KEY: AtomicU8 = AtomicU8::new(NO_KEY);
const NO_KEY: u8 = 0;
const SIGNAL_KEY: u8 = 1;
const INPUT_KEY: u8 = 2;

/// Called when ^C was passed to the command as input, so that no process outside has got the signal.
pub fn interrupt_was_typed() {
    INTERRUPT_KEY.store(INPUT_KEY, Ordering::Relaxed);
}

/// Called when the command survived ^C, such as a shell that cleared its line: the next program should not stop.
pub fn interrupt_was_handled() {
    INTERRUPT_KEY.store(NO_KEY, Ordering::Relaxed);
}

/// Ends this process by SIGINT if ^C was pressed on its terminal; also signals its process group, if the terminal has
/// not. A shell or `make` that waits for this process then stops as well.
pub fn end_as_interrupted() {
    let key = INTERRUPT_KEY.load(Ordering::Relaxed);
    if key == NO_KEY || is_ignored_by_caller(libc::SIGINT) {
        return;
    }
    set(libc::SIGINT, libc::SIG_DFL);
    if let Err(errno) = mask(libc::SIG_UNBLOCK, &SignalSet::of(&[libc::SIGINT])) {
        tracing::warn!(%errno, "cannot end by a signal");
        return;
    }
    // SAFETY: both take numbers only.
    let _ = unsafe { libc::kill(if key == INPUT_KEY { 0 } else { libc::getpid() }, libc::SIGINT) };
}

/// Ends this process by a signal.
pub fn end_by(signal: i32) {
    set(signal, libc::SIG_DFL);
    if let Err(errno) = mask(libc::SIG_UNBLOCK, &SignalSet::of(&[signal])) {
        tracing::warn!(%errno, "cannot end by a signal");
        return;
    }
    // SAFETY: takes numbers only.
    let _ = unsafe { libc::kill(libc::getpid(), signal) };
}

/// Which processes are suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspend {
    Group,
    Process,
}

/// Stops this process, or its whole group, as ^Z does, until SIGCONT. Returns at once if nothing could continue it:
/// the kernel does not stop a process in an orphaned process group. SIGTSTP is blocked before and after.
pub fn suspend(whom: Suspend) -> Result<()> {
    let stop = SignalSet::of(&[libc::SIGTSTP]);
    mask(libc::SIG_UNBLOCK, &stop)?;
    // SAFETY: both take numbers only.
    let outcome = unsafe {
        match whom {
            Suspend::Group => libc::kill(0, libc::SIGTSTP),
            Suspend::Process => libc::kill(libc::getpid(), libc::SIGTSTP),
        }
    };
    mask(libc::SIG_BLOCK, &stop)?;
    check(libc::c_long::from(outcome)).map(drop)
}

/// True if a blocked signal is pending.
#[must_use]
pub fn is_pending(signal: i32) -> bool {
    let mut set = SignalSet::of(&[]);
    // SAFETY: `set` is valid for writing.
    let failed = unsafe { libc::sigpending(&raw mut set.0) };
    failed == 0 && set.has(signal)
}

/// The highest signal number of the kernel.
const SIGNAL_MAX: i32 = 64;

/// The signals that the caller ignores, and those that it blocks, one bit each.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Runs before main and before Rust's runtime, which always ignores SIGPIPE.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_CALLERS: extern "C" fn() = note_callers;

extern "C" fn note_callers() {
    let mut blocked = SignalSet::of(&[]);
    // SAFETY: a null set changes nothing; the current mask is written to our own set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked.0) };
    let is_blocked = |signal: &i32| blocked.has(*signal);
    BLOCKED.store((1..=SIGNAL_MAX).filter(is_blocked).map(bit).sum(), Ordering::Relaxed);
    let mut ignored = 0;
    for signal in 1..=SIGNAL_MAX {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: a null action changes nothing; the current one is written to `action` if the call succeeds.
        let outcome = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: initialized, since the call succeeded.
        if outcome == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN {
            ignored |= bit(signal);
        }
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    if is_ignored_by_caller(libc::SIGCHLD) {
        // Otherwise the kernel would reap every child automatically, and its status would be lost.
        set(libc::SIGCHLD, libc::SIG_DFL);
    }
}

const fn bit(signal: i32) -> u64 {
    if signal < 1 || signal > SIGNAL_MAX { 0 } else { 1 << (signal - 1) }
}

/// True for a signal that was ignored when this process started, as with nohup, or for a shell command with `&`.
#[must_use]
pub fn is_ignored_by_caller(signal: i32) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

fn set(signal: i32, disposition: libc::sighandler_t) {
    // SAFETY: the callers pass SIG_DFL or SIG_IGN; for SIGKILL, SIGSTOP and the C library's own signals the call
    // fails without effect.
    unsafe { libc::signal(signal, disposition) };
}

/// Ignores every signal that the caller ignores, resets the others to their default action, and blocks exactly those
/// that the caller blocks, as after an exec by the caller.
pub fn restore_callers() -> Result<()> {
    for signal in 1..=SIGNAL_MAX {
        set(signal, if is_ignored_by_caller(signal) { libc::SIG_IGN } else { libc::SIG_DFL });
    }
    let blocked = BLOCKED.load(Ordering::Relaxed);
    let mut set = SignalSet::of(&[]);
    for signal in (1..=SIGNAL_MAX).filter(|signal| blocked & bit(*signal) != 0) {
        set.add(signal);
    }
    set_blocked(&set)
}

/// Lets this process wait for its children, even if the program that it was cloned from ignores SIGCHLD.
pub fn default_child_signal() {
    set(libc::SIGCHLD, libc::SIG_DFL);
}

/// A descriptor for polling and reading signals.
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// The set should be blocked, or the signals are handled elsewhere.
    pub fn new(set: &SignalSet) -> Result<Self> {
        // SAFETY: the set is valid; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        check(libc::c_long::from(fd))?;
        // SAFETY: the call succeeded, so `fd` is open and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, if any.
    pub fn read(&self) -> Result<Option<i32>> {
        Ok(self.read_with_sender()?.map(|(signal, _)| signal))
    }

    pub fn read_with_sender(&self) -> Result<Option<(i32, Sender)>> {
        let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for `size` bytes.
        let outcome = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        match check(i64::try_from(outcome).unwrap_or(-1)) {
            Ok(length) if usize::try_from(length) == Ok(size) => {
                // SAFETY: the kernel wrote the whole record, and any bytes are a valid one.
                let info = unsafe { info.assume_init() };
                let sender = if info.ssi_code == libc::SI_KERNEL { Sender::Kernel } else { Sender::Process };
                let signal = i32::try_from(info.ssi_signo).ok();
                if (signal, sender) == (Some(libc::SIGINT), Sender::Kernel) {
                    INTERRUPT_KEY.store(SIGNAL_KEY, Ordering::Relaxed);
                }
                Ok(signal.map(|signal| (signal, sender)))
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
