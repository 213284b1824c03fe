//! The loopback interface of a new network namespace, which is initially down, and the addresses of the current one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Result, check};

/// Brings up `lo`. Needs privileges over the namespace, so it must be called before they are dropped.
pub fn raise_loopback() -> Result<()> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(libc::c_long::from(fd))?;
    // SAFETY: the call succeeded, so `fd` is open and has no other owner.
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

/// The list of interfaces that getifaddrs(3) returned.
struct Interfaces(*mut libc::ifaddrs);

impl Drop for Interfaces {
    fn drop(&mut self) {
        // SAFETY: the pointer came from getifaddrs, and no reference into the list is left.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// Every address of every interface of this process's network namespace. Allocates: not for use after a clone.
pub fn own_addresses() -> Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is valid for writing.
    check(libc::c_long::from(unsafe { libc::getifaddrs(&raw mut first) }))?;
    let interfaces = Interfaces(first);
    let mut found = Vec::new();
    let mut next = interfaces.0;
    while !next.is_null() {
        // SAFETY: not null, so it points to an entry of the list, which lives until `interfaces` is dropped.
        let entry = unsafe { *next };
        found.extend(address_of(entry.ifa_addr));
        next = entry.ifa_next;
    }
    Ok(found)
}

fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so it points to an address; each one begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a sockaddr_in.
            let address = unsafe { *address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a sockaddr_in6.
            let address = unsafe { *address.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_address() {
        assert!(own_addresses().unwrap().iter().any(IpAddr::is_loopback));
    }
}
