//! A leaf: what the library asks of the host's file system, by file descriptor and beneath a directory.
//!
//! Nothing here knows of vaults. Nothing here follows a symbolic link that somebody else may have planted.

pub mod beneath;
pub mod cause;
pub mod lock;
pub mod make;
pub mod overlay;
pub mod random;
pub mod remove;
pub mod stat;
pub mod xattr;
