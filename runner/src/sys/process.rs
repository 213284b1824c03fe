//! Processes: creation in new namespaces, reaping, resource usage, killing.

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

/// Creates a process, in new namespaces if the flags ask for them, that runs only `child`.
///
/// `child` must not allocate or take a lock of this process: other threads exist only in the parent.
pub fn clone_process(flags: CloneFlags, child: impl FnOnce() -> u8) -> Result<Pid> {
    let flags = libc::c_long::from(flags.0 | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack the child gets a copy of this address space and continues from
    // here, as after fork(2). Pointers for thread ids are null because no flag asks for them.
    let outcome = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match check(outcome)? {
        0 => exit_now(child()),
        pid => Pid::try_from(pid).map_err(|_| Errno::OVERFLOW),
    }
}

/// Ends this process at once: runs no destructors and flushes no buffers, which belong to the process it was cloned
/// from.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: ends the process, so nothing is used afterwards.
    unsafe { libc::_exit(i32::from(code)) }
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    pub pid: Pid,
    /// The wait(2) status.
    pub status: i32,
    /// Its own, and that of the children it has waited for; only if it has ended.
    pub usage: TreeUsage,
}

/// Whether to wait for a child that has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    UntilItEnds,
}

/// Takes the status of any child that has ended or, with `Wait::No`, was stopped. `None` if there are children, but
/// no status is available. Without children it fails with [`Errno::CHILD`].
pub fn reap_any(wait: Wait) -> Result<Option<Reaped>> {
    wait4(-1, wait)
}

/// Takes the wait(2) status of one child; `None` if it has not ended. If wait4(2) fails, as it does under some
/// tracers and filters, waitid(2) is used.
pub fn reap(pid: Pid, wait: Wait) -> Result<Option<i32>> {
    match wait4(pid, wait) {
        Ok(reaped) => {
            Ok(reaped.filter(|reaped| !libc::WIFSTOPPED(reaped.status)).map(|reaped| reaped.status))
        }
        Err(_) => waitid(pid, wait),
    }
}

fn wait4(pid: Pid, wait: Wait) -> Result<Option<Reaped>> {
    let mut status = 0;
    let options = match wait {
        Wait::No => libc::WNOHANG | libc::WUNTRACED,
        Wait::UntilItEnds => 0,
    };
    loop {
        // SAFETY: an all-zero rusage is a valid value of a plain struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `status` and `usage` live through the call.
        let pid = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        match check(libc::c_long::from(pid)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(Reaped { pid, status, usage: TreeUsage::of(&usage) })),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn waitid(pid: Pid, wait: Wait) -> Result<Option<i32>> {
    let options = match wait {
        Wait::No => libc::WEXITED | libc::WNOHANG,
        Wait::UntilItEnds => libc::WEXITED,
    };
    loop {
        // SAFETY: an all-zero siginfo_t is a valid value of a plain struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is valid for writing.
        let outcome = unsafe { libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut info, options) };
        match check(libc::c_long::from(outcome)) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => {
                // SAFETY: waitid fills in the fields of a child, or leaves all of them zero.
                let (ended, status) = unsafe { (info.si_pid(), info.si_status()) };
                return Ok(match (ended, info.si_code) {
                    (0, _) => None,
                    (_, libc::CLD_EXITED) => Some((status & 0xff) << 8),
                    (_, libc::CLD_DUMPED) => Some(status | 0x80),
                    (_, _) => Some(status),
                });
            }
        }
    }
}

/// Sends a signal to every process of the pid namespace except the caller, which is its first process.
pub fn kill_all(signal: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    match check(libc::c_long::from(unsafe { libc::kill(-1, signal) })) {
        // No process is left.
        Ok(_) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The resource usage of the children that were waited for, and of their descendants.
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
    TreeUsage::of(&usage)
}

impl TreeUsage {
    fn of(usage: &libc::rusage) -> Self {
        let micros = |time: libc::timeval| {
            u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
        };
        Self {
            user_micros: micros(usage.ru_utime),
            system_micros: micros(usage.ru_stime),
            max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        }
    }
}

/// Detaches from the caller's keys: an inherited session keyring holds credentials of the host.
pub fn join_new_session_keyring() -> Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name creates an anonymous keyring; no memory is read or written.
    let outcome = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0_usize) };
    match check(outcome) {
        // On a kernel without keyrings, or if a filter forbids the call, no keyring can be reached anyway.
        Ok(_) | Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waitid_returns_the_same_status_as_wait4() {
        for (code, signal) in [(0, 0), (7, 0), (255, 0), (0, libc::SIGKILL)] {
            let status = [reap, |pid, wait| waitid(pid, wait)].map(
                |wait_for: fn(Pid, Wait) -> Result<Option<i32>>| {
                    let child = clone_process(CloneFlags::default(), || {
                        // SAFETY: takes numbers only; this is a separate process.
                        unsafe { libc::kill(libc::getpid(), signal) };
                        code
                    });
                    wait_for(child.unwrap(), Wait::UntilItEnds).unwrap().unwrap()
                },
            );
            assert_eq!(status[0], status[1]);
        }
        assert_eq!(waitid(std::process::id().cast_signed(), Wait::No), Err(Errno::CHILD));
    }
}
