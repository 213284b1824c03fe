//! `avfs undo`

use clap::Args;

use avfs_types::ids::ForkName;

use crate::commands::edited;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::Outcome;

/// Take back the last run of a fork, or its last version if no run made that
///
/// A new version that equals the one before is added, and says what it undid: nothing is rewritten. `avfs undo` once
/// more goes another step back, to where the fork began at most, and `avfs redo` comes forward again. A run, an import
/// or an edit after an undo ends what can be redone. The files of the bound directory stay as they are: what was applied
/// there is taken back by `avfs undo FORK` and then `avfs apply FORK`; on main the next import brings them back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs undo
  avfs undo experiment
  avfs undo experiment && avfs apply experiment
  avfs undo experiment && avfs redo experiment")]
pub struct UndoArgs {
    /// The fork that goes a step back
    #[arg(value_name = "FORK", default_value = "main")]
    fork: ForkName,
}

pub fn run(ctx: &CommandContext, args: &UndoArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let undone = vault.undo(&args.fork).map_err(EdgeError::of_old_fork)?;
    let result = avfs_present::undo(&args.fork, &undone);
    if args.fork == ForkName::main() && undone.committed.changed() {
        ctx.ui.note(format_args!("note: the files of the directory stay as they are"));
    }
    ctx.ui.answer(&result, |out| edited::show(out, &args.fork, &undone.committed))
}
