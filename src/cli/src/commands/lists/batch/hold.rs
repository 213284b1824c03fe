//! One process at a time is at a batch. Its workers hold on too: after a kill the next one waits until the last of
//! them is gone, and with it what it might still write.

use std::path::PathBuf;
use std::time::Duration;

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::make;
use avfs_types::ids::BatchId;

use super::error::BatchError;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::Failure;

/// How long the workers of a process that was killed may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Hold {
    _lock: FileLock,
    path: PathBuf,
}

impl Hold {
    pub fn take(ctx: &CommandContext, id: &BatchId) -> Result<Self, Failure> {
        let dir = ctx.around.cache_dir()?.join("batch");
        make::private_dirs(&dir).map_err(EdgeError::host("make", &dir))?;
        let path = dir.join(id.as_str());
        loop {
            let lock = FileLock::acquire(&path, Mode::Exclusive, PATIENCE)
                .map_err(|source| BatchError::Held { id: id.clone(), source })?;
            // Whoever had it before may have removed the file.
            if lock.is_at(&path).unwrap_or(false) {
                lock.pass_on().map_err(EdgeError::host("pass on", &path))?;
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
