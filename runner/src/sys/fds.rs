//! Operations on descriptors by number, before an exec.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Errno, Result, check};

/// Makes `number` a copy of `fd` that survives an exec.
pub fn dup_to(fd: BorrowedFd<'_>, number: i32) -> Result<()> {
    if fd.as_raw_fd() == number {
        // dup2 to itself would leave the close-on-exec flag set.
        // SAFETY: takes numbers only.
        return check(libc::c_long::from(unsafe { libc::fcntl(number, libc::F_SETFD, 0) })).map(drop);
    }
    // SAFETY: replacing `number` is the purpose; the callers are about to exec and own no such descriptor.
    check(libc::c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), number) })).map(drop)
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> Result<()> {
    // SAFETY: takes numbers only; the caller is responsible for the effect on the descriptors.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Marks all descriptors above stderr close-on-exec: an inherited descriptor of a directory leads out of any root.
pub fn keep_only_low_fds() -> Result<()> {
    close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes every descriptor except one, which also takes the numbers of the standard streams: descriptors that are
/// opened later get higher numbers.
///
/// Only for a process that was cloned and will not touch the values that own the others.
pub fn keep_only_one(fd: BorrowedFd<'_>) -> Result<()> {
    let kept = fd.as_raw_fd().unsigned_abs();
    if let Some(below) = kept.checked_sub(1) {
        close_range(0, below, 0)?;
    }
    close_range(kept + 1, u32::MAX, 0)?;
    for number in 0..3 {
        dup_to(fd, number)?;
    }
    Ok(())
}

/// Duplicates a descriptor that the caller named by number, as a file that no command inherits.
pub fn adopt_fd(number: i32) -> Result<File> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: only borrowed for the duplication, which fails if the descriptor is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = rustix::fs::fcntl_getfl(borrowed)?;
    if !flags.intersects(rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::RDWR) {
        return Err(Errno::BADF);
    }
    rustix::io::fcntl_dupfd_cloexec(borrowed, 3).map(File::from)
}
