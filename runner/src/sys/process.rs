//! Processes: made in new namespaces, reaped, measured, ended.

use super::{Errno, Result, check};

pub type Pid = libc::pid_t;

/// Namespaces for a new process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneFlags(libc::c_int);

impl CloneFlags {
    pub const USER: Self = Self(libc::CLONE_NEWUSER);
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS);
    pub const PID: Self = Self(libc::CLONE_NEWPID);
    pub const IPC: Self = Self(libc::CLONE_NEWIPC);
    pub const UTS: Self = Self(libc::CLONE_NEWUTS);
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP);
    pub const NET: Self = Self(libc::CLONE_NEWNET);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Makes a process, in new namespaces where flags ask for them, that runs `child` and nothing else.
///
/// `child` must not allocate or take a lock of this process: other threads exist only in the parent.
pub fn clone_process(flags: CloneFlags, child: impl FnOnce() -> u8) -> Result<Pid> {
    let flags = libc::c_long::from(flags.0 | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack the child gets a copy of this address space and goes on
    // from here, as after fork(2). Pointers for thread ids are null because no flag asks for them.
    let outcome = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match check(outcome)? {
        0 => exit_now(child()),
        pid => Pid::try_from(pid).map_err(|_| Errno::OVERFLOW),
    }
}

/// Ends this process at once: no destructors, no buffers written, which belong to the process it was cloned from.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(i32::from(code)) }
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    pub pid: Pid,
    /// As wait(2) tells it.
    pub status: i32,
}

/// Takes the status of any child that has ended; nothing if there are children but none has. With no
/// children at all it is [`Errno::CHILD`].
pub fn reap_any(wait: bool) -> Result<Option<Reaped>> {
    let mut status = 0;
    let options = if wait { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` lives through the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, options) };
        match check(libc::c_long::from(pid)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(Reaped { pid, status })),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends a signal to every process of the pid namespace but the caller, who is its first one.
pub fn kill_all(signal: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    match check(libc::c_long::from(unsafe { libc::kill(-1, signal) })) {
        // Nobody is left.
        Ok(_) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What the children that were waited for have used, and theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    pub user_micros: u64,
    pub system_micros: u64,
    pub max_rss_kib: u64,
}

pub fn children_usage() -> TreeUsage {
    // SAFETY: an all-zero rusage is a valid value of a plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing; the call fails for a bad selector only.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    TreeUsage {
        user_micros: micros(usage.ru_utime),
        system_micros: micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }
}

/// Leaves the caller's keys behind: an inherited session keyring holds credentials of the host.
pub fn join_new_session_keyring() -> Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name makes an anonymous keyring; nothing is read or written.
    let outcome = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0_usize) };
    match check(outcome) {
        // A kernel without keyrings, or a filter that forbids the call, leaves none to be reached either way.
        Ok(_) | Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno),
    }
}
