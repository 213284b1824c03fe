//! `avfs redo`

use clap::Args;

use avfs_ops::VerbError;
use avfs_types::ids::ForkName;
use avfs_vault::discard::ChangesOf;
use avfs_vault::undo::moved_last;

use crate::commands::edited;
use crate::commands::fork_meant;
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
    let vault = ctx.open_vault()?;
    let fork = match &args.what {
        Some(what) => fork_meant(&vault, what)?.name,
        None => moved_last(&*vault.read()?)?.unwrap_or_else(ForkName::main),
    };
    let redone = vault.redo(&fork).map_err(VerbError::of_old_fork)?;
    edited::note_directory(ctx, &vault, &fork, &redone.committed)?;
    let result = avfs_present::redo(&fork, &redone);
    ctx.ui.answer(&result, |out| edited::show(out, &fork, &redone.committed))
}
