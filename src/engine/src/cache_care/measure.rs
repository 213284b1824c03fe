//! What files take on the disk.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use walkdir::WalkDir;

/// The unit of a file's count of blocks, whatever the file system.
const BLOCK_BYTES: u64 = 512;

/// What everything at a path takes on the disk. Entries that cannot be read count nothing, and a file with several
/// names counts once.
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
