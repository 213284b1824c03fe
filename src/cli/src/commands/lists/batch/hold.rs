//! The lock of a batch or race: only one process at a time runs it. Its workers hold the lock too, so after a kill
//! the next process waits until the last worker has exited and can no longer write.

use std::path::PathBuf;
use std::time::Duration;

use avfs_engine::batch_lock;
use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::make;
use avfs_ops::{OpError, WorkplaceError};
use avfs_types::ids::BatchId;

use super::error::BatchError;
use crate::context::CommandContext;

/// How long to wait for the workers of a killed process to exit.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Hold {
    _lock: FileLock,
    path: PathBuf,
}

impl Hold {
    pub fn take(ctx: &CommandContext, id: &BatchId) -> Result<Self, OpError> {
        let path = batch_lock(&ctx.client.surroundings.cache_dir()?, id);
        if let Some(dir) = path.parent() {
            make::private_dirs(dir).map_err(WorkplaceError::host("create", dir))?;
        }
        loop {
            let lock = FileLock::acquire(&path, Mode::Exclusive, PATIENCE)
                .map_err(|source| BatchError::Held { id: id.clone(), source })?;
            // The previous holder may have removed the file.
            if lock.is_at(&path).unwrap_or(false) {
                lock.pass_on().map_err(WorkplaceError::host("pass on", &path))?;
                return Ok(Self { _lock: lock, path });
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // An empty file that stays does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}
