//! `avfs discard`

use std::io::BufRead;

use clap::Args;

use avfs_ops::{ChangesOf, OpError, VerbError};
use avfs_terminal::{Painted, Tone};
use avfs_wire::RunObject;

use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Out, Outcome};
use crate::view::plural;

/// Runs named in the answer to --all.
const NAMED_MAX: usize = 10;

/// Discard the changes of a run
///
/// Deletes the fork that was created for the run, and records it in the journal. A persistent fork is
/// refused: delete it with `avfs fork delete`.
///
/// --all discards every run that has its own fork and is not applied, not even partly. Forks with checkpoints that were
/// saved by hand are kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs discard last
  avfs discard run:3f9a
  avfs discard run-3f9a01bc77
  avfs discard --all --yes
  avfs runs list && avfs discard run:3f9a && avfs gc")]
pub struct DiscardArgs {
    /// The fork of a run, or the run (its ID, last or last~N)
    #[arg(value_name = "FORK|RUN", required_unless_present = "all", conflicts_with = "all")]
    what: Option<ChangesOf>,
    /// Discard every run that is not applied
    #[arg(long)]
    all: bool,
    /// With --all: do not ask
    #[arg(short, long, requires = "all", conflicts_with = "what")]
    yes: bool,
}

pub fn run(ctx: &CommandContext, args: &DiscardArgs) -> Outcome {
    let Some(what) = &args.what else { return all(ctx, args.yes) };
    let discarded = avfs_ops::review::discard(&ctx.client, what)?;
    ctx.ui.answer(&discarded, |out| {
        let count = plural(discarded.runs.len() as u64, "run", "runs");
        let runs = shown(out, &discarded.runs);
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

fn shown(out: &Out, runs: &[RunObject]) -> Painted {
    runs.iter().enumerate().fold(Painted::default(), |shown, (at, run)| {
        let comma = Painted::plain(if at > 0 { ", " } else { "" });
        shown.then(comma).then(out.paint(Tone::Id, format_args!("run:{}", run.id)))
    })
}

fn all(ctx: &CommandContext, yes: bool) -> Outcome {
    let confirm = &mut |count| if yes { Ok(()) } else { confirm(ctx, count) };
    let discarded = avfs_ops::review::discard_all(&ctx.client, confirm)?;
    ctx.ui.answer(&discarded, |out| {
        let count = discarded.runs.len();
        let more = match count.saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let first = discarded.runs.get(..NAMED_MAX.min(count)).unwrap_or_default();
        match count {
            0 => out.line(format_args!("no run to discard")),
            _ => {
                let runs = plural(count as u64, "run", "runs");
                out.line(format_args!("discarded {runs}: {}{more}", shown(out, first)))?;
                out.line(format_args!("free the space with: {} gc", ctx.ui.avfs))
            }
        }
    })
}

/// Asks on the terminal. Fails without one, and for any answer but yes.
fn confirm(ctx: &CommandContext, count: usize) -> Result<(), OpError> {
    let runs = plural(count as u64, "run", "runs");
    let refused = || OpError::from(VerbError::DiscardNotConfirmed { runs: runs.clone() });
    if !ctx.ui.can_ask() {
        return Err(refused());
    }
    ctx.ui.ask(format_args!("discard the changes of {runs}? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(EdgeError::Input)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(refused()),
    }
}
