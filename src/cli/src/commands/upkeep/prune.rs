//! `avfs prune`

use clap::Args;

use avfs_types::Span;
use avfs_types::ids::{ForkName, VersionId};
use avfs_vault::gc::{Keep, Trial};
use avfs_wire::{Prune, PruneCheckpoint};

use crate::context::CommandContext;
use crate::ui::{Outcome, Tone};
use crate::view::plural;

/// Give up the files of old versions; their records stay in the log
///
/// Heads of forks, what forks other than main began with, and versions with a checkpoint saved by hand are always kept. So is
/// what other forks lead to, with --fork. The space comes back with the next `avfs gc`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs prune --keep-last 10
  avfs prune --keep-within 30d --dry-run
  avfs prune --keep-last 5 --keep-within 7d --fork experiment && avfs gc")]
pub struct PruneArgs {
    #[command(flatten)]
    keep: KeepArgs,
    /// Only versions of this fork [default: of every fork]
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct KeepArgs {
    /// Keep the newest so many versions of each fork
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Keep versions that are no older (90s, 12h, 7d, 2w)
    #[arg(long, value_name = "DURATION")]
    keep_within: Option<Span>,
}

pub fn run(ctx: &CommandContext, args: &PruneArgs) -> Outcome {
    let vault = ctx.open_vault_sparing_runs()?;
    let since = args.keep.keep_within.map(|Span(seconds)| vault.now().plus_seconds(-seconds));
    let keep = Keep { last: args.keep.keep_last, since };
    let trial = if args.dry_run { Trial::DryRun } else { Trial::Real };
    let pruned = vault.prune(&keep, args.fork.as_ref(), trial)?;
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
            out.line(format_args!("pruned {count}; give the space back with: {} gc", ctx.ui.avfs))
        }
    })
}
