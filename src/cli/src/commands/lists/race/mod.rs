//! `avfs race`

mod entries;
mod error;
mod round;

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use error::RaceError;
use round::Round;

use avfs_engine::{Recovery, ScratchDir, bound_dir};
use avfs_hostfs::random;
use avfs_lists::race::{Aim, best};
use avfs_ops::{OpError, VerbError, import_for_runs};
use avfs_present::error_body;
use avfs_terminal::{Painted, Tone};
use avfs_types::clock::Timestamp;
use avfs_types::ids::{BatchId, ForkName, RunPrefix};
use avfs_types::reference::Reference;
use avfs_vault::backend::{Life, RunRecord, VersionRecord};
use avfs_vault::discard::ChangesOf;
use avfs_vault::{Vault, VaultError, require_version};
use avfs_wire::{AttemptState, Race};

use super::batch::hold::Hold;
use crate::context::CommandContext;
use crate::run_options::{CommandWords, RunOptions};
use crate::signals::Asked;
use crate::ui::{Out, Outcome};
use crate::view::local_time;
use crate::worker_pool::{WORKERS_MAX, WorkerPool};

/// A larger number is assumed to be a mistake.
const ATTEMPTS_MAX: i64 = 10_000;
/// The default for the number of attempts at once.
const JOBS_MAX: usize = 16;

/// Run several attempts on separate forks, and keep the best
///
/// All attempts start at the same version. They are one command N times, with AVFS_ATTEMPT set to 1 to N, or
/// the commands of a list. An attempt succeeds if it exits with 0. The winner is the first to succeed with
/// --until-success (the others are stopped), the one with the best score with --score, else the successful
/// one with the lowest number. The changes of the winner are kept for review, like those of avfs-run, or on
/// the fork that --fork names. The changes of the others are discarded.
///
/// If no attempt wins, the changes of all attempts are kept for review.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("attempts").required(true).args(["command", "shell", "list"]))]
#[command(override_usage = "\
avfs race [OPTIONS] -n <N> -- <COMMAND>...
       avfs race [OPTIONS] -n <N> --shell <LINE>
       avfs race [OPTIONS] <LIST>")]
#[command(after_help = "\
Examples:
  avfs race -n 4 --until-success --shell './fix --seed $AVFS_ATTEMPT && make test'
  avfs race -n 8 --score './benchmark | tail -1' --lowest -- ./tune
  avfs race attempts.txt --fork best --score 'wc -c < out.bin' --lowest
  avfs race -n 3 --from main~2 --timeout 10m --net host -- agent 'make the tests pass'")]
pub struct RaceArgs {
    /// A list of commands, each an attempt (its form: avfs batch --help); - for standard input
    #[arg(value_name = "LIST", value_hint = clap::ValueHint::FilePath)]
    list: Option<PathBuf>,
    /// Run N attempts
    #[arg(short = 'n', value_name = "N", required_unless_present = "list", conflicts_with = "list")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=ATTEMPTS_MAX))]
    number: Option<u16>,
    /// Let the first attempt that succeeds win, and stop the others
    #[arg(long, conflicts_with = "score")]
    until_success: bool,
    /// Run this line with /bin/sh -c on the result of each successful attempt; the last line it prints is its
    /// score, and the highest score wins
    #[arg(long, value_name = "LINE")]
    score: Option<String>,
    /// Let the lowest score win
    #[arg(long, requires = "score")]
    lowest: bool,
    /// Run N attempts at once [default: all, at most 16]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    jobs: Option<u16>,
    /// Start all attempts at this version [default: the current state of the directory]
    #[arg(long, value_name = "REF")]
    from: Option<Reference>,
    /// Keep the changes of the winner on a new fork of this name
    #[arg(long, value_name = "NAME")]
    fork: Option<ForkName>,
    /// Discard the changes of all attempts even if none wins
    #[arg(long)]
    discard_losers: bool,
    /// Print the output of each attempt
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    what: CommandWords,
    #[command(flatten)]
    options: RunOptions,
}

