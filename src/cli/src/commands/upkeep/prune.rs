//! `avfs prune`

use clap::Args;

use avfs_ops::upkeep::PruneQuery;
use avfs_terminal::Tone;
use avfs_types::Span;
use avfs_types::ids::ForkName;

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::{plural, short};

/// Remove the files of old versions, and keep their records
///
/// Use it when the vault becomes too large (`avfs du`) or reaches its quota: a vault keeps every version of main
/// and of persistent forks until it is pruned. Pruned versions stay in `avfs log`, but cannot be read or restored.
///
/// Always keeps the heads of forks, the base versions of forks other than main, and versions with a
/// checkpoint saved by hand. With --fork, also keeps the history of the other forks. The next `avfs gc` frees
/// the space.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs prune --keep-within 30d --dry-run   # list the versions older than 30 days
  avfs prune --keep-within 30d && avfs gc  # remove their files and free the space
  avfs prune --keep-last 10                # keep the newest 10 versions of each fork
  avfs prune --keep-last 5 --keep-within 7d --fork experiment")]
pub struct PruneArgs {
    #[command(flatten)]
    keep: KeepArgs,
    /// Prune only versions of this fork [default: every fork]
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
    /// Only list the versions that would be pruned
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct KeepArgs {
    /// Keep the newest N versions of each fork
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Keep versions that are not older than this (90s, 12h, 7d, 2w)
    #[arg(long, value_name = "DURATION")]
    keep_within: Option<Span>,
}

pub fn run(ctx: &CommandContext, args: PruneArgs) -> Outcome {
    let PruneArgs { keep: KeepArgs { keep_last, keep_within }, fork, dry_run } = args;
    let query = PruneQuery { keep_last, keep_within, fork, dry_run };
    let result = avfs_ops::upkeep::prune(&ctx.client, &query)?;
    ctx.ui.answer(&result, |out| {
        for id in &result.versions {
            out.line(format_args!("{}", out.paint(Tone::Id, short(id))))?;
        }
        let count = plural(result.versions.len() as u64, "version", "versions");
        if dry_run {
            out.line(format_args!("{count} would be pruned"))
        } else {
            out.line(format_args!("pruned {count}; free the space with: {} gc", ctx.ui.avfs))
        }
    })
}
