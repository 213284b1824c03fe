//! Discards the changes of runs.

use avfs_types::ids::RunPrefix;
use avfs_vault::VaultError;
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{ForkRecord, Life, Reader, RunRecord};
use avfs_vault::discard::{ChangesOf, Discarded, own_runs};
use avfs_wire::Discard;
use avfs_workplace::{Client, OpError, Workplace};

use crate::error::VerbError;
use crate::named_run::why_unchanged;

/// Discards the changes of one run, or of the fork that was created for it.
pub fn discard(client: &Client, what: &ChangesOf) -> Result<Discard, OpError> {
    let discarded = client.free_space(|| {
        let vault = client.open()?.vault;
        if let ChangesOf::Run(prefix) = what.meant(&*vault.read()?)? {
            let run = vault.run(&prefix)?;
            if let (Some(why), None) = (why_unchanged(&run), run.discarded_at) {
                return Err(VerbError::Unchanged { run: run.id, why, verb: "discard" }.into());
            }
        }
        vault.discard(what).map_err(VerbError::of_changes)
    })?;
    Ok(avfs_present::discard(&discarded))
}

/// Discards every run that has its own fork and is not applied, each in its own transaction. `confirm` gets the number
/// of runs before the first one is discarded, and ends the verb with its error.
pub fn discard_all(
    client: &Client,
    confirm: &mut dyn FnMut(usize) -> Result<(), OpError>,
) -> Result<Discard, OpError> {
    let mut is_confirmed = false;
    let mut discarded = Discarded { fork: None, runs: Vec::new() };
    client.free_space(|| {
        let workplace = client.open()?;
        let found = unapplied(&*workplace.vault.read()?)?;
        let count: usize = found.iter().map(|(_, runs)| runs.len()).sum();
        if count > 0 && !is_confirmed {
            confirm(count)?;
            is_confirmed = true;
        }
        found.iter().try_for_each(|(fork, runs)| discard_unapplied(&workplace, fork, runs, &mut discarded))
    })?;
    Ok(avfs_present::discard(&discarded))
}

/// Discards the runs of a fork unless they were applied or went on meanwhile.
fn discard_unapplied(
    workplace: &Workplace,
    fork: &ForkRecord,
    runs: &[RunRecord],
    discarded: &mut Discarded,
) -> Result<(), OpError> {
    let vault = &workplace.vault;
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
        ) => workplace.note(format_args!("note: kept fork {}: {error}", fork.name)),
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
