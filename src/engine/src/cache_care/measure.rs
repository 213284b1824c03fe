//! Disk usage of files.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use walkdir::WalkDir;

/// The unit of `st_blocks`, on every file system.
const BLOCK_BYTES: u64 = 512;

/// Disk usage of everything at a path. Entries that cannot be read are not counted, and a file with several
/// hard links is counted once.
pub(super) fn disk_bytes(path: &Path) -> u64 {
    let mut linked = HashSet::new();
    let mut total: u64 = 0;
    for entry in WalkDir::new(path).into_iter().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() || meta.nlink() < 2 || linked.insert((meta.dev(), meta.ino())) {
            total = total.saturating_add(meta.blocks().saturating_mul(BLOCK_BYTES));
        }
    }
    total
}
