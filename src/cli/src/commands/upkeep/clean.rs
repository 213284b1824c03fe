//! `avfs clean`

use clap::Args;

use avfs_types::show_bytes_size;

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::plural;

/// Empty the cache
///
/// Removes data that is created again when needed: bases, the layers over them, the directories of
/// cache.dirs, the stat caches of imports, and leftovers of killed processes. Keeps data that a run uses, and
/// scratches that avfs recover can finish. Vaults are not touched. All vaults of a user share the cache.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs clean --dry-run
  avfs clean
  avfs clean --orphans")]
pub struct CleanArgs {
    /// Only show the data that would be removed
    #[arg(long)]
    dry_run: bool,
    /// Also discard uncaptured changes of runs whose vault is gone
    #[arg(long)]
    orphans: bool,
}

pub fn run(ctx: &CommandContext, args: &CleanArgs) -> Outcome {
    let result = avfs_ops::upkeep::clean(&ctx.client, args.dry_run, args.orphans)?;
    ctx.ui.answer(&result, |out| {
        let does = if args.dry_run { "would remove" } else { "removed" };
        out.line(format_args!(
            "{does} {}, {}, {}, {}, {}, {}",
            plural(result.bases, "base", "bases"),
            plural(result.layers, "layer", "layers"),
            plural(result.dirs, "directory of cache.dirs", "directories of cache.dirs"),
            plural(result.stat_caches, "stat cache", "stat caches"),
            plural(result.scratches, "scratch", "scratches"),
            plural(result.leftovers, "leftover", "leftovers"),
        ))?;
        let (freed, kept) = (show_bytes_size(result.freed_bytes), show_bytes_size(result.kept_bytes));
        let would = if args.dry_run { "would be" } else { "were" };
        out.line(format_args!("{freed} {would} freed; {kept} kept: in use or recoverable"))
    })
}
