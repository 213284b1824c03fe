//! seccomp(2): a filter for this process and its descendants, and the notifications that a filter may send.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Errno, Result, check};

/// One instruction of a filter.
pub type Instruction = libc::sock_filter;

/// A system call that a filter passed to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    pub id: u64,
    /// The calling thread's id, in this process's pid namespace.
    pub thread: u32,
    pub number: i32,
    pub arguments: [u64; 6],
}

/// Installs a filter permanently. The kernel requires no_new_privs.
pub fn install_filter(program: &[Instruction]) -> Result<()> {
    install(program, 0).map(drop)
}

/// The same, with a descriptor that receives the calls for which the filter requests a notification.
pub fn install_filter_with_listener(program: &[Instruction]) -> Result<OwnedFd> {
    // While a caller waits for an answer, only fatal signals interrupt it: outside of avfs these calls never fail
    // with EINTR.
    let unbroken = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = match install(program, unbroken) {
        // A kernel before 5.19.
        Err(Errno::INVAL) => install(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?,
        other => other?,
    };
    let fd = i32::try_from(fd).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: the call succeeded, so `fd` is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn install(program: &[Instruction], flags: libc::c_ulong) -> Result<libc::c_long> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    // The kernel only reads it.
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `filter` and the instructions it points to live through the call, `len` is their number.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    })
}

/// Receives the next call. Blocks if there are no calls, so poll first. [`Errno::NOENT`] if its process died
/// meanwhile.
pub fn receive_notification(listener: BorrowedFd<'_>) -> Result<Notification> {
    // SAFETY: an all-zero seccomp_notif is a valid value of a plain struct, and the kernel requires it to be zeroed.
    let mut record: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request names the size of the record, which lives through the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut record)
    }))?;
    Ok(Notification {
        id: record.id,
        thread: record.pid,
        number: record.data.nr,
        arguments: record.data.args,
    })
}

/// Whether the caller still waits for the answer. If so, everything read from the thread before belongs to the call.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the request names the size of the id, which lives through the call.
    let outcome =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) };
    outcome == 0
}

/// Makes the call fail with an errno. [`Errno::NOENT`] if the caller no longer waits for the answer.
pub fn refuse_notification(listener: BorrowedFd<'_>, id: u64, errno: u16) -> Result<()> {
    answer(listener, &libc::seccomp_notif_resp { id, val: 0, error: -i32::from(errno), flags: 0 })
}

/// Lets the kernel execute the call as if there were no listener, with the arguments in the caller's memory at that
/// time.
pub fn continue_notification(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).map_err(|_| Errno::INVAL)?;
    answer(listener, &libc::seccomp_notif_resp { id, val: 0, error: 0, flags })
}

fn answer(listener: BorrowedFd<'_>, answer: &libc::seccomp_notif_resp) -> Result<()> {
    // SAFETY: the request names the size of the record, which lives through the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, std::ptr::from_ref(answer))
    }))
    .map(drop)
}
