//! `avfs compact`

use clap::Args;

use avfs_types::show_bytes_size;

use crate::context::CommandContext;
use crate::ui::Outcome;

/// Return unused space of the vault file to the disk
///
/// Also merges the write-ahead log into the vault, so that it is one file again. Deletes nothing. `avfs gc` deletes
/// unreferenced data, and compacts too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs compact")]
pub struct CompactArgs {}

pub fn run(ctx: &CommandContext, _: &CompactArgs) -> Outcome {
    let result = avfs_ops::upkeep::compact(&ctx.client)?;
    ctx.ui.answer(&result, |out| {
        let (before, after) =
            (show_bytes_size(result.file_bytes_before), show_bytes_size(result.file_bytes_after));
        out.line(format_args!("vault size: {before} before, {after} after"))
    })
}
