//! A leaf: what the library asks of the host, mostly of its file system, by file descriptor and beneath a
//! directory.
//!
//! Nothing here knows of vaults. Nothing here follows a symbolic link that somebody else may have planted, but in
//! paths that the caller names whole: a vault's own, and those of its locks.
#![forbid(unsafe_code)]

pub mod beneath;
pub mod cause;
pub mod copy;
pub mod held;
pub mod lock;
pub mod machine;
pub mod make;
pub mod mask;
pub mod overlay;
pub mod owner;
pub mod random;
pub mod remove;
pub mod size_limit;
pub mod stat;
pub mod threads;
pub mod xattr;
