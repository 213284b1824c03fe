//! `avfs redo`

use clap::Args;

use avfs_ops::ChangesOf;

use crate::commands::edited;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Revert the last undo of a fork
///
/// Adds a new version equal to the one that `avfs undo` reverted. Call it again to revert the undo before
/// that. After any other change to the fork there is nothing to redo; use `avfs restore` to return to any
/// version.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs redo
  avfs redo experiment
  avfs redo last
  avfs undo main && avfs diff main~1 main && avfs redo main")]
pub struct RedoArgs {
    /// The fork to move one step forward, or a run on it [default: the fork that was undone last]
    #[arg(value_name = "FORK|RUN")]
    what: Option<ChangesOf>,
}

pub fn run(ctx: &CommandContext, args: &RedoArgs) -> Outcome {
    let redo = avfs_ops::redo(&ctx.client.open()?, args.what.as_ref())?;
    ctx.ui.answer(&redo, |out| edited::show(out, &redo.edited))
}
