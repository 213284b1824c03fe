//! `avfs undo`

use clap::Args;

use avfs_ops::review::UnapplyQuery;
use avfs_ops::{ChangesOf, UndoOutcome};

use crate::commands::{edited, unapply};
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Revert the last run of a fork, or its last edit or import
///
/// Adds a new version equal to the previous one, with a message that names the reverted version; no version
/// is rewritten. Call it again to go back another step, at most to the start of the fork. `avfs redo` goes
/// forward again, until a run, an import or an edit adds another version. With FORK, the files in the bound
/// directory do not change: `avfs unapply FORK` removes applied changes of the fork.
///
/// Without FORK, revert the newest run in effect that changed content: on a persistent fork go back one step; if
/// the changes were applied, remove them from the bound directory, like `avfs unapply`; `avfs apply` writes them
/// again. Changes that are only kept for review need no undo: `avfs discard` drops them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs undo
  avfs undo experiment
  avfs undo last
  avfs undo experiment && avfs redo experiment")]
pub struct UndoArgs {
    /// The fork to move one step back, or the newest run on it [default: the newest run in effect that changed
    /// content, else main]
    #[arg(value_name = "FORK|RUN")]
    what: Option<ChangesOf>,
}

pub fn run(ctx: &CommandContext, args: &UndoArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    match avfs_ops::undo(&workplace, args.what.as_ref())? {
        UndoOutcome::OnFork(undo) => ctx.ui.answer(&undo, |out| edited::show(out, &undo.edited)),
        UndoOutcome::InDirectory(what) => {
            let query = UnapplyQuery { what: Some(what), dry_run: false };
            unapply::take_back(ctx, &ctx.ui.of_kind("unapply"), &query)
        }
    }
}
