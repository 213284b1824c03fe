//! The scratch of one run: created, used, and finished by another process if necessary.

pub mod batch_lock;
pub mod fork_dirs;
pub mod mount_session;
pub mod noted;
pub mod orphans;
pub mod recover;
pub mod scratch_size;
pub mod session_record;