pub fn run(ctx: &CommandContext, args: &RaceArgs) -> Outcome {
    args.options.check_without_fork()?;
    let vault = ctx.open_vault()?;
    if let Some(name) = &args.fork {
        if vault.read()?.fork(name).map_err(VaultError::from)?.is_some() {
            return Err(VaultError::ForkExists { name: name.clone() }.into());
        }
        name.check_new().map_err(VaultError::from)?;
    }
    let requests = entries::requests(args)?;
    let base = base(ctx, &vault, args)?;
    let asked = Asked::watch()?;
    let id = BatchId::from_random(random::bytes().map_err(VerbError::Random)?);
    let _hold = Hold::take(ctx, &id)?;
    let jobs = args.jobs.map_or(JOBS_MAX, usize::from).min(requests.len());
    let mut pool = WorkerPool::hire(
        jobs,
        &ctx.ui.avfs,
        vault.path().unwrap_or(&ctx.client.surroundings.cwd),
        args.options.words(),
    )?;
    let mut round = Round::new(ctx, args, &base, id.clone(), requests);
    let ran = round.run(&mut pool, &asked);
    let notes = pool.dismiss(ctx, &vault);
    ran?;
    // The results of the attempts may not be on the disk yet.
    vault.flush()?;
    let winner = match round.first {
        Some(first) => Some(first),
        None => choose(args, &round),
    };
    // Discarded attempts do not have to be recovered.
    let dropped = winner.is_some() || args.discard_losers;
    for note in notes?.iter().filter(|note| !dropped || note.code != "run.recoverable") {
        ctx.ui.note(format_args!("note: {}", note.text));
    }
    if dropped {
        drop_losers(ctx, &vault, &id, winner, &mut round)?;
    }
    match winner {
        Some(winner) => won(ctx, &vault, args, &base, round, winner),
        None => nobody(ctx, &base, round),
    }
}

/// The version that all attempts start at.
fn base(ctx: &CommandContext, vault: &Vault, args: &RaceArgs) -> Result<VersionRecord, OpError> {
    if let Some(from) = &args.from {
        return Ok(avfs_vault::version::resolve(&*vault.read()?, from)?.0);
    }
    let main = ForkName::main();
    if let Some(dir) = bound_dir(vault)? {
        let (imported, _) = import_for_runs(&ctx.client, vault, &dir, "import before a race")?;
        for trouble in &imported.troubles {
            ctx.ui.note(format_args!("note: {}: {}", trouble.path.path, trouble.message));
        }
    }
    let head = vault.fork(&main)?.head;
    Ok(require_version(&*vault.read()?, &head)?)
}

/// The winner, after all attempts have ended.
fn choose(args: &RaceArgs, round: &Round<'_>) -> Option<usize> {
    if args.score.is_none() {
        let mut succeeded = round.attempts.iter().map(|attempt| attempt.state == AttemptState::Succeeded);
        return succeeded.position(|succeeded| succeeded);
    }
    let aim = if args.lowest { Aim::LowestScore } else { Aim::HighestScore };
    let scores = round.attempts.iter().enumerate();
    best(aim, scores.filter_map(|(number, attempt)| Some((number, attempt.score?))))
}

