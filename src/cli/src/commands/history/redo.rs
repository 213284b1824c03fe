//! `avfs redo`

use clap::Args;

use avfs_types::ids::ForkName;

use crate::commands::edited;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::Outcome;

/// Revert the last undo of a fork
///
/// Adds a new version equal to the one that `avfs undo` reverted. Call it again to revert the undo before
/// that. If `avfs undo` moved a fork other than main, name that fork. After any other change to the fork there
/// is nothing to redo; use `avfs restore` to return to any version.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs redo
  avfs redo experiment
  avfs undo main && avfs diff main~1 main && avfs redo main")]
pub struct RedoArgs {
    /// The fork to move one step forward
    #[arg(value_name = "FORK", default_value = "main")]
    fork: ForkName,
}

pub fn run(ctx: &CommandContext, args: &RedoArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let redone = vault.redo(&args.fork).map_err(EdgeError::of_old_fork)?;
    let result = avfs_present::redo(&args.fork, &redone);
    ctx.ui.answer(&result, |out| edited::show(out, &args.fork, &redone.committed))
}
