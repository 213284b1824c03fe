//! Runs that land without an execution: edits, their blobs, and a row for the journal.

use avfs_types::KeepCount;
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::{BatchItem, CheckpointName, ForkName, RunId, VersionId};
use avfs_vault::backend::{Durability, RunRecord, RunState};
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::edited_tree::EditedTree;
use avfs_vault::memo::Memo;
use avfs_vault::page::{DirMeta, FileContent, FileNode, Node};
use avfs_vault::run::{AuditTexts, LandedRun, Landing, RunLanding};
use avfs_vault::version::root_of_either;
use avfs_vault::{Batch, Result, Vault, content, require_version};

use super::path;

pub fn run_id(n: u8) -> RunId {
    RunId::from_random([n, 0, 0, 0, n])
}

/// The row of a run that succeeded.
pub fn record(n: u8, on: &ForkName) -> RunRecord {
    RunRecord {
        seq: 0,
        id: run_id(n),
        fork: on.clone(),
        state: RunState::Completed,
        version_before: None,
        version_after: None,
        started_at: super::START,
        ended_at: Some(Timestamp(super::START.0 + 5)),
        exit_code: Some(0),
        signal: None,
        applied_at: None,
        discarded_at: None,
        request: r#"{"command":["true"]}"#.to_owned(),
        decision: r#"{"action":"allow"}"#.to_owned(),
        result: r#"{"usage":{"user_ms":1}}"#.to_owned(),
    }
}

/// The tree of a version after these edits.
pub fn edited(vault: &Vault, base: &VersionId, edits: &Edits) -> Result<EditedTree> {
    let reader = vault.read()?;
    let root = root_of_either(&require_version(&*reader, base)?)?;
    EditedTree::new(&&*reader, &root, edits)
}

/// Edits and the blobs they need.
#[derive(Clone, Default)]
pub struct Changes {
    pub edits: Edits,
    pub blobs: Vec<avfs_vault::backend::BlobRecord>,
}

impl Changes {
    pub fn put(mut self, at: &str, text: &str) -> Self {
        let blob = content::encode(content::id_of(text.as_bytes()), text.as_bytes().to_vec());
        let node = Node::File(FileNode {
            mode: 0o644,
            mtime: FileTime { seconds: 7, nanos: 0 },
            size: text.len() as u64,
            content: FileContent::Whole(blob.id),
            xattrs: None,
            link: None,
        });
        self.blobs.push(blob);
        self.edits.insert(path(at), Edit::Put(node));
        self
    }

    pub fn remove(mut self, at: &str) -> Self {
        self.edits.insert(path(at), Edit::Remove);
        self
    }

    pub fn dir(mut self, at: &str, mode: u32, seconds: i64) -> Self {
        let meta = DirMeta { mode, mtime: FileTime { seconds, nanos: 0 }, xattrs: None };
        self.edits.insert(path(at), Edit::Dir(meta));
        self
    }

    pub fn land(&self, vault: &Vault, landing: Landing<'_>, record: RunRecord) -> Result<LandedRun> {
        self.land_with(vault, landing, record, None)
    }

    /// Lands with a result to remember.
    pub fn land_with(
        &self,
        vault: &Vault,
        landing: Landing<'_>,
        record: RunRecord,
        memo: Option<Memo>,
    ) -> Result<LandedRun> {
        self.land_all(vault, landing, record, memo, None)
    }

    /// Lands for an item of a batch.
    pub fn land_for(
        &self,
        vault: &Vault,
        landing: Landing<'_>,
        record: RunRecord,
        item: &BatchItem,
    ) -> Result<LandedRun> {
        self.land_all(vault, landing, record, None, Some(item))
    }

    fn land_all(
        &self,
        vault: &Vault,
        landing: Landing<'_>,
        record: RunRecord,
        memo: Option<Memo>,
        item: Option<&BatchItem>,
    ) -> Result<LandedRun> {
        let label = |when: &str| CheckpointName::parse(&format!("{when}-{}", record.id)).ok();
        let base = match landing {
            Landing::RecordOnly => None,
            Landing::Fork { base, .. } | Landing::NewFork { base, .. } => Some(base),
        };
        let edited = base.map(|base| edited(vault, &base, &self.edits)).transpose()?;
        let run = RunLanding {
            landing,
            edited: edited.as_ref(),
            message: "a run",
            checkpoint_before: label("before"),
            checkpoint_after: label("after"),
            checkpoints_keep: KeepCount::DEFAULT,
            memo,
            kept: None,
            record,
            item,
            durability: Durability::Synced,
            texts: AuditTexts { request: "true", decision: "allow", ..AuditTexts::default() },
        };
        let _pin = vault.backend().pin()?;
        let mut batch = Batch::new(vault)?;
        for blob in &self.blobs {
            batch.push(blob.clone())?;
        }
        vault.land_run(run, batch)
    }
}