/// Discards the changes of all attempts except the winner, even of those that never answered.
fn drop_losers(
    ctx: &CommandContext,
    vault: &Vault,
    id: &BatchId,
    winner: Option<usize>,
    round: &mut Round<'_>,
) -> Result<(), OpError> {
    let lost = |number: u64| usize::try_from(number).ok() != winner;
    for recovery in Recovery::find(&ScratchDir::new(&ctx.client.surroundings.cache_dir()?), vault)?.runs {
        if recovery.record.item().is_some_and(|item| item.batch == *id && lost(item.number)) {
            recovery.discard(vault)?;
        }
    }
    let mut runs: Vec<RunRecord> = Vec::new();
    vault.each_batch_run(id, |number, run| {
        if lost(number) && run.version_after.is_some() && run.discarded_at.is_none() {
            runs.push(run);
        }
        Ok::<(), VaultError>(())
    })?;
    for run in runs {
        match vault.discard(&ChangesOf::Run(RunPrefix::from(&run.id))) {
            Ok(_) => round.forget(run.fork.as_str()),
            // Another process has used or discarded the changes in the meantime.
            Err(
                error @ (VaultError::RunWithoutVersion { .. }
                | VaultError::ForkMoved { .. }
                | VaultError::ForkHasCheckpoints { .. }
                | VaultError::PersistentFork { .. }),
            ) => ctx.ui.note(format_args!("note: run {} is not discarded: {error}", run.id)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn won(
    ctx: &CommandContext,
    vault: &Vault,
    args: &RaceArgs,
    base: &VersionRecord,
    mut round: Round<'_>,
    winner: usize,
) -> Outcome {
    let attempt = &mut round.attempts[winner];
    attempt.state = AttemptState::Won;
    let kept = attempt.fork.as_deref().map(ForkName::parse).transpose()?;
    let fork = match (&args.fork, &kept) {
        (Some(name), Some(kept)) => Some(vault.keep_fork(kept, name)?.name),
        (Some(name), None) => {
            let base = Reference::parse(&base.id.to_hex())?;
            Some(vault.create_fork(name, &base, Life::Persistent)?.name)
        }
        (None, _) => kept,
    };
    attempt.fork = fork.as_ref().map(ForkName::to_string);
    let (changed, version) = (attempt.version.is_some(), attempt.version.clone());
    let offer = Offer {
        is_bound: bound_dir(vault)?.is_some(),
        kept_until: match &fork {
            Some(fork) => expires_at(vault, fork)?,
            None => None,
        },
    };
    let result = Race {
        base: base.id.to_hex(),
        winner: Some(attempt.attempt),
        fork: attempt.fork.clone(),
        version: Some(version.unwrap_or_else(|| base.id.to_hex())),
        attempts: round.attempts,
    };
    ctx.ui.answer(&result, |out| show(ctx, out, &result, winner, changed, base, offer))
}

/// What can be done with the changes of the winner.
#[derive(Clone, Copy)]
struct Offer {
    /// True if the vault is bound to a directory, to which they can be applied.
    is_bound: bool,
    /// When they are dropped; `None` if they do not expire.
    kept_until: Option<Timestamp>,
}

/// When a fork expires; `None` if it does not.
fn expires_at(vault: &Vault, fork: &ForkName) -> Result<Option<Timestamp>, VaultError> {
    Ok(match vault.fork(fork)?.life {
        Life::Ephemeral { expires_at } => Some(expires_at),
        Life::Persistent => None,
    })
}

fn show(
    ctx: &CommandContext,
    out: &mut Out,
    result: &Race,
    winner: usize,
    changed: bool,
    base: &VersionRecord,
    offer: Offer,
) -> Result<(), OpError> {
    let attempt = &result.attempts[winner];
    let name = out.paint(Tone::Strong, format_args!("attempt {}", attempt.attempt));
    let score = attempt.score.map(|score| format!(" with a score of {score}")).unwrap_or_default();
    let on =
        result.fork.as_ref().map(|fork| Painted::plain(", kept on fork ").then(out.paint(Tone::Name, fork)));
    let (on, nothing) = (on.unwrap_or_default(), if changed { "" } else { ", without changes" });
    out.line(format_args!("{name} of {} won{score}{nothing}{on}", result.attempts.len()))?;
    let (avfs, base) = (&ctx.ui.avfs, base.id.short());
    let Some(fork) = result.fork.as_ref().filter(|_| changed) else { return Ok(()) };
    let (name, drop) = match &attempt.ended.run_id {
        Some(run) if *fork == format!("run-{run}") => (format!("run:{run}"), "discard"),
        Some(_) | None => (fork.clone(), "fork delete"),
    };
    out.line(format_args!("  look:    {avfs} diff {base} {name}"))?;
    match offer.is_bound {
        true => out.line(format_args!("  take:    {avfs} apply {name}"))?,
        false => out.line(format_args!("  take:    {avfs} export {name} DIR"))?,
    }
    out.line(format_args!("  drop:    {avfs} {drop} {name}"))?;
    match offer.kept_until {
        Some(until) => out.line(format_args!("  kept until {}", local_time(until))),
        None => Ok(()),
    }
}

fn nobody(ctx: &CommandContext, base: &VersionRecord, round: Round<'_>) -> Outcome {
    let error = RaceError::no_winner(base.id.short(), &round.attempts);
    let why = error_body(&error, &ctx.ui.avfs);
    let result =
        Race { base: base.id.to_hex(), winner: None, fork: None, version: None, attempts: round.attempts };
    ctx.ui.answer_no(&result, &why, |_| {
        ctx.ui.print_error(&error);
        Ok(())
    })
}
