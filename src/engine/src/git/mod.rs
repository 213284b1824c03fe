//! Facts about git that a run needs: the identity for commits, and which directories belong to a repository.
//!
//! Reads bounded amounts of files of the host and the workspace, and follows their references only as
//! documented. Never starts git.

pub mod config;
pub mod identity;
pub mod repository;
pub mod settings;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use avfs_hostfs::beneath;
use avfs_hostfs::text::{Symlink, open_found};

/// The text of a small file; `None` if it does not exist, is larger than `bytes_max`, or is not UTF-8.
fn read_small(path: &Path, bytes_max: u64) -> Option<String> {
    let mut text = Vec::new();
    open_found(path, Symlink::Follow).ok()?.take(bytes_max + 1).read_to_end(&mut text).ok()?;
    if u64::try_from(text.len()).ok()? > bytes_max {
        return None;
    }
    String::from_utf8(text).ok()
}

/// The same for a file beneath a directory on the host, without following any symlink beneath it.
fn read_small_in(dir: &Path, path: &Path, bytes_max: u64) -> Option<String> {
    let dir = beneath::open_root(dir).ok()?;
    read_small_beneath(dir.as_fd(), path.as_os_str().as_bytes(), bytes_max)
}

/// The same for a file beneath an open directory.
fn read_small_beneath(dir: BorrowedFd<'_>, path: &[u8], bytes_max: u64) -> Option<String> {
    let file = File::from(beneath::open(dir, path, beneath::READ).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut text).ok()?;
    let is_small = u64::try_from(text.len()).ok()? <= bytes_max;
    is_small.then(|| String::from_utf8(text).ok())?
}
