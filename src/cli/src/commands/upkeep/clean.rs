//! `avfs clean`

use clap::Args;

use avfs_engine::Orphans;
use avfs_types::show_bytes_size;
use avfs_vault::gc::Trial;
use avfs_wire::Clean;

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::plural;

/// Empty the cache: remove whatever is made again when it is needed
///
/// Removes versions that were made usable as directories, layers over them, the directories of cache.dirs, what imports
/// know of files, and what killed processes left. What a run uses stays, and so does a scratch that avfs recover can
/// finish. Vaults are not touched. The cache is shared by all vaults of a user.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs clean --dry-run
  avfs clean
  avfs clean --orphans")]
pub struct CleanArgs {
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Also discard uncaptured changes of runs whose vault is gone
    #[arg(long)]
    orphans: bool,
}

pub fn run(ctx: &CommandContext, args: &CleanArgs) -> Outcome {
    let trial = if args.dry_run { Trial::DryRun } else { Trial::Real };
    let orphans = if args.orphans { Orphans::Discarded } else { Orphans::Kept };
    let swept = ctx.cache_keeper()?.clean(trial, orphans)?;
    let result = Clean {
        dry_run: args.dry_run,
        freed_bytes: swept.freed_bytes,
        kept_bytes: swept.kept_bytes,
        bases: swept.bases,
        layers: swept.layers,
        dirs: swept.dirs,
        stat_caches: swept.stat_caches,
        scratches: swept.scratches,
        leftovers: swept.leftovers,
    };
    ctx.ui.answer(&result, |out| {
        let does = if args.dry_run { "would remove" } else { "removed" };
        out.line(format_args!(
            "{does} {}, {}, {}, {}, {}, {}",
            plural(result.bases, "base", "bases"),
            plural(result.layers, "layer", "layers"),
            plural(result.dirs, "cache directory", "cache directories"),
            plural(result.stat_caches, "stat cache", "stat caches"),
            plural(result.scratches, "scratch", "scratches"),
            plural(result.leftovers, "leftover", "leftovers"),
        ))?;
        let (freed, kept) = (show_bytes_size(result.freed_bytes), show_bytes_size(result.kept_bytes));
        let would = if args.dry_run { "would be" } else { "are" };
        out.line(format_args!("{freed} {would} free again; {kept} stay: in use, or to be recovered"))
    })
}
