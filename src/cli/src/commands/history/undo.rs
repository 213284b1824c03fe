//! `avfs undo`

use clap::Args;

use avfs_ops::review::UnapplyQuery;
use avfs_ops::{OpError, VerbError};
use avfs_types::ids::{ForkName, RunPrefix};
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{ApplicationRecord, Life, RunRecord};
use avfs_vault::discard::ChangesOf;
use avfs_vault::run::{LastChange, last_change};
use avfs_vault::undo::newest_in_effect;
use avfs_vault::{Vault, VaultError};

use crate::commands::runs::note_skipped;
use crate::commands::{edited, unapply};
use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::message_line;
use avfs_ops::why_unchanged;

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
    let vault = ctx.open_vault()?;
    let last = last_change(&*vault.read()?)?;
    let what = match &args.what {
        Some(what) => what.meant(&*vault.read()?)?,
        None => default(ctx, &vault, &last)?,
    };
    let fork = match what {
        ChangesOf::Fork(fork) => fork,
        ChangesOf::Run(prefix) => {
            let run = vault.run(&prefix)?;
            if let Some(why) = why_unchanged(&run) {
                return Err(VerbError::Unchanged { run: run.id, why, verb: "undo" }.into());
            }
            match meant(&vault, &run)? {
                // The default names a fork by a run. It may have newer versions: edits, or changes of times.
                Meant::Fork(fork) if args.what.is_none() => fork,
                Meant::Fork(fork) => newest_on(&vault, fork, run)?,
                Meant::Directory => {
                    let query = UnapplyQuery { what: Some(ChangesOf::Run(prefix)), dry_run: false };
                    return unapply::take_back(ctx, &ctx.ui.of_kind("unapply"), &query);
                }
            }
        }
    };
    let undone = vault.undo(&fork).map_err(|error| {
        let is_unused = args.what.is_none() && last == LastChange::default();
        if is_unused && matches!(error, VaultError::NothingToUndo { .. }) {
            let avfs = &ctx.ui.avfs;
            let hint = format!("no run has changed content yet; run a command with: {avfs} run -- COMMAND");
            return VerbError::Advised { error, hint }.into();
        }
        VerbError::of_old_fork(error)
    })?;
    if let (None, Some(run)) = (&args.what, &undone.undone.run) {
        ctx.ui.note(format_args!("run {run}: {}", message_line(&avfs_present::version(&undone.undone))));
    }
    if let (None, Some(run)) = (&args.what, &last.run)
        && undone.undone.run.as_deref() != Some(run.id.as_str())
    {
        let avfs = &ctx.ui.avfs;
        ctx.ui
            .note(format_args!("note: run {} is still in effect; undo it with: {avfs} undo {fork}", run.id));
    }
    let result = avfs_present::undo(&fork, &undone);
    edited::note_directory(ctx, &vault, &fork, &undone.committed)?;
    note_applied(ctx, &vault, &fork)?;
    ctx.ui.answer(&result, |out| edited::show(out, &fork, &undone.committed))
}

/// The default: the newest run in effect that changed content, else a fork.
fn default(ctx: &CommandContext, vault: &Vault, last: &LastChange) -> Result<ChangesOf, OpError> {
    let fork = match last {
        LastChange { run: Some(run), times_only, .. } => {
            // On the same fork it is undone first.
            if let Some(skipped) = times_only.as_ref().filter(|skipped| skipped.fork != run.fork) {
                note_skipped(ctx, skipped);
            }
            return Ok(ChangesOf::Run(RunPrefix::from(&run.id)));
        }
        // The fork may have older versions that no run made.
        LastChange { undone: Some(undone), .. } => named_fork(vault, undone)?,
        LastChange { times_only: Some(_), .. } => return Err(VerbError::of_no_change(last).into()),
        LastChange { run: None, times_only: None, undone: None } => None,
    };
    Ok(ChangesOf::Fork(fork.unwrap_or_else(ForkName::main)))
}

/// Notes that changes of the fork stay in the bound directory.
fn note_applied(ctx: &CommandContext, vault: &Vault, fork: &ForkName) -> Result<(), OpError> {
    let applied = vault.read()?.applications_of_fork(fork)?;
    if applied.iter().any(ApplicationRecord::stands) {
        let avfs = &ctx.ui.avfs;
        ctx.ui.note(format_args!(
            "note: applied changes of {fork} stay in the directory; remove them with: {avfs} unapply {fork}"
        ));
    }
    Ok(())
}

/// The fork, if the run is the newest change in effect on it: an undo reverts no other.
fn newest_on(vault: &Vault, fork: ForkName, run: RunRecord) -> Result<ForkName, OpError> {
    let reader = vault.read()?;
    let newest = newest_in_effect(&*reader, &vault.fork(&fork)?)?;
    if newest.run.as_deref() == Some(run.id.as_str()) {
        Ok(fork)
    } else {
        Err(VerbError::NotNewest { run: run.id, fork }.into())
    }
}

/// Where to revert the newest run.
enum Meant {
    Fork(ForkName),
    Directory,
}

fn meant(vault: &Vault, run: &RunRecord) -> Result<Meant, OpError> {
    if let Some(fork) = named_fork(vault, run)? {
        return Ok(Meant::Fork(fork));
    }
    match in_directory(&*vault.read()?, run)? {
        Some(InDirectory::Applied | InDirectory::Partly) => Ok(Meant::Directory),
        Some(InDirectory::Unapplied) | None => Err(VerbError::NotKept { run: run.id.clone() }.into()),
    }
}

/// The fork of a run; `None` if the run was not on a persistent fork, or the fork was deleted.
fn named_fork(vault: &Vault, run: &RunRecord) -> Result<Option<ForkName>, OpError> {
    match vault.fork(&run.fork) {
        Ok(fork) => Ok((fork.life == Life::Persistent).then_some(fork.name)),
        Err(VaultError::NoFork { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
