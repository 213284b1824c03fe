//! `avfs gc`

use std::sync::atomic::Ordering;

use clap::Args;

use avfs_engine::{CacheOwners, ForkDirs, reference_counts_path};
use avfs_ops::{OpError, WorkplaceError};
use avfs_types::ids::ForkName;
use avfs_types::show_bytes_size;
use avfs_wire::Gc;

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::plural;

/// Delete expired forks and unreferenced data, and free the space
///
/// Waits until no import or export is in progress.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs gc
  avfs fork delete experiment && avfs gc")]
pub struct GcArgs {}

pub fn run(ctx: &CommandContext, _: &GcArgs) -> Outcome {
    let result = ctx.client.free_space(|| gc(ctx))?;
    ctx.ui.answer(&result, |out| {
        out.line(format_args!(
            "removed {}, {}, {}, {}",
            plural(result.forks, "expired fork", "expired forks"),
            plural(result.versions, "version", "versions"),
            plural(result.trees, "tree", "trees"),
            plural(result.blobs, "blob", "blobs"),
        ))?;
        if result.results > 0 {
            let results = plural(result.results, "cached result", "cached results");
            out.line(format_args!("removed {results} that expired or lost their versions"))?;
        }
        let (before, after) =
            (show_bytes_size(result.file_bytes_before), show_bytes_size(result.file_bytes_after));
        out.line(format_args!("vault size: {before} before, {after} after"))
    })
}

fn gc(ctx: &CommandContext) -> Result<Gc, OpError> {
    let vault = ctx.client.open_sparing_runs()?.vault;
    let size = || vault.read().and_then(|reader| Ok(reader.file_bytes()?));
    let file_bytes_before = size()?;
    let (id, cache_dir) = (vault.id()?, ctx.client.surroundings.cache_dir().ok());
    let swept = {
        let progress = ctx.client.observer.whole_operation("sweeping");
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
