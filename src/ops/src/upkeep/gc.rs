//! Deletes expired forks and unreferenced data.

use std::sync::atomic::Ordering;

use avfs_engine::{CacheOwners, ForkDirs, reference_counts_path};
use avfs_types::ids::ForkName;
use avfs_wire::Gc;
use avfs_workplace::{Client, OpError, WorkplaceError};

pub fn gc(client: &Client) -> Result<Gc, OpError> {
    client.free_space(|| sweep(client))
}

fn sweep(client: &Client) -> Result<Gc, OpError> {
    let vault = client.open_sparing_runs()?.vault;
    let size = || vault.read().and_then(|reader| Ok(reader.file_bytes()?));
    let file_bytes_before = size()?;
    let (id, cache_dir) = (vault.id()?, client.surroundings.cache_dir().ok());
    let swept = {
        let progress = client.observer.whole_operation("sweeping");
        let counts = cache_dir.as_ref().map(|cache_dir| reference_counts_path(cache_dir, &id));
        let progress = |looked_at| progress.meter.files.store(looked_at, Ordering::Relaxed);
        vault.gc_since(counts.as_deref(), &progress)?
    };
    if let Some(cache_dir) = cache_dir {
        CacheOwners::new(&cache_dir).register(&id, vault.path());
        let forks: Vec<ForkName> = vault.read()?.forks()?.into_iter().map(|fork| fork.name).collect();
        let swept = ForkDirs::new(&cache_dir, &id).sweep(&forks);
        swept.map_err(WorkplaceError::host("remove the directories of deleted forks in", &cache_dir))?;
    }
    Ok(Gc {
        forks: swept.forks,
        versions: swept.versions,
        trees: swept.trees,
        blobs: swept.blobs,
        results: swept.memos,
        file_bytes_before,
        file_bytes_after: size()?,
    })
}
