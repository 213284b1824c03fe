//! The kernel's calls by number on each architecture; read by build.rs too.
//!
//! Numbers never change once they are given out. A call that has no name here is unknown to every profile and answered
//! with ENOSYS, as by a kernel that does not have it.

/// The newest call that the profiles were written for, of Linux 6.17. The default profile allows every call that it
/// does not name, so a newer release of the crate must not add any unseen.
pub const LAST: u32 = 469;

pub fn name_on_x86_64(number: u32) -> Option<&'static str> {
    syscalls::x86_64::Sysno::new(reviewed(number)?).map(|call| call.name())
}

pub fn name_on_aarch64(number: u32) -> Option<&'static str> {
    match number {
        // The crate calls it fstatat.
        79 => Some("newfstatat"),
        // The crate lists the calls of 32-bit architectures with 64-bit times; a 64-bit kernel does not have them.
        403..=423 => None,
        _ => syscalls::aarch64::Sysno::new(reviewed(number)?).map(|call| call.name()),
    }
}

fn reviewed(number: u32) -> Option<usize> {
    usize::try_from(number).ok().filter(|_| number <= LAST)
}
