//! A run whose command has ended: the one way by which its row, its changes and its checkpoints get into the vault.

use avfs_types::KeepCount;
use avfs_types::ids::{BatchItem, ForkName, VersionId};
use avfs_vault::backend::{Durability, Life, RunRecord};
use avfs_vault::edit::Edits;
use avfs_vault::kept_output::KeptOutput;
use avfs_vault::memo::Memo;
use avfs_vault::run::{LandedRun, Landing, RunLanding, Told};
use avfs_vault::{Batch, Vault};

use crate::checkpoint::Labels;

/// Everything that is kept of a run.
pub(crate) struct FinishedRun<'a> {
    /// Its row, with the fork that it is for; the vault fills in what became of the changes.
    pub record: RunRecord,
    /// What it changed of `base`; nothing is kept if it is empty, or without a base.
    pub edits: &'a Edits,
    pub base: Option<VersionId>,
    pub lands_on: LandsOn<'a>,
    /// What the version's record says.
    pub message: &'a str,
    pub labels: Labels,
    pub checkpoints_keep: KeepCount,
    /// Its result, where that is to be remembered.
    pub memo: Option<Memo>,
    /// What it wrote, where that is to be kept.
    pub kept: Option<KeptOutput>,
    pub item: Option<&'a BatchItem>,
    /// When its version has to be on the disk.
    pub durability: Durability,
    pub told: Told<'a>,
}

/// Which fork the changes go to: that of the row, which is there or is made for it.
#[derive(Clone, Copy)]
pub(crate) enum LandsOn<'a> {
    Fork,
    NewFork { parent: &'a ForkName, expires_seconds: i64 },
}

impl FinishedRun<'_> {
    /// The caller holds a pin from before the first blob went into `batch`.
    pub fn land(self, vault: &Vault, batch: Batch<'_>) -> avfs_vault::Result<LandedRun> {
        let fork = self.record.fork.clone();
        let landing = match (self.base.filter(|_| !self.edits.is_empty()), self.lands_on) {
            (None, _) => Landing::RecordOnly,
            (Some(base), LandsOn::Fork) => Landing::Fork { name: &fork, base },
            (Some(base), LandsOn::NewFork { parent, expires_seconds }) => {
                let expires_at = vault.now().plus_seconds(expires_seconds);
                Landing::NewFork { name: &fork, base, parent, life: Life::Ephemeral { expires_at } }
            }
        };
        let landing = RunLanding {
            landing,
            edits: self.edits,
            message: self.message,
            checkpoint_before: self.labels.before,
            checkpoint_after: self.labels.after,
            checkpoints_keep: self.checkpoints_keep,
            memo: self.memo,
            kept: self.kept,
            record: self.record,
            item: self.item,
            durability: self.durability,
            told: self.told,
        };
        vault.land_run(landing, batch)
    }
}
