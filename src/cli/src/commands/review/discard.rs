//! `avfs discard`

use std::io::BufRead;

use clap::Args;

use avfs_ops::{OpError, VerbError};
use avfs_terminal::{Painted, Tone};
use avfs_types::ids::RunPrefix;
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{ForkRecord, Life, Reader, RunRecord};
use avfs_vault::discard::{ChangesOf, Discarded, own_runs};
use avfs_vault::{Vault, VaultError};

use crate::commands::runs::why_unchanged;
use crate::context::CommandContext;
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
    let discarded = ctx.client.free_space(|| {
        let vault = ctx.open_vault()?;
        if let ChangesOf::Run(prefix) = what.meant(&*vault.read()?)? {
            let run = vault.run(&prefix)?;
            if let (Some(why), None) = (why_unchanged(&run), run.discarded_at) {
                return Err(VerbError::Unchanged { run: run.id, why, verb: "discard" }.into());
            }
        }
        vault.discard(what).map_err(VerbError::of_changes)
    })?;
    ctx.ui.answer(&avfs_present::discard(&discarded), |out| {
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

fn shown(out: &Out, runs: &[RunRecord]) -> Painted {
    runs.iter().enumerate().fold(Painted::default(), |shown, (at, run)| {
        let comma = Painted::plain(if at > 0 { ", " } else { "" });
        shown.then(comma).then(out.paint(Tone::Id, format_args!("run:{}", run.id)))
    })
}

/// Discards every run that is not applied, each in its own transaction.
fn all(ctx: &CommandContext, yes: bool) -> Outcome {
    let mut is_confirmed = yes;
    let mut discarded = Discarded { fork: None, runs: Vec::new() };
    ctx.client.free_space(|| {
        let vault = ctx.open_vault()?;
        let found = unapplied(&*vault.read()?)?;
        let count: usize = found.iter().map(|(_, runs)| runs.len()).sum();
        if count > 0 && !is_confirmed {
            confirm(ctx, count)?;
            is_confirmed = true;
        }
        found.iter().try_for_each(|(fork, runs)| discard_unapplied(ctx, &vault, fork, runs, &mut discarded))
    })?;
    ctx.ui.answer(&avfs_present::discard(&discarded), |out| {
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

/// Discards the runs of a fork unless they were applied or went on meanwhile.
fn discard_unapplied(
    ctx: &CommandContext,
    vault: &Vault,
    fork: &ForkRecord,
    runs: &[RunRecord],
    discarded: &mut Discarded,
) -> Result<(), OpError> {
    let [run, ..] = runs else { return Ok(()) };
    if unapplied_runs(&*vault.read()?, fork)?.is_empty() {
        return Ok(());
    }
    match vault.discard(&ChangesOf::Run(RunPrefix::from(&run.id))) {
        Ok(one) => discarded.runs.extend(one.runs),
        Err(
            error @ (VaultError::ForkHasCheckpoints { .. }
            | VaultError::ForkMoved { .. }
            | VaultError::RunWithoutVersion { .. }),
        ) => ctx.ui.note(format_args!("note: kept fork {}: {error}", fork.name)),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The forks of runs that are not applied, each with its runs, oldest first.
fn unapplied(reader: &dyn Reader) -> Result<Vec<(ForkRecord, Vec<RunRecord>)>, OpError> {
    let mut found = Vec::new();
    for fork in reader.forks().map_err(VaultError::from)? {
        let runs = unapplied_runs(reader, &fork)?;
        if !runs.is_empty() {
            found.push((fork, runs));
        }
    }
    Ok(found)
}

/// The runs of a fork that was created for them; none if one of them is applied, or a part of it.
fn unapplied_runs(reader: &dyn Reader, fork: &ForkRecord) -> Result<Vec<RunRecord>, OpError> {
    if fork.life == Life::Persistent || reader.fork(&fork.name).map_err(VaultError::from)?.is_none() {
        return Ok(Vec::new());
    }
    let runs = own_runs(reader, fork)?;
    // The fork of a run has the id in its name; other forks that expire were created by hand.
    if !runs.iter().any(|run| fork.name.as_str().contains(&format!("-{}", run.id))) {
        return Ok(Vec::new());
    }
    for run in &runs {
        match in_directory(reader, run)? {
            Some(InDirectory::Applied | InDirectory::Partly) => return Ok(Vec::new()),
            Some(InDirectory::Unapplied) | None => {}
        }
    }
    Ok(runs)
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
    std::io::stdin().lock().read_line(&mut answer).map_err(VaultError::Input)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(refused()),
    }
}
