//! Runs whose changes could not be captured.

use avfs_engine::{Doubt, RecoverError, RecoverOptions, Recovered, Recovery, ScratchDir, bound_dir};
use avfs_request::SecretsInFiles;
use avfs_types::ids::RunPrefix;
use avfs_vault::{Vault, VaultError, transfer};
use avfs_wire::{Recover, RecoverOne, RecoverUnreadable};
use avfs_workplace::{Client, OpError, Workplace};

/// The runs to recover, and how.
pub struct RecoverQuery {
    /// `None`: all recoverable runs.
    pub run: Option<RunPrefix>,
    pub action: RecoverAction,
}

#[derive(Clone, Copy, Debug)]
pub enum RecoverAction {
    List,
    /// Drops the changes.
    Discard,
    Capture {
        doubt: Doubt,
        secrets_in_files: SecretsInFiles,
    },
}

pub fn recover(workplace: &Workplace, query: &RecoverQuery) -> Result<Recover, OpError> {
    let Workplace { client, vault } = workplace;
    let found = Recovery::find(&ScratchDir::new(&client.surroundings.cache_dir()?), vault)?;
    let unreadable: Vec<RecoverUnreadable> = found
        .unreadable
        .iter()
        .map(|(run, error)| RecoverUnreadable { run_id: run.clone(), problem: error.to_string() })
        .collect();
    for RecoverUnreadable { run_id, problem } in &unreadable {
        workplace.note(format_args!("note: run {run_id} cannot be recovered: {problem}"));
    }
    let chosen = match &query.run {
        Some(id) => vec![found.one(id)?],
        None => found.runs,
    };
    let runs = chosen.into_iter().map(|recovery| one(workplace, query.action, recovery));
    Ok(Recover { runs: runs.collect::<Result<_, _>>()?, unreadable })
}

fn one(workplace: &Workplace, action: RecoverAction, recovery: Recovery) -> Result<RecoverOne, OpError> {
    let (run_id, scratch) = (recovery.record.run.clone(), recovery.dir().display().to_string());
    let listed = "listed".into();
    let mut result =
        RecoverOne { run_id, scratch, action: listed, fork: None, version_after: None, left_out: 0 };
    let (doubt, secrets_in_files) = match action {
        RecoverAction::List => return Ok(result),
        RecoverAction::Discard => {
            recovery.discard(&workplace.vault)?;
            result.action = "discarded".into();
            return Ok(result);
        }
        RecoverAction::Capture { doubt, secrets_in_files } => (doubt, secrets_in_files),
    };
    let record = match finish(&workplace.client, &workplace.vault, recovery, doubt, secrets_in_files)?? {
        Some(recovered) => {
            result.left_out = recovered.left_out.len();
            recovered.landed.record
        }
        None => workplace.vault.run(&RunPrefix::parse(&result.run_id)?)?,
    };
    result.version_after = record.version_after.map(|version| version.to_hex());
    result.fork = result.version_after.as_ref().map(|_| record.fork.to_string());
    result.action = "captured".into();
    Ok(result)
}

/// Captures the changes of a run. Returns `None` if the run was killed between its commit and the removal of
/// its scratch, so that everything is in the vault already.
pub fn finish(
    client: &Client,
    vault: &Vault,
    recovery: Recovery,
    doubt: Doubt,
    secrets_in_files: SecretsInFiles,
) -> Result<Result<Option<Recovered>, RecoverError>, OpError> {
    let bound = bound_dir(vault)?;
    let stat_cache = match &bound {
        Some(dir) => client.stat_cache(vault, dir)?,
        None => None,
    };
    let options = RecoverOptions {
        bound: bound.as_deref(),
        stat_cache: stat_cache.as_deref(),
        boot_id: &client.boot_id()?,
        doubt,
        secrets_in_files,
        environment: &client.environment,
    };
    Ok(match recovery.finish(vault, &options) {
        Err(RecoverError::Vault(transfer::Error::Vault(VaultError::RunCaptured { .. }))) => Ok(None),
        other => other.map(Some),
    })
}
