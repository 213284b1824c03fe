//! Empties the cache.

use avfs_engine::Orphans;
use avfs_vault::gc::Trial;
use avfs_wire::Clean;
use avfs_workplace::{Client, OpError};

/// Removes data that is created again when needed; with `orphans`, also uncaptured changes of runs whose vault is gone.
pub fn clean(client: &Client, dry_run: bool, orphans: bool) -> Result<Clean, OpError> {
    // All vaults share the cache, so the option selects nothing; but a wrong name is a mistake.
    if let Some(vault) = &client.vault_option {
        client.surroundings.locate(Some(vault))?;
    }
    let trial = if dry_run { Trial::DryRun } else { Trial::Real };
    let orphans = if orphans { Orphans::Discarded } else { Orphans::Kept };
    let swept = client.cache_keeper()?.clean(trial, orphans)?;
    Ok(Clean {
        dry_run,
        freed_bytes: swept.freed_bytes,
        kept_bytes: swept.kept_bytes,
        bases: swept.bases,
        layers: swept.layers,
        dirs: swept.dirs,
        stat_caches: swept.stat_caches,
        scratches: swept.scratches,
        leftovers: swept.leftovers,
    })
}
