//! Checkpoints: labels on a fork that pin a version.

use avfs_types::KeepCount;
use avfs_types::ids::{CheckpointName, ForkName};
use avfs_types::reference::BadReference;

use super::audit::Event;
use super::version::root_of;
use crate::backend::CheckpointRecord;
use crate::{Result, Transaction, Vault, VaultError};

/// Who asked for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A person: kept until it is deleted.
    ByHand,
    /// A run: a prune may remove it.
    Automatic,
}

/// Deletes the oldest automatic checkpoints of a fork beyond `keep`; returns how many were deleted.
pub(crate) fn retire(transaction: &mut Transaction<'_>, fork: &ForkName, keep: KeepCount) -> Result<usize> {
    let mut automatic = transaction.view().checkpoints_of_fork(fork)?;
    automatic.retain(|checkpoint| checkpoint.automatic);
    automatic.truncate(automatic.len().saturating_sub(keep.get()));
    for checkpoint in &automatic {
        transaction.writer.delete_checkpoint(fork, &checkpoint.name)?;
    }
    Ok(automatic.len())
}

/// Deletes a checkpoint and records it.
pub(crate) fn delete(transaction: &mut Transaction<'_>, checkpoint: &CheckpointRecord) -> Result<()> {
    let CheckpointRecord { fork, name, version, .. } = checkpoint;
    transaction.writer.delete_checkpoint(fork, name)?;
    let (action, subject, before) = ("checkpoint.delete", format!("{fork}@{name}"), Some(version.0));
    transaction.record(&Event { action, subject: &subject, before, after: None, detail: "" })
}

impl Vault {
    /// Labels the head of a fork. Without a name it is called `cp-N`, with the next free number.
    pub fn save_checkpoint(
        &self,
        fork: &ForkName,
        name: Option<CheckpointName>,
        message: &str,
        origin: Origin,
    ) -> Result<CheckpointRecord> {
        self.transact(|transaction| {
            let record = transaction.fork(fork)?;
            let head = crate::require_version(transaction.view(), &record.head)?;
            root_of(&head)?;
            let name = match name {
                Some(name) => name,
                None => next_name(&transaction.view().checkpoints_of_fork(fork)?)?,
            };
            if transaction.view().checkpoint(fork, &name)?.is_some() {
                return Err(VaultError::CheckpointExists { fork: fork.clone(), name });
            }
            let checkpoint = CheckpointRecord {
                fork: fork.clone(),
                name,
                version: head.id,
                automatic: origin == Origin::Automatic,
                message: message.to_owned(),
                at: transaction.now(),
            };
            transaction.writer.insert_checkpoint(&checkpoint)?;
            let subject = format!("{fork}@{}", checkpoint.name);
            transaction.record(&Event {
                // Only checkpoints saved by hand are reported when they are missing.
                action: match origin {
                    Origin::ByHand => "checkpoint.save",
                    Origin::Automatic => "checkpoint.automatic",
                },
                subject: &subject,
                before: None,
                after: Some(head.id.0),
                detail: message,
            })?;
            Ok(checkpoint)
        })
    }

    /// Deletes a checkpoint and returns its record. Its version stays until a sweep.
    pub fn delete_checkpoint(&self, fork: &ForkName, name: &CheckpointName) -> Result<CheckpointRecord> {
        self.transact(|transaction| {
            transaction.fork(fork)?;
            let found = transaction.view().checkpoint(fork, name)?;
            let found =
                found.ok_or_else(|| VaultError::NoCheckpoint { fork: fork.clone(), name: name.clone() })?;
            delete(transaction, &found)?;
            Ok(found)
        })
    }

    /// Every checkpoint, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointRecord>> {
        Ok(self.read()?.checkpoints()?)
    }
}

fn next_name(taken: &[CheckpointRecord]) -> Result<CheckpointName> {
    let numbers = taken
        .iter()
        .filter_map(|checkpoint| checkpoint.name.as_str().strip_prefix("cp-")?.parse::<u64>().ok());
    let next = numbers.max().unwrap_or(0).saturating_add(1);
    CheckpointName::parse(&format!("cp-{next}"))
        .map_err(|_| BadReference { reference: format!("cp-{next}"), reason: "no free name is left" }.into())
}
