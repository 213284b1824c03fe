//! Host operations of avfs, mostly on the file system: by file descriptor, and beneath a directory.
//!
//! This crate knows nothing of vaults. It never follows a symlink that another user may have planted, except in
//! complete paths given by the caller: those of vaults and of their locks, and those that are only read.
//!
//! ```
//! use std::os::fd::AsFd;
//!
//! use avfs_hostfs::{beneath, make};
//! use rustix::fs::OFlags;
//!
//! let dir = tempfile::tempdir()?;
//! std::os::unix::fs::symlink("/etc", dir.path().join("link"))?;
//! let root = beneath::open_root(dir.path())?;
//! make::file(root.as_fd(), b"file", 0o600)?;
//!
//! assert!(beneath::open(root.as_fd(), b"file", OFlags::RDONLY).is_ok());
//! assert!(beneath::open(root.as_fd(), b"link/passwd", OFlags::RDONLY).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(unsafe_code)]

pub mod beneath;
pub mod cause;
pub mod copy;
pub mod foreign;
pub mod held;
pub mod identity;
pub mod lock;
pub mod machine;
pub mod make;
pub mod mask;
pub mod new_file;
pub mod overlay;
pub mod owner;
pub mod ownership;
pub mod place;
pub mod random;
pub mod remove;
pub mod size_limit;
pub mod stat;
#[expect(unsafe_code, reason = "all unsafe code of this crate is here")]
mod sys;
pub mod text;
pub mod threads;
pub mod walk;
pub mod xattr;
