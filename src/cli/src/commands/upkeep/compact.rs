//! `avfs compact`

use clap::Args;

use avfs_ops::OpError;
use avfs_types::show_bytes_size;
use avfs_wire::Compact;

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
    let result = ctx.client.free_space(|| compact(ctx))?;
    ctx.ui.answer(&result, |out| {
        let (before, after) =
            (show_bytes_size(result.file_bytes_before), show_bytes_size(result.file_bytes_after));
        out.line(format_args!("vault size: {before} before, {after} after"))
    })
}

fn compact(ctx: &CommandContext) -> Result<Compact, OpError> {
    let vault = ctx.open_vault()?;
    let size = || vault.read().and_then(|reader| Ok(reader.usage()?.file_bytes));
    let file_bytes_before = size()?;
    {
        let _shown = ctx.client.observer.whole_operation("compacting");
        vault.backend().shrink(&|_| {})?;
        vault.backend().settle()?;
    }
    Ok(Compact { file_bytes_before, file_bytes_after: size()? })
}
