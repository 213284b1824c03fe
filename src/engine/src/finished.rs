//! A run whose command has ended: the only way to store its row, changes and checkpoints in the vault.

use avfs_types::KeepCount;
use avfs_types::ids::{BatchItem, ForkName, VersionId};
use avfs_vault::backend::{Durability, Life, RunRecord};
use avfs_vault::edited_tree::EditedTree;
use avfs_vault::kept_output::KeptOutput;
use avfs_vault::memo::Memo;
use avfs_vault::run::{AuditTexts, LandedRun, Landing, RunLanding};
use avfs_vault::{Batch, Vault};

use crate::checkpoint::Labels;

/// Everything to store for a run.
pub(crate) struct FinishedRun<'a> {
    /// Its row, including its fork; the vault fills in the outcome of the changes.
    pub record: RunRecord,
    /// The tree after its changes to `base`. Without one, or if it is unchanged, no version is created.
    pub edited: Option<&'a EditedTree>,
    pub base: Option<VersionId>,
    pub lands_on: LandsOn<'a>,
    /// The message of the version.
    pub message: &'a str,
    pub labels: Labels,
    pub checkpoints_keep: KeepCount,
    /// Its result, if it should be cached.
    pub memo: Option<Memo>,
    /// Its output, if it should be kept.
    pub kept: Option<KeptOutput>,
    pub item: Option<&'a BatchItem>,
    /// When the version must be on disk.
    pub durability: Durability,
    pub texts: AuditTexts<'a>,
}

/// The fork that gets the changes: the fork of the row, which exists or is created.
#[derive(Clone, Copy)]
pub(crate) enum LandsOn<'a> {
    Fork,
    NewFork { parent: &'a ForkName, expires_seconds: i64 },
}

impl FinishedRun<'_> {
    /// The caller must hold a pin taken before the first blob was added to `batch`.
    pub fn land(self, vault: &Vault, batch: Batch<'_>) -> avfs_vault::Result<LandedRun> {
        let fork = self.record.fork.clone();
        let is_changed = self.edited.is_some_and(|edited| !edited.is_unchanged());
        let landing = match (self.base.filter(|_| is_changed), self.lands_on) {
            (None, _) => Landing::RecordOnly,
            (Some(base), LandsOn::Fork) => Landing::Fork { name: &fork, base },
            (Some(base), LandsOn::NewFork { parent, expires_seconds }) => {
                let expires_at = vault.now().plus_seconds(expires_seconds);
                Landing::NewFork { name: &fork, base, parent, life: Life::Ephemeral { expires_at } }
            }
        };
        let landing = RunLanding {
            landing,
            edited: self.edited,
            message: self.message,
            checkpoint_before: self.labels.before,
            checkpoint_after: self.labels.after,
            checkpoints_keep: self.checkpoints_keep,
            memo: self.memo,
            kept: self.kept,
            record: self.record,
            item: self.item,
            durability: self.durability,
            texts: self.texts,
        };
        vault.land_run(landing, batch)
    }
}
