//! `avfs discard`

use clap::Args;

use avfs_vault::discard::ChangesOf;

use crate::commands::runs::why_unchanged;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Outcome, Painted, Tone};
use crate::view::plural;

/// Discard the changes of a run
///
/// Deletes the fork that was created for the run, and records it in the journal. A persistent fork is
/// refused: delete it with `avfs fork delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs discard last
  avfs discard run:3f9a
  avfs discard run-3f9a01bc77
  avfs runs list && avfs discard run:3f9a && avfs gc")]
pub struct DiscardArgs {
    /// The fork of a run, or the run (its ID, last or last~N)
    #[arg(value_name = "FORK|RUN")]
    what: ChangesOf,
}

pub fn run(ctx: &CommandContext, args: &DiscardArgs) -> Outcome {
    let discarded = ctx.free_space(|| {
        let vault = ctx.open_vault()?;
        if let ChangesOf::Run(prefix) = args.what.meant(&*vault.read()?)? {
            let run = vault.run(&prefix)?;
            if let (Some(why), None) = (why_unchanged(&run), run.discarded_at) {
                return Err(EdgeError::Unchanged { run: run.id, why, verb: "discard" }.into());
            }
        }
        vault.discard(&args.what).map_err(EdgeError::of_changes)
    })?;
    ctx.ui.answer(&avfs_present::discard(&discarded), |out| {
        let count = plural(discarded.runs.len() as u64, "run", "runs");
        let runs = discarded.runs.iter().enumerate().fold(Painted::default(), |shown, (at, run)| {
            let comma = Painted::plain(if at > 0 { ", " } else { "" });
            shown.then(comma).then(out.paint(Tone::Id, format_args!("run:{}", run.id)))
        });
        match &discarded.fork {
            Some(fork) if discarded.runs.is_empty() => {
                out.line(format_args!("discarded fork {}", out.paint(Tone::Name, &fork.name)))?;
            }
            Some(fork) => out.line(format_args!(
                "discarded fork {} with {count}: {}",
                out.paint(Tone::Name, &fork.name),
                runs
            ))?,
            None => out.line(format_args!("discarded {runs}"))?,
        }
        out.line(format_args!("free the space with: {} gc", ctx.ui.avfs))
    })
}
