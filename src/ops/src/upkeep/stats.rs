//! The number and size of the objects in the vault.

use std::path::Path;

use avfs_wire::Stats;
use avfs_workplace::{OpError, Workplace};

pub fn stats(workplace: &Workplace) -> Result<Stats, OpError> {
    let vault = &workplace.vault;
    let reader = vault.read()?;
    let usage = reader.usage()?;
    Ok(Stats {
        vault: vault.path().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
        forks: reader.forks()?.len() as u64,
        checkpoints: reader.checkpoints()?.len() as u64,
        versions: usage.versions,
        trees: usage.trees,
        tree_bytes: usage.tree_bytes,
        blobs: usage.blobs,
        blob_stored_bytes: usage.blob_stored_bytes,
        blob_content_bytes: usage.blob_content_bytes,
        audit_rows: usage.audit_rows,
        runs: usage.runs,
        file_bytes: usage.file_bytes,
        free_bytes: usage.free_bytes,
    })
}
