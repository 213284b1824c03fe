//! The system call numbers of each architecture; also used by build.rs.
//!
//! Numbers never change once they are assigned. A call without a name here is unknown to every profile and fails with
//! ENOSYS, as on a kernel that does not have it.

/// The newest system call that the profiles cover, of Linux 6.17. The default profile allows every call that it does
/// not name, so a newer release of the crate must not add calls that were not reviewed.
pub const LAST: u32 = 469;

pub fn name_on_x86_64(number: u32) -> Option<&'static str> {
    syscalls::x86_64::Sysno::new(reviewed(number)?).map(|call| call.name())
}

pub fn name_on_aarch64(number: u32) -> Option<&'static str> {
    match number {
        // The crate names it fstatat.
        79 => Some("newfstatat"),
        // The crate lists the 64-bit time calls of 32-bit architectures, which a 64-bit kernel does not have.
        403..=423 => None,
        _ => syscalls::aarch64::Sysno::new(reviewed(number)?).map(|call| call.name()),
    }
}

fn reviewed(number: u32) -> Option<usize> {
    usize::try_from(number).ok().filter(|_| number <= LAST)
}
