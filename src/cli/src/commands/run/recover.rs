//! `avfs recover`

use clap::Args;

use avfs_engine::{Doubt, RecoverError, RecoverOptions, Recovered, Recovery, ScratchDir, bound_dir};
use avfs_ops::OpError;
use avfs_request::SecretsInFiles;
use avfs_terminal::Tone;
use avfs_types::ids::RunPrefix;
use avfs_vault::Vault;
use avfs_vault::{VaultError, transfer};
use avfs_wire::{Recover, RecoverOne, RecoverUnreadable};

use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::plural;

/// Finish runs whose changes could not be captured
///
/// Use it after avfs-run ended with exit code 123, after it or the machine was killed during a capture, or when a
/// run prints that another one is recoverable. If a capture fails, for example because the disk is full, the
/// files that the command wrote are kept. This verb captures them and completes the run; review its changes with
/// `avfs diff RUN`.
///
/// Only the names of a run's secrets are stored, not their values. To leave out files that contain a secret,
/// give its value again in the variable of that name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs recover --list             # list the runs, and change nothing
  avfs recover                    # capture the changes of all of them
  avfs recover 3f9a               # capture the changes of one run
  NPM_TOKEN=… avfs recover 3f9a   # leave out files that contain this secret of the run
  avfs recover --discard 3f9a     # drop the changes of the run")]
pub struct RecoverArgs {
    /// Recover this run: the first four or more digits of its id [default: all recoverable runs]
    #[arg(value_name = "ID")]
    id: Option<RunPrefix>,
    /// Only list recoverable runs
    #[arg(long, conflicts_with_all = ["discard", "force"])]
    list: bool,
    /// Discard the changes
    #[arg(long, requires = "id")]
    discard: bool,
    /// Capture the changes even if the machine was restarted since and they may be incomplete
    #[arg(long)]
    force: bool,
    /// Keep every file, even if it may contain a secret of the run
    #[arg(long, conflicts_with_all = ["list", "discard"])]
    allow_secret_files: bool,
}

pub fn run(ctx: &CommandContext, args: &RecoverArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let found = Recovery::find(&ScratchDir::new(&ctx.client.surroundings.cache_dir()?), &vault)?;
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
            let what = match (&run.fork, &*run.action) {
                (_, "listed") => format!("kept in {}", run.scratch),
                (_, "discarded") => "discarded".to_owned(),
                (Some(fork), _) => format!("captured on fork {fork}"),
                (None, _) => "captured: no changes".to_owned(),
            };
            out.line(format_args!("{id}  {what}"))?;
        }
        if result.runs.is_empty() {
            out.line(format_args!("nothing to recover"))
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
) -> Result<RecoverOne, OpError> {
    let (run_id, scratch) = (recovery.record.run.clone(), recovery.dir().display().to_string());
    let action = "listed".into();
    let mut result = RecoverOne { run_id, scratch, action, fork: None, version_after: None, left_out: 0 };
    if args.list {
        return Ok(result);
    }
    if args.discard {
        recovery.discard(vault)?;
        result.action = "discarded".into();
        return Ok(result);
    }
    let doubt = if args.force { Doubt::Accepted } else { Doubt::Refused };
    let secrets_in_files = match args.allow_secret_files {
        true => SecretsInFiles::Allowed,
        false => SecretsInFiles::Refused,
    };
    let record = match finish(ctx, vault, recovery, doubt, secrets_in_files)?? {
        Some(recovered) => {
            result.left_out = recovered.left_out.len();
            recovered.landed.record
        }
        None => vault.run(&RunPrefix::parse(&result.run_id)?)?,
    };
    result.version_after = record.version_after.map(|version| version.to_hex());
    result.fork = result.version_after.as_ref().map(|_| record.fork.to_string());
    result.action = "captured".into();
    Ok(result)
}

/// Captures the changes of a run. Returns `None` if the run was killed between its commit and the removal of
/// its scratch, so that everything is in the vault already.
pub fn finish(
    ctx: &CommandContext,
    vault: &Vault,
    recovery: Recovery,
    doubt: Doubt,
    secrets_in_files: SecretsInFiles,
) -> Result<Result<Option<Recovered>, RecoverError>, OpError> {
    let bound = bound_dir(vault)?;
    let stat_cache = match &bound {
        Some(dir) => ctx.client.stat_cache(vault, dir)?,
        None => None,
    };
    let options = RecoverOptions {
        bound: bound.as_deref(),
        stat_cache: stat_cache.as_deref(),
        boot_id: &ctx.client.boot_id()?,
        doubt,
        secrets_in_files,
        environment: &std::env::vars_os().collect::<Vec<_>>(),
    };
    Ok(match recovery.finish(vault, &options) {
        Err(RecoverError::Vault(transfer::Error::Vault(VaultError::RunCaptured { .. }))) => Ok(None),
        other => other.map(Some),
    })
}
