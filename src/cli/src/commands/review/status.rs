//! `avfs status`

use clap::Args;

use avfs_ops::review::StatusAnswer;
use avfs_terminal::Tone;

use crate::cli::OnFork;
use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::short;

/// Compare the bound directory with its fork
///
/// Shows the changes that `avfs import` would record, and stores nothing. Omits changes of modification times
/// alone, and setuid and setgid bits that the directory lacks because an apply strips them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs status
  avfs status --fork experiment
  avfs status --json")]
pub struct StatusArgs {
    #[command(flatten)]
    on: OnFork,
}

pub fn run(ctx: &CommandContext, args: &StatusArgs) -> Outcome {
    let StatusAnswer { status, lines, is_first } =
        avfs_ops::review::status(&ctx.client.open()?, &args.on.fork)?;
    ctx.ui.answer(&status, |out| {
        let (name, id) = (out.paint(Tone::Name, &status.fork), out.paint(Tone::Id, short(&status.version)));
        out.line(format_args!("{} against fork {name} at version {id}", status.dir))?;
        if is_first && !status.clean {
            out.line(format_args!("the vault has no version of the directory yet: every path is new"))?;
        }
        for trouble in &status.troubles {
            out.line(format_args!("left out or inexact: {}: {}", trouble.path, trouble.message))?;
        }
        patch::show_summary(out, lines)
    })
}
