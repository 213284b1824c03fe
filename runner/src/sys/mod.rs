//! The only unsafe code: one function for each system call that the crates do not wrap safely.
//!
//! Code that runs between a clone and an exec must not allocate: another thread may have held the allocator's lock at
//! the time of the clone. Everything here follows this rule.

mod arguments;
mod exec;
mod fds;
mod landlock;
mod memory;
mod mounts;
mod network;
mod process;
mod seccomp;
mod signals;

pub use arguments::ArgumentArea;
pub use exec::{CommandImage, MappedCommand};
pub use fds::{adopt_fd, dup_to, keep_only_low_fds, keep_only_one};
pub use landlock::{Ruleset, RulesetAttr, landlock_abi};
pub use memory::read_memory;
pub use mounts::{MountAttr, set_mount_attr};
pub use network::{own_addresses, raise_loopback};
pub use process::{
    CloneFlags, Pid, TreeUsage, Wait, children_usage, clone_process, join_new_session_keyring, kill_all,
    reap, reap_any,
};
pub use seccomp::{
    Instruction, Notification, continue_notification, install_filter, install_filter_with_listener,
    is_waiting, receive_notification, refuse_notification,
};
pub use signals::{
    Sender, SignalFd, SignalSet, Suspend, block, block_also, default_child_signal, end_as_interrupted,
    end_by, interrupt_was_handled, interrupt_was_typed, is_ignored_by_caller, is_pending, restore_callers,
    set_blocked, signal_foreground, suspend, unblock_all,
};

pub use rustix::io::Errno;

pub type Result<T> = std::result::Result<T, Errno>;

/// The result of a raw system call.
fn check(outcome: libc::c_long) -> Result<libc::c_long> {
    if outcome >= 0 { Ok(outcome) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    // `std::io::Error::last_os_error` only reads errno; it does not allocate.
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
