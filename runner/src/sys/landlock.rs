//! Landlock: rules about files that a process sets itself, and all it starts keep.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Errno, Result, check};

const RULE_PATH_BENEATH: libc::c_long = 1;
const CREATE_RULESET_VERSION: libc::c_long = 1;

/// What is handled: refused unless a rule allows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesetAttr {
    pub handled_files: u64,
    pub handled_net: u64,
    pub scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The version of Landlock this kernel has, if any.
pub fn landlock_abi() -> Option<u32> {
    // SAFETY: with the version flag the kernel reads no attributes.
    let outcome =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, CREATE_RULESET_VERSION) };
    u32::try_from(check(outcome).ok()?).ok()
}

/// Rules in the making.
pub struct Ruleset(OwnedFd);

impl Ruleset {
    /// A kernel that knows fewer fields takes the others for what they are if they are zero.
    pub fn new(attr: &RulesetAttr) -> Result<Self> {
        // SAFETY: `attr` has the layout and the size that are told, and lives through the call.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const *attr,
                size_of::<RulesetAttr>(),
                0_usize,
            )
        };
        let fd = i32::try_from(check(outcome)?).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: the call succeeded, so `fd` is open and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Allows something on a file, or on everything beneath a directory.
    pub fn allow(&self, place: BorrowedFd<'_>, rights: u64) -> Result<()> {
        let rule = PathBeneath { allowed: rights, parent: place.as_raw_fd() };
        // SAFETY: `rule` has the packed layout of the kernel's record and lives through the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.0.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0_usize,
            )
        })
        .map(drop)
    }

    /// From here on it holds, for good.
    pub fn enforce(self) -> Result<()> {
        // SAFETY: takes numbers only.
        check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0_usize) })
            .map(drop)
    }
}
