//! Forks: named movable heads with ancestry, persistent or with an expiry.

use avfs_types::ids::{ForkName, VersionId};
use avfs_types::reference::Reference;

use super::audit::Event;
use super::checkpoint;
use super::discard::own_runs;
use super::version::{full_root_of, root_of};
use crate::backend::{CheckpointRecord, Durability, ForkRecord, Life, Reader, RunRecord};
use crate::care::pace::Pace;
use crate::{Advance, Committed, Result, Transaction, Vault, VaultError, When};

/// How much a deletion may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Refuse to delete checkpoints saved by hand.
    Careful,
    /// Delete everything.
    Forced,
}

impl Vault {
    /// Creates a fork at the version that `from` resolves to: one row, regardless of the size of the tree. Fails for a
    /// name that [no new fork](ForkName::check_new) can have.
    pub fn create_fork(&self, name: &ForkName, from: &Reference, life: Life) -> Result<ForkRecord> {
        self.create_fork_with(Durability::Synced, name, from, life)
    }

    /// Like [`Vault::create_fork`], but synced only with the first version that a run adds to it.
    pub fn create_fork_for_run(&self, name: &ForkName, from: &Reference, life: Life) -> Result<ForkRecord> {
        self.create_fork_with(Durability::Deferred, name, from, life)
    }

    fn create_fork_with(
        &self,
        durability: Durability,
        name: &ForkName,
        from: &Reference,
        life: Life,
    ) -> Result<ForkRecord> {
        self.transact_with(durability, |transaction| {
            if transaction.view().fork(name)?.is_some() {
                return Err(VaultError::ForkExists { name: name.clone() });
            }
            name.check_new()?;
            let (version, parent) = crate::version::resolve(transaction.view(), from)?;
            root_of(&version)?;
            let fork = ForkRecord {
                name: name.clone(),
                head: version.id,
                base: version.id,
                parent,
                created_at: transaction.now(),
                life,
            };
            transaction.writer.insert_fork(&fork)?;
            transaction.record(&Event {
                action: "fork.create",
                subject: name.as_str(),
                before: None,
                after: Some(version.id.0),
                detail: fork.parent.as_ref().map_or("", ForkName::as_str),
            })?;
            Ok(fork)
        })
    }

    /// Deletes a fork and its checkpoints; the next gc frees the space.
    pub fn delete_fork(&self, name: &ForkName, deletion: Deletion) -> Result<ForkRecord> {
        let mut pace = Pace::of(self);
        loop {
            let deleted = pace
                .batch(|rows| self.transact(|transaction| delete_some(transaction, name, deletion, rows)))?;
            if let Some(fork) = deleted {
                return Ok(fork);
            }
        }
    }

    /// Turns a fork into a persistent one with another name, keeping its checkpoints and runs.
    pub fn keep_fork(&self, fork: &ForkName, name: &ForkName) -> Result<ForkRecord> {
        self.transact(|transaction| {
            let old = transaction.fork(fork)?;
            if *fork == ForkName::main() {
                return Err(VaultError::MainFork { name: fork.clone() });
            }
            if transaction.view().fork(name)?.is_some() {
                return Err(VaultError::ForkExists { name: name.clone() });
            }
            name.check_new()?;
            let runs = own_runs(transaction.view(), &old)?;
            let checkpoints = transaction.view().checkpoints_of_fork(fork)?;
            // This also deletes its checkpoints.
            transaction.writer.delete_fork(fork)?;
            let kept = ForkRecord { name: name.clone(), life: Life::Persistent, ..old };
            transaction.writer.insert_fork(&kept)?;
            for checkpoint in checkpoints {
                let moved = CheckpointRecord { fork: name.clone(), ..checkpoint };
                transaction.writer.insert_checkpoint(&moved)?;
            }
            // The ids of the runs record that they landed on this fork.
            let mut detail = format!("from={fork}");
            for run in runs {
                detail.push_str(&format!(" run={}", run.id));
                transaction.writer.put_run(&RunRecord { fork: name.clone(), ..run })?;
            }
            let (action, subject, head) = ("fork.keep", name.as_str(), Some(kept.head.0));
            transaction.record(&Event { action, subject, before: None, after: head, detail: &detail })?;
            Ok(kept)
        })
    }

    /// Every fork, oldest first.
    pub fn forks(&self) -> Result<Vec<ForkRecord>> {
        Ok(self.read()?.forks()?)
    }

    /// One fork. Fails with [`VaultError::NoFork`].
    pub fn fork(&self, name: &ForkName) -> Result<ForkRecord> {
        self.read()?.fork(name)?.ok_or_else(|| VaultError::NoFork { name: name.clone() })
    }

    /// Adds a version to `fork` that equals an older one. With `expect`, the head must still be that version.
    pub fn restore(&self, fork: &ForkName, to: &Reference, expect: Option<VersionId>) -> Result<Committed> {
        self.transact(|transaction| {
            let record = transaction.fork(fork)?;
            if let Some(expected) = expect
                && expected != record.head
            {
                return Err(VaultError::ForkMoved { fork: fork.clone(), expected, found: record.head });
            }
            let (version, _) = crate::version::resolve(transaction.view(), to)?;
            let message = format!("restore to {}", version.id.short());
            let root = full_root_of(transaction.view(), &version)?;
            let (action, when) = ("fork.restore", When::Changed);
            transaction.advance(&record, &root, Advance { action, message: &message, run: None, when })
        })
    }
}

/// Deletes a fork with at most this many checkpoints. Of a fork with more it deletes some, and returns `None`.
fn delete_some(
    transaction: &mut Transaction<'_>,
    name: &ForkName,
    deletion: Deletion,
    checkpoints_max: usize,
) -> Result<Option<ForkRecord>> {
    let fork = transaction.fork(name)?;
    refuse_deletion(transaction.view(), name, deletion)?;
    let checkpoints = transaction.view().checkpoints_of_fork(name)?;
    if checkpoints.len() > checkpoints_max {
        for checkpoint in &checkpoints[..checkpoints_max] {
            checkpoint::delete(transaction, checkpoint)?;
        }
        return Ok(None);
    }
    transaction.writer.delete_fork(name)?;
    transaction.record(&Event {
        action: "fork.delete",
        subject: name.as_str(),
        before: Some(fork.head.0),
        after: None,
        detail: "",
    })?;
    Ok(Some(fork))
}

/// Fails if a fork must not be deleted, or not without `Deletion::Forced`.
pub(crate) fn refuse_deletion(reader: &dyn Reader, name: &ForkName, deletion: Deletion) -> Result<()> {
    if *name == ForkName::main() {
        return Err(VaultError::MainFork { name: name.clone() });
    }
    let by_hand = |checkpoint: &&CheckpointRecord| !checkpoint.automatic;
    let count = reader.checkpoints_of_fork(name)?.iter().filter(by_hand).count();
    if count > 0 && deletion == Deletion::Careful {
        return Err(VaultError::ForkHasCheckpoints { name: name.clone(), count });
    }
    Ok(())
}
