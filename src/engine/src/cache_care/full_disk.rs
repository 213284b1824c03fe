//! Handles a run that cannot start because the disk of the cache is full: frees space and starts the run again.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use avfs_vault::{VaultError, transfer};

use super::CacheKeeper;
use crate::error::{ExecuteError, is_disk_full};
use crate::run::{Note, Site};

/// True if an error was caused by a full disk, and the cache is on that disk.
pub(crate) fn is_cache_full(site: &Site<'_>, error: &ExecuteError) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
    let is_of_vault = matches!(error, ExecuteError::Vault(transfer::Error::Vault(VaultError::Backend(_))));
    let shares_disk = || {
        let vault = site.vault.path().and_then(device);
        vault.is_some() && vault == device(&site.cache_dir)
    };
    is_disk_full(error) && (!is_of_vault || shares_disk())
}

/// Removes everything that can be recreated from a full disk; `None` if there was nothing to remove.
pub(crate) fn make_room(site: &Site<'_>) -> Option<Note> {
    let (dir, layers) = (site.cache_dir.clone(), site.layers.clone());
    let keeper = CacheKeeper { dir, layers, bytes_max: None, vault: None };
    let freed = keeper.make_room().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot free space in the cache");
        0
    });
    let (size, dir) = (avfs_types::show_bytes_size(freed), site.cache_dir.display());
    let text =
        format!("the disk was full: removed {size} from the cache {dir}, which is made again when needed");
    (freed > 0).then(|| Note::new("cache.made_room", text))
}
