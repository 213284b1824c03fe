//! Landlock: file access rules that a process sets on itself, inherited by all its descendants.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Errno, Result, check};

const RULE_PATH_BENEATH: libc::c_long = 1;
const CREATE_RULESET_VERSION: libc::c_long = 1;

/// The handled access rights: refused unless a rule allows them.
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

/// The Landlock ABI version of this kernel, if supported.
pub fn landlock_abi() -> Option<u32> {
    // SAFETY: with the version flag the kernel reads no attributes.
    let outcome =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, CREATE_RULESET_VERSION) };
    u32::try_from(check(outcome).ok()?).ok()
}

/// A ruleset that is not enforced yet.
pub struct Ruleset(OwnedFd);

impl Ruleset {
    /// An older kernel, which knows fewer fields, accepts the additional ones if they are zero.
    pub fn new(attr: &RulesetAttr) -> Result<Self> {
        // SAFETY: `attr` has the layout and the size that are passed, and lives through the call.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const *attr,
                size_of::<RulesetAttr>(),
                0_usize,
            )
        };
        let fd = i32::try_from(check(outcome)?).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: the call succeeded, so `fd` is open and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Allows access rights on a file, or on everything below a directory.
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

    /// Enforces the ruleset on this thread. It cannot be undone.
    pub fn enforce(self) -> Result<()> {
        // SAFETY: takes numbers only.
        check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0_usize) })
            .map(drop)
    }
}
