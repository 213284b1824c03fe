//! The loopback interface of a new network namespace, which starts out down.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Result, check};

/// Raises `lo`. Needs the rights over the namespace: before they are dropped.
pub fn raise_loopback() -> Result<()> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(libc::c_long::from(fd))?;
    // SAFETY: the call succeeded, so `fd` is open and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an all-zero ifreq is a valid value of a plain struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(up).unwrap_or(libc::c_short::MAX);
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives through the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request)
    }))
    .map(drop)
}
