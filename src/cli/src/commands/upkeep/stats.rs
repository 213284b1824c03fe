//! `avfs stats`

use std::path::Path;

use clap::Args;

use avfs_types::show_bytes_size;
use avfs_wire::Stats;

use crate::context::CommandContext;
use crate::ui::Outcome;

/// Show the number and size of the objects in the vault
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs stats
  avfs stats --json")]
pub struct StatsArgs {}

pub fn run(ctx: &CommandContext, _: &StatsArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let reader = vault.read()?;
    let usage = reader.usage()?;
    let result = Stats {
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
    };
    ctx.ui.answer(&result, |out| {
        let size = |bytes| show_bytes_size(bytes).to_string();
        let stored = size(usage.blob_stored_bytes);
        out.line(format_args!("vault        {}", result.vault))?;
        out.line(format_args!("file         {}, {} unused", size(usage.file_bytes), size(usage.free_bytes)))?;
        out.line(format_args!("forks        {}", result.forks))?;
        out.line(format_args!("checkpoints  {}", result.checkpoints))?;
        out.line(format_args!("versions     {}", usage.versions))?;
        out.line(format_args!("runs         {}", usage.runs))?;
        out.line(format_args!("trees        {}, {}", usage.trees, size(usage.tree_bytes)))?;
        out.line(format_args!(
            "blobs        {}, {stored} for {}",
            usage.blobs,
            size(usage.blob_content_bytes)
        ))?;
        out.line(format_args!("audit rows   {}", usage.audit_rows))
    })
}
