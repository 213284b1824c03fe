//! `avfs redo`

use clap::Args;

use avfs_types::ids::ForkName;

use crate::commands::edited;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::Outcome;

/// Take the last undo of a fork back
///
/// A new version that equals the one `avfs undo` took back is added. Once more takes back the undo before it. Nothing
/// can be redone after anything else has changed the fork; `avfs restore` goes to any version then.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs redo
  avfs redo experiment
  avfs undo && avfs diff main~1 main && avfs redo")]
pub struct RedoArgs {
    /// The fork that comes a step forward
    #[arg(value_name = "FORK", default_value = "main")]
    fork: ForkName,
}

pub fn run(ctx: &CommandContext, args: &RedoArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let redone = vault.redo(&args.fork).map_err(EdgeError::of_old_fork)?;
    let result = avfs_present::redo(&args.fork, &redone);
    ctx.ui.answer(&result, |out| edited::show(out, &args.fork, &redone.committed))
}
