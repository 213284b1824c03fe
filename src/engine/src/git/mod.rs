//! What a run needs to know about git: whose name commits carry, and which directories belong to one repository.
//!
//! Reads files of the host and of the workspace, both bounded and without following what they say further than stated;
//! never starts git.

pub mod identity;
pub mod repository;

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The text of a small file; `None` if it does not exist, is longer or is not UTF-8.
fn read_small(path: &Path, bytes_max: u64) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(bytes_max + 1).read_to_end(&mut text).ok()?;
    if u64::try_from(text.len()).ok()? > bytes_max {
        return None;
    }
    String::from_utf8(text).ok()
}
