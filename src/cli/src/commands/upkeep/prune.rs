//! `avfs prune`

use clap::Args;

use avfs_ops::VerbError;
use avfs_terminal::Tone;
use avfs_types::Span;
use avfs_types::ids::{ForkName, VersionId};
use avfs_vault::gc::{Keep, Trial};
use avfs_wire::{Prune, PruneCheckpoint};

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::plural;

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

pub fn run(ctx: &CommandContext, args: &PruneArgs) -> Outcome {
    let trial = if args.dry_run { Trial::DryRun } else { Trial::Real };
    let pruned = ctx.client.free_space(|| {
        let vault = ctx.client.open_sparing_runs()?.vault;
        let since = args.keep.keep_within.map(|Span(seconds)| vault.now().plus_seconds(-seconds));
        let keep = Keep { last: args.keep.keep_last, since };
        vault.prune(&keep, args.fork.as_ref(), trial).map_err(VerbError::of_old_fork)
    })?;
    let checkpoints = pruned.checkpoints.iter();
    let result = Prune {
        dry_run: args.dry_run,
        versions: pruned.versions.iter().map(VersionId::to_hex).collect(),
        checkpoints: checkpoints
            .map(|(fork, name)| PruneCheckpoint { fork: fork.to_string(), name: name.to_string() })
            .collect(),
    };
    ctx.ui.answer(&result, |out| {
        for id in &pruned.versions {
            out.line(format_args!("{}", out.paint(Tone::Id, id.short())))?;
        }
        let count = plural(pruned.versions.len() as u64, "version", "versions");
        if args.dry_run {
            out.line(format_args!("{count} would be pruned"))
        } else {
            out.line(format_args!("pruned {count}; free the space with: {} gc", ctx.ui.avfs))
        }
    })
}
