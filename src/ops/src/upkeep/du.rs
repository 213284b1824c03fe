//! The disk use of the vault, the cache and the scratches.

use std::path::Path;

use avfs_engine::{CacheUsage, LocateError, Part};
use avfs_vault::backend::sqlite::{COMPANIONS, sibling};
use avfs_wire::{Du, DuCache, DuPart, DuScratch, DuVault};
use avfs_workplace::{Client, OpError};

pub fn du(client: &Client) -> Result<Du, OpError> {
    let vault = match client.surroundings.locate(client.vault_option.as_deref()) {
        Ok(located) => Some(of_vault(&located.path)),
        Err(LocateError::NoneNear { .. }) => None,
        Err(other) => return Err(other.into()),
    };
    let keeper = client.cache_keeper()?;
    let CacheUsage {
        bases,
        layers,
        dirs,
        fork_dirs,
        stat_caches,
        unfinished,
        running,
        recoverable,
        orphaned,
        dead,
        total_bytes,
    } = keeper.usage()?;
    let part = |part: Part| DuPart { count: part.count, bytes: part.bytes };
    Ok(Du {
        vault,
        cache: DuCache {
            path: keeper.dir.to_string_lossy().into_owned(),
            bytes: total_bytes,
            max_bytes: keeper.bytes_max,
            bases: part(bases),
            layers: part(layers),
            dirs: part(dirs),
            fork_dirs: part(fork_dirs),
            stat_caches: part(stat_caches),
            unfinished: part(unfinished),
        },
        scratch: DuScratch {
            running: part(running),
            recoverable: part(recoverable),
            orphaned: part(orphaned),
            dead: part(dead),
        },
    })
}

fn of_vault(path: &Path) -> DuVault {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let beside: u64 = COMPANIONS.iter().map(|suffix| size(&sibling(path, suffix))).sum();
    DuVault { path: path.to_string_lossy().into_owned(), bytes: size(path).saturating_add(beside) }
}
