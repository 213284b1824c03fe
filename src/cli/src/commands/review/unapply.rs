//! `avfs unapply`

use clap::Args;

use avfs_ops::ChangesOf;
use avfs_ops::review::{Reverted, UnapplyQuery};

use crate::commands::apply::show_kept;
use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::{Outcome, Ui};

/// Remove applied changes from the bound directory
///
/// Reverts exactly the changes that `avfs apply` or a run with --apply wrote, including partial applies;
/// for a fork, those of all its applies. If any of these paths has changed since, nothing is written and all
/// such paths are listed. The run and its version stay, so `avfs apply` can write the changes again. Applied
/// changes can be reverted for the time that the setting fork.expires gives, 7 days by default.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs unapply
  avfs unapply last --dry-run
  avfs unapply 3f9a && avfs apply 3f9a --exclude '*.lock'")]
pub struct UnapplyArgs {
    /// The run (its ID, last or last~N) or the fork [default: the last apply]
    #[arg(value_name = "FORK|RUN")]
    what: Option<ChangesOf>,
    /// Only compare, and print the changes that would be removed
    #[arg(long)]
    dry_run: bool,
}

pub fn run(ctx: &CommandContext, args: UnapplyArgs) -> Outcome {
    let UnapplyArgs { what, dry_run } = args;
    take_back(ctx, &ctx.ui, &UnapplyQuery { what, dry_run })
}

/// Reverts applied changes, and answers as `avfs unapply`.
pub fn take_back(ctx: &CommandContext, ui: &Ui, query: &UnapplyQuery) -> Outcome {
    let Reverted { unapply, lines, again } = match avfs_ops::review::unapply(&ctx.client.open()?, query)? {
        Ok(reverted) => reverted,
        Err(refused) => return ui.refuse(refused),
    };
    ui.answer(&unapply, |out| {
        patch::show_summary(out, lines)?;
        show_kept(out, &unapply.kept_dirs)?;
        let word = if unapply.dry_run { "would be removed from" } else { "removed from" };
        out.line(format_args!("{word} {}", unapply.dir))?;
        for words in again.iter().filter(|_| !unapply.dry_run) {
            out.line(format_args!("apply it again with: {} apply {words}", ui.avfs))?;
        }
        Ok(())
    })
}
