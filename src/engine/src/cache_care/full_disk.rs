//! A run that cannot begin because the disk of the cache is full: room is made, and it begins again.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use avfs_vault::VaultError;

use super::CacheKeeper;
use crate::error::{ExecuteError, is_disk_full};
use crate::proxy::ProxyRuntime;
use crate::run::Run;

impl ProxyRuntime<'_> {
    /// True if an error comes from a full disk that the cache is on.
    pub(crate) fn is_cache_full(&self, error: &ExecuteError) -> bool {
        let device = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
        let is_of_vault = matches!(error, ExecuteError::Vault(VaultError::Backend(_)));
        let shares_disk = || {
            let vault = self.site.vault.path().and_then(device);
            vault.is_some() && vault == device(&self.site.cache_dir)
        };
        is_disk_full(error) && (!is_of_vault || shares_disk())
    }

    /// Removes what can be made again from a full disk; false if there was nothing.
    pub(crate) fn make_room(&self, run: &mut Run) -> bool {
        let site = self.site;
        let (dir, layers) = (site.cache_dir.clone(), site.layers.clone());
        let keeper = CacheKeeper { dir, layers, bytes_max: None, vault: None };
        let freed = keeper.make_room().unwrap_or_else(|error| {
            tracing::warn!(%error, "no room could be made in the cache");
            0
        });
        if freed > 0 {
            let size = avfs_types::show_bytes_size(freed);
            let dir = site.cache_dir.display();
            run.note(
                "cache.made_room",
                format!("the disk was full: removed {size} of {dir} that can be made again"),
            );
        }
        freed > 0
    }
}
