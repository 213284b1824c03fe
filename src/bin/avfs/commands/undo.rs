//! `avfs undo`

use avfs::ids::ForkName;
use avfs::runtime::envelope::Undo;
use clap::Args;

use super::edited;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Take back the last version of a fork
///
/// A new version that equals the one before the head is added, and says what it undid: nothing is rewritten, and
/// `avfs undo` once more brings it back. The files of the bound directory stay as they are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs undo
  avfs undo experiment
  avfs undo experiment --json")]
pub struct UndoArgs {
    /// The fork whose last version is taken back
    #[arg(value_name = "FORK", default_value = "main")]
    fork: ForkName,
}

pub fn run(ctx: &CommandContext, args: &UndoArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let undone = vault.undo(&args.fork)?;
    let result = Undo::of(&args.fork, &undone);
    ctx.ui.answer(&result, |out| edited::show(out, &args.fork, &undone.committed))
}
