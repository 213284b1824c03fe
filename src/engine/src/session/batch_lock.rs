//! The lock that a batch or race holds while it runs, and passes on to its workers.

use std::path::{Path, PathBuf};

use avfs_types::ids::BatchId;

/// The path of the lock.
#[must_use]
pub fn batch_lock(cache: &Path, id: &BatchId) -> PathBuf {
    cache.join("batch").join(id.as_str())
}
