//! `avfs recover`

use clap::Args;

use avfs_engine::{Doubt, RecoverError, RecoverOptions, Recovered, Recovery, ScratchDir, bound_dir};
use avfs_request::SecretsInFiles;
use avfs_types::ids::RunPrefix;
use avfs_vault::Vault;
use avfs_wire::{Recover, RecoverOne, RecoverUnreadable};

use crate::context::CommandContext;
use crate::ui::{Failure, Outcome, Tone};
use crate::view::plural;

/// Finish runs whose changes could not be captured
///
/// When a capture fails, or avfs-run is killed during one, what the command wrote is kept. This captures it
/// and lets the run end as it should have.
///
/// A run that was given secrets has written down their names alone. Files that hold a value can be left out only if
/// it is given again, in the variable of that name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs recover --list
  avfs recover
  avfs recover 3f9a
  NPM_TOKEN=… avfs recover 3f9a
  avfs recover --discard 3f9a")]
pub struct RecoverArgs {
    /// The run: at least four digits of its id [default: all that can be recovered]
    #[arg(value_name = "ID")]
    id: Option<RunPrefix>,
    /// Only list what could be recovered
    #[arg(long, conflicts_with_all = ["discard", "force"])]
    list: bool,
    /// Give the changes up
    #[arg(long, requires = "id")]
    discard: bool,
    /// Take what is there, although the machine was restarted since and it may be incomplete
    #[arg(long)]
    force: bool,
    /// Keep every file, whatever secrets the run was given
    #[arg(long, conflicts_with_all = ["list", "discard"])]
    allow_secret_files: bool,
}

pub fn run(ctx: &CommandContext, args: &RecoverArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let found = Recovery::find(&ScratchDir::new(&ctx.around.cache_dir()?), &vault)?;
    let unreadable: Vec<RecoverUnreadable> = found
        .unreadable
        .iter()
        .map(|(run, error)| RecoverUnreadable { run_id: run.clone(), problem: error.to_string() })
        .collect();
    for RecoverUnreadable { run_id, problem } in &unreadable {
        ctx.ui.note(format_args!("note: run {run_id} cannot be recovered: {problem}"));
    }
    let chosen = match &args.id {
        Some(id) => vec![found.one(id)?],
        None => found.runs,
    };
    let mut runs = Vec::new();
    for recovery in chosen {
        runs.push(one(ctx, args, &vault, recovery)?);
    }
    let count = plural(runs.len() as u64, "run", "runs");
    let result = Recover { runs, unreadable };
    ctx.ui.answer(&result, |out| {
        for run in &result.runs {
            let id = out.paint(Tone::Id, format_args!("run:{}", run.run_id));
            let what = match (&run.fork, run.action) {
                (_, "listed") => format!("kept in {}", run.scratch),
                (_, "discarded") => "given up".to_owned(),
                (Some(fork), _) => format!("captured on fork {fork}"),
                (None, _) => "captured: it had changed nothing".to_owned(),
            };
            out.line(format_args!("{id}  {what}"))?;
        }
        if result.runs.is_empty() {
            out.line(format_args!("there is nothing to recover"))
        } else {
            out.line(format_args!("{count}"))
        }
    })
}

fn one(
    ctx: &CommandContext,
    args: &RecoverArgs,
    vault: &Vault,
    recovery: Recovery,
) -> Result<RecoverOne, Failure> {
    let (run_id, scratch) = (recovery.record.run.clone(), recovery.dir().display().to_string());
    let mut told =
        RecoverOne { run_id, scratch, action: "listed", fork: None, version_after: None, left_out: 0 };
    if args.list {
        return Ok(told);
    }
    if args.discard {
        recovery.discard(vault)?;
        told.action = "discarded";
        return Ok(told);
    }
    let doubt = if args.force { Doubt::Accepted } else { Doubt::Refused };
    let secrets_in_files = match args.allow_secret_files {
        true => SecretsInFiles::Allowed,
        false => SecretsInFiles::Refused,
    };
    let record = match finish(ctx, vault, recovery, doubt, secrets_in_files)?? {
        Some(recovered) => {
            told.left_out = recovered.left_out.len();
            recovered.landed.record
        }
        None => vault.run(&RunPrefix::parse(&told.run_id)?)?,
    };
    told.version_after = record.version_after.map(|version| version.to_hex());
    told.fork = told.version_after.as_ref().map(|_| record.fork.to_string());
    told.action = "captured";
    Ok(told)
}

/// Captures what a run has left; nothing if it was killed between its commit and the end of its scratch, so that
/// everything is in the vault.
pub fn finish(
    ctx: &CommandContext,
    vault: &Vault,
    recovery: Recovery,
    doubt: Doubt,
    secrets_in_files: SecretsInFiles,
) -> Result<Result<Option<Recovered>, RecoverError>, Failure> {
    let bound = bound_dir(vault)?;
    let stat_cache = match &bound {
        Some(dir) => ctx.stat_cache(vault, dir)?,
        None => None,
    };
    let options = RecoverOptions {
        bound: bound.as_deref(),
        stat_cache: stat_cache.as_deref(),
        boot_id: &ctx.boot_id()?,
        doubt,
        secrets_in_files,
        environment: &std::env::vars_os().collect::<Vec<_>>(),
    };
    Ok(match recovery.finish(vault, &options) {
        Err(RecoverError::Vault(avfs_vault::VaultError::RunCaptured { .. })) => Ok(None),
        other => other.map(Some),
    })
}
