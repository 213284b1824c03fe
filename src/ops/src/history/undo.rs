//! One step back or forward on a fork.

use avfs_types::ids::{ForkName, RunPrefix};
use avfs_types::reference::Reference;
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{ApplicationRecord, Life, RunRecord};
use avfs_vault::discard::ChangesOf;
use avfs_vault::run::{LastChange, last_change};
use avfs_vault::undo::{moved_last, newest_in_effect};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{Edited, Redo, Undo};
use avfs_workplace::{OpError, Workplace};

use super::fork_meant;
use crate::error::VerbError;
use crate::files::{edited, note_directory};
use crate::named_run::{note_skipped, why_unchanged};
use crate::text::message_line;

/// What an undo did.
pub enum UndoOutcome {
    /// The fork went one step back.
    OnFork(Box<Undo>),
    /// Nothing yet: the changes are only in the bound directory, so the caller unapplies them.
    InDirectory(ChangesOf),
}

/// Reverts the last change of a fork. `None` is the newest run in effect that changed content, else main.
pub fn undo(workplace: &Workplace, what: Option<&ChangesOf>) -> Result<UndoOutcome, OpError> {
    let (vault, avfs) = (&workplace.vault, &workplace.client.avfs);
    let last = last_change(&*vault.read()?)?;
    let named = match what {
        Some(what) => what.meant(&*vault.read()?)?,
        None => default(workplace, &last)?,
    };
    let fork = match named {
        ChangesOf::Fork(fork) => fork,
        ChangesOf::Run(prefix) => {
            let run = vault.run(&prefix)?;
            if let Some(why) = why_unchanged(&run) {
                return Err(VerbError::Unchanged { run: run.id, why, verb: "undo" }.into());
            }
            match meant(vault, &run)? {
                // The default names a fork by a run. It may have newer versions: edits, or changes of times.
                Meant::Fork(fork) if what.is_none() => fork,
                Meant::Fork(fork) => newest_on(vault, fork, run)?,
                Meant::Directory => return Ok(UndoOutcome::InDirectory(ChangesOf::Run(prefix))),
            }
        }
    };
    let undone = vault.undo(&fork).map_err(|error| {
        let is_unused = what.is_none() && last == LastChange::default();
        if is_unused && matches!(error, VaultError::NothingToUndo { .. }) {
            let hint = format!("no run has changed content yet; run a command with: {avfs} run -- COMMAND");
            return VerbError::Advised { error, hint }.into();
        }
        VerbError::of_old_fork(error)
    })?;
    if let (None, Some(run)) = (what, &undone.undone.run) {
        let message = message_line(&avfs_present::version(&undone.undone));
        workplace.note(format_args!("run {run}: {message}"));
    }
    if let (None, Some(run)) = (what, &last.run)
        && undone.undone.run.as_deref() != Some(run.id.as_str())
    {
        let run = &run.id;
        workplace.note(format_args!("note: run {run} is still in effect; undo it with: {avfs} undo {fork}"));
    }
    note_directory(workplace, &fork, &undone.committed)?;
    note_applied(workplace, &fork)?;
    Ok(UndoOutcome::OnFork(Box::new(avfs_present::undo(&fork, &undone))))
}

/// Reverts the last undo of a fork. `None` is the fork that was undone last.
pub fn redo(workplace: &Workplace, what: Option<&ChangesOf>) -> Result<Redo, OpError> {
    let vault = &workplace.vault;
    let fork = match what {
        Some(what) => fork_meant(vault, what)?.name,
        None => moved_last(&*vault.read()?)?.unwrap_or_else(ForkName::main),
    };
    let redone = vault.redo(&fork).map_err(VerbError::of_old_fork)?;
    note_directory(workplace, &fork, &redone.committed)?;
    Ok(avfs_present::redo(&fork, &redone))
}

/// Restores a fork to any version.
pub fn restore(workplace: &Workplace, fork: &ForkName, reference: &Reference) -> Result<Edited, OpError> {
    let committed = workplace.vault.restore(fork, reference, None)?;
    edited(workplace, fork, &committed)
}

/// The default: the newest run in effect that changed content, else a fork.
fn default(workplace: &Workplace, last: &LastChange) -> Result<ChangesOf, OpError> {
    let fork = match last {
        LastChange { run: Some(run), times_only, .. } => {
            // On the same fork it is undone first.
            if let Some(skipped) = times_only.as_ref().filter(|skipped| skipped.fork != run.fork) {
                note_skipped(workplace, skipped);
            }
            return Ok(ChangesOf::Run(RunPrefix::from(&run.id)));
        }
        // The fork may have older versions that no run made.
        LastChange { undone: Some(undone), .. } => named_fork(&workplace.vault, undone)?,
        LastChange { times_only: Some(_), .. } => return Err(VerbError::of_no_change(last).into()),
        LastChange { run: None, times_only: None, undone: None } => None,
    };
    Ok(ChangesOf::Fork(fork.unwrap_or_else(ForkName::main)))
}

/// Notes that changes of the fork stay in the bound directory.
fn note_applied(workplace: &Workplace, fork: &ForkName) -> Result<(), OpError> {
    let applied = workplace.vault.read()?.applications_of_fork(fork)?;
    if applied.iter().any(ApplicationRecord::stands) {
        let avfs = &workplace.client.avfs;
        workplace.note(format_args!(
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
