//! `avfs stats`

use clap::Args;

use avfs_types::show_bytes_size;

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
    let stats = avfs_ops::upkeep::stats(&ctx.client.open()?)?;
    ctx.ui.answer(&stats, |out| {
        let size = |bytes| show_bytes_size(bytes).to_string();
        let (stored, content) = (size(stats.blob_stored_bytes), size(stats.blob_content_bytes));
        out.line(format_args!("vault        {}", stats.vault))?;
        out.line(format_args!("file         {}, {} unused", size(stats.file_bytes), size(stats.free_bytes)))?;
        out.line(format_args!("forks        {}", stats.forks))?;
        out.line(format_args!("checkpoints  {}", stats.checkpoints))?;
        out.line(format_args!("versions     {}", stats.versions))?;
        out.line(format_args!("runs         {}", stats.runs))?;
        out.line(format_args!("trees        {}, {}", stats.trees, size(stats.tree_bytes)))?;
        out.line(format_args!("blobs        {}, {stored} for {content}", stats.blobs))?;
        out.line(format_args!("audit rows   {}", stats.audit_rows))
    })
}
