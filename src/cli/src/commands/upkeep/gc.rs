//! `avfs gc`

use clap::Args;

use avfs_types::show_bytes_size;

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
    let result = avfs_ops::upkeep::gc(&ctx.client)?;
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
