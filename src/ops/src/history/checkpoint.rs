//! Checkpoints: labels that pin versions of a fork.

use avfs_types::ids::{CheckpointName, ForkName};
use avfs_types::reference::Reference;
use avfs_vault::backend::CheckpointRecord;
use avfs_vault::checkpoint::Origin;
use avfs_vault::{VaultError, require_version};
use avfs_wire::{CheckpointInfo, CheckpointList, CheckpointOne, Edited};
use avfs_workplace::{OpError, Workplace};

use super::restore;

/// Saves a checkpoint of a fork's head. Without a name it gets the next free one.
pub fn save_checkpoint(
    workplace: &Workplace,
    fork: &ForkName,
    name: Option<CheckpointName>,
    message: &str,
) -> Result<CheckpointOne, OpError> {
    let saved = workplace.vault.save_checkpoint(fork, name, message, Origin::ByHand)?;
    Ok(one(&saved))
}

/// The checkpoints of a fork, or of all forks, oldest first.
pub fn checkpoints(workplace: &Workplace, fork: Option<&ForkName>) -> Result<CheckpointList, OpError> {
    if let Some(fork) = fork {
        workplace.vault.fork(fork)?;
    }
    let mut checkpoints = workplace.vault.checkpoints()?;
    checkpoints.retain(|checkpoint| fork.is_none_or(|fork| checkpoint.fork == *fork));
    if checkpoints.is_empty() {
        let avfs = &workplace.client.avfs;
        workplace.note(format_args!("there are no checkpoints; save one with: {avfs} checkpoint save"));
    }
    Ok(CheckpointList { checkpoints: checkpoints.iter().map(avfs_present::checkpoint).collect() })
}

/// A checkpoint and the version that it pins.
pub fn checkpoint(
    workplace: &Workplace,
    fork: &ForkName,
    name: &CheckpointName,
) -> Result<CheckpointInfo, OpError> {
    let vault = &workplace.vault;
    vault.fork(fork)?;
    let found = vault.read()?.checkpoint(fork, name)?;
    let missing = || VaultError::NoCheckpoint { fork: fork.clone(), name: name.clone() };
    let found = found.ok_or_else(missing)?;
    let version = require_version(&*vault.read()?, &found.version)?;
    Ok(CheckpointInfo {
        checkpoint: avfs_present::checkpoint(&found),
        version: avfs_present::version(&version),
    })
}

/// Restores a fork to one of its checkpoints.
pub fn restore_checkpoint(
    workplace: &Workplace,
    fork: &ForkName,
    name: &CheckpointName,
) -> Result<Edited, OpError> {
    restore(workplace, fork, &Reference::parse(&format!("{fork}@{name}"))?)
}

/// Deletes a checkpoint; the version stays in the history of the fork.
pub fn delete_checkpoint(
    workplace: &Workplace,
    fork: &ForkName,
    name: &CheckpointName,
) -> Result<CheckpointOne, OpError> {
    Ok(one(&workplace.vault.delete_checkpoint(fork, name)?))
}

fn one(checkpoint: &CheckpointRecord) -> CheckpointOne {
    CheckpointOne { checkpoint: avfs_present::checkpoint(checkpoint) }
}
