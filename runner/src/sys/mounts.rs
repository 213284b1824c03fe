//! mount_setattr(2), which is missing in both rustix and nix.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Result, check};

/// Attributes of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountAttr(u64);

impl MountAttr {
    pub const NONE: Self = Self(0);
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    pub const NO_SUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    pub const NO_DEV: Self = Self(libc::MOUNT_ATTR_NODEV);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[repr(C)]
struct RawAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Sets attributes on the mount of a descriptor (from open_tree), and on all mounts below it.
pub fn set_mount_attr(mount: BorrowedFd<'_>, attr: MountAttr) -> Result<()> {
    let raw = RawAttr { set: attr.0, clear: 0, propagation: 0, userns_fd: 0 };
    let empty: &CStr = c"";
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is a C string, `raw` has the layout and the size that are passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            empty.as_ptr(),
            flags,
            &raw const raw,
            size_of::<RawAttr>(),
        )
    })
    .map(drop)
}
