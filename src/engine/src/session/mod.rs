//! The scratch of one run: made, used, finished by somebody else if need be.

pub mod fork_dirs;
pub mod mount_session;
pub mod orphans;
pub mod recover;
pub mod scratch_size;
pub mod session_record;
