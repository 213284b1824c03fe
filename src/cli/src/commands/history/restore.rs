//! `avfs restore`

use clap::Args;

use avfs_types::reference::Reference;

use crate::cli::OnFork;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Restore a fork to any version
///
/// Adds a new version equal to the old one; no version is rewritten or lost. The files in the bound directory
/// do not change; write them with `avfs export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs restore main~1
  avfs restore 3f9a --fork experiment
  avfs restore main@good")]
pub struct RestoreArgs {
    /// The version to restore
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    on: OnFork,
}

pub fn run(ctx: &CommandContext, args: &RestoreArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    edited::answer(ctx, &avfs_ops::restore(&workplace, &args.on.fork, &args.reference)?)
}
