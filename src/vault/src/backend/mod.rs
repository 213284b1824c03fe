//! The storage backend: stores objects, references and the audit log, in transactions.
//!
//! It handles rows and digests, not their meaning: encodings, trees and history belong to the vault. There are
//! three backends: [`sqlite`] (the product), [`memory`] (the model that tests compare with) and [`fault`] (wraps
//! another one and fails on demand).

mod error;
pub mod fault;
pub mod memory;
mod record;
pub mod sqlite;

pub use avfs_types::clock::Timestamp;
use avfs_types::ids::BatchItem;
pub use error::BackendError;
pub use record::{
    ApplicationRecord, ApprovalRecord, ApprovalState, AuditRecord, BatchRecord, BlobRecord, CheckpointRecord,
    Codec, Extent, ForkRecord, Life, LostCommit, MemoRecord, ObjectKind, RecordingRecord, Rollback,
    RunRecord, RunState, Usage, VersionRecord,
};

use avfs_types::ids::{
    ApprovalPrefix, BatchId, BatchPrefix, BlobId, CheckpointName, ForkName, MemoKey, PartDigest,
    RecordingName, RequestDigest, RunId, RunPrefix, TreeId, VersionId,
};

pub(crate) type Result<T> = std::result::Result<T, BackendError>;

/// When a committed transaction must have reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before the commit returns.
    Synced,
    /// With the next synced commit, or when the write-ahead log is checkpointed into the file. Until then it
    /// survives the end of every process, but not a power loss: for objects that nothing refers to yet, and for
    /// records without a version.
    Deferred,
    /// Like [`Durability::Deferred`], for small commits that many processes make at once: the log is checkpointed only
    /// when it is very long, since an attempt waits for the disk and rarely succeeds beside other writers.
    Grouped,
}

/// The storage of a vault, shared by threads.
pub trait Backend: Send + Sync {
    /// A consistent view. Do not hold it while writing files to disk: it keeps the write-ahead log growing.
    fn read(&self) -> Result<Box<dyn Reader + '_>>;
    /// Like [`Backend::read`], without mapping the store into memory: for callers that may read much of it and must
    /// keep their memory use low.
    fn read_unmapped(&self) -> Result<Box<dyn Reader + '_>> {
        self.read()
    }
    /// The only writer of the vault until it is committed or dropped (which rolls it back).
    fn write(&self) -> Result<Box<dyn Writer + '_>>;
    /// Prevents sweeps while the guard lives: for work that adds or reads objects over several transactions.
    fn pin(&self) -> Result<Guard>;
    /// Excludes every pin; held by the sweep.
    fn sweep_guard(&self) -> Result<Guard>;
    /// Returns unused space to the file system, in steps, reporting how many bytes remain.
    fn shrink(&self, progress: &dyn Fn(u64)) -> Result<()>;
    /// Waits until everything committed so far, by any process, is on the disk.
    fn flush(&self) -> Result<()>;
    /// Checkpoints the whole write-ahead log into the vault file, so that the file is complete without it.
    fn settle(&self) -> Result<()>;
    /// The format of the file; `None` for a store without a file.
    fn format(&self) -> Option<i64> {
        None
    }
    /// The commits missing when the store was opened because it is an older copy of itself.
    fn older_copy(&self) -> Option<&Rollback> {
        None
    }
    /// Fails if the store can never be written, as far as that is known without trying.
    fn check_writable(&self) -> Result<()> {
        Ok(())
    }
    /// Fails if the disk has too little space for the changes of a run.
    fn check_room(&self) -> Result<()> {
        Ok(())
    }
    /// The space on a disk that is so full that changes must be made in small batches, with [`Backend::settle`] after
    /// each. `None` on other disks.
    fn shortage(&self) -> Option<Shortage> {
        None
    }
    /// Does the preparatory work for the commit of a run in advance, while the process is idle.
    fn make_ready(&self) -> Result<()> {
        Ok(())
    }
    /// Fails if the data read may be a mix of old and new, so that apparent damage may not be real.
    fn check_steady(&self) -> Result<()> {
        Ok(())
    }
    /// The result of the store's own integrity check: one line for each problem.
    fn integrity(&self) -> Result<Vec<String>>;
}

/// The space on a nearly full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Free bytes.
    pub free_bytes: u64,
    /// The bytes that the last commit of this process added to the write-ahead log.
    pub logged_bytes: u64,
}

/// The number of rows for the next batch of changes, after one that changed `rows`: twice as many, but on a nearly full
/// disk no more than half of the free space can take, judged by the last batch.
pub(crate) fn next_rows(backend: &dyn Backend, rows: usize, rows_max: usize) -> usize {
    let next = rows.saturating_mul(2).min(rows_max);
    let Some(Shortage { free_bytes, logged_bytes }) = backend.shortage() else { return next };
    let fitting = (free_bytes / 2).saturating_mul(rows as u64) / logged_bytes.max(1);
    usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, next)
}

/// Holds locks until it is dropped; empty if no lock is needed.
pub struct Guard(
    #[expect(dead_code, reason = "held for its Drop")] pub(crate) Vec<avfs_hostfs::lock::FileLock>,
);

/// A consistent view of the store: later commits are not visible in it.
pub trait Reader {
    /// A metadata value of the vault, such as its id; see [`key`](crate::key).
    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>>;

    /// `None` if the blob does not exist. The data is returned as stored and not verified.
    fn blob(&self, id: &BlobId) -> Result<Option<BlobRecord>>;
    /// Whether the blob exists.
    fn has_blob(&self, id: &BlobId) -> Result<bool>;
    /// The encoded page; `None` if the page does not exist. The data is not verified.
    fn tree(&self, id: &TreeId) -> Result<Option<Vec<u8>>>;
    /// Whether the page exists.
    fn has_tree(&self, id: &TreeId) -> Result<bool>;

    /// `None` if the version does not exist.
    fn version(&self, id: &VersionId) -> Result<Option<VersionRecord>>;
    /// At most `limit` versions whose digest begins with these hex digits.
    fn versions_with_prefix(&self, hex: &str, limit: usize) -> Result<Vec<VersionId>>;
    /// The version created by a run; `None` if the run created no version.
    fn version_of_run(&self, run: &str) -> Result<Option<VersionId>>;
    /// Every version, oldest first.
    fn version_ids(&self) -> Result<Vec<VersionId>>;
    /// The number of versions whose content is kept.
    fn versions_kept(&self) -> Result<u64>;

    /// `None` if the fork does not exist.
    fn fork(&self, name: &ForkName) -> Result<Option<ForkRecord>>;
    /// Every fork, oldest first.
    fn forks(&self) -> Result<Vec<ForkRecord>>;
    /// Forks that expire at or before this time.
    fn forks_expired(&self, now: avfs_types::clock::Timestamp) -> Result<Vec<ForkRecord>>;
    /// `None` if the checkpoint does not exist.
    fn checkpoint(&self, fork: &ForkName, name: &CheckpointName) -> Result<Option<CheckpointRecord>>;
    /// Every checkpoint, oldest first.
    fn checkpoints(&self) -> Result<Vec<CheckpointRecord>>;
    /// Like [`Reader::checkpoints`], for one fork.
    fn checkpoints_of_fork(&self, fork: &ForkName) -> Result<Vec<CheckpointRecord>>;

    /// `None` if the run is not in the journal.
    fn run(&self, id: &RunId) -> Result<Option<RunRecord>>;
    /// At most `limit` runs whose id begins with these digits, ordered by id.
    fn runs_with_prefix(&self, prefix: &RunPrefix, limit: usize) -> Result<Vec<RunRecord>>;
    /// Runs with a sequence number below `before`, newest first.
    fn runs(&self, before: i64, limit: usize) -> Result<Vec<RunRecord>>;
    /// Like [`Reader::runs`], for one fork.
    fn runs_of_fork(&self, fork: &ForkName, before: i64, limit: usize) -> Result<Vec<RunRecord>>;

    /// Runs with a sequence number above `after`, oldest first.
    fn runs_after(&self, after: i64, limit: usize) -> Result<Vec<RunRecord>>;
    /// Like [`Reader::runs_after`], for one fork.
    fn runs_of_fork_after(&self, fork: &ForkName, after: i64, limit: usize) -> Result<Vec<RunRecord>>;

    /// The applications of a fork's changes to the bound directory, newest first.
    fn applications_of_fork(&self, fork: &ForkName) -> Result<Vec<ApplicationRecord>>;
    /// Applications that expire after this time, newest first.
    fn applications_after(&self, at: Timestamp) -> Result<Vec<ApplicationRecord>>;
    /// Every recording, oldest first.
    fn recordings(&self) -> Result<Vec<RecordingRecord>>;

    /// At most `limit` approvals whose id begins with these digits, ordered by id.
    fn approvals_with_prefix(&self, prefix: &ApprovalPrefix, limit: usize) -> Result<Vec<ApprovalRecord>>;
    /// Approvals of one request, newest first.
    fn approvals_of(&self, digest: &RequestDigest) -> Result<Vec<ApprovalRecord>>;
    /// Approvals with a sequence number below `before`, newest first.
    fn approvals(&self, before: i64, limit: usize) -> Result<Vec<ApprovalRecord>>;

    /// At most `limit` batches whose id begins with these digits.
    fn batches_with_prefix(&self, prefix: &BatchPrefix, limit: usize) -> Result<Vec<BatchRecord>>;
    /// Batches, newest first.
    fn batches(&self, limit: usize) -> Result<Vec<BatchRecord>>;
    /// The runs of a batch's items after the given item and sequence number, ordered by item number and then by
    /// journal order.
    fn batch_runs(&self, batch: &BatchId, after: (u64, i64), limit: usize) -> Result<Vec<(u64, RunRecord)>>;
    /// Runs of items that are not in the journal, as stored: batch, item, run.
    fn batch_runs_astray(&self, limit: usize) -> Result<Vec<(String, i64, String)>>;
    /// `None` if no result is cached under this key.
    fn memo(&self, key: &MemoKey) -> Result<Option<MemoRecord>>;
    /// The cached result of this run.
    fn memo_of_run(&self, run: &RunId) -> Result<Option<MemoRecord>>;
    /// Results of one command, newest first.
    fn memos_of_command(&self, command: &PartDigest, limit: usize) -> Result<Vec<MemoRecord>>;
    /// Results with a sequence number below `before`, newest first.
    fn memos(&self, before: i64, limit: usize) -> Result<Vec<MemoRecord>>;

    /// Rows of the audit log with a sequence number above `after`, in order.
    fn audit_after(&self, after: i64, limit: usize) -> Result<Vec<AuditRecord>>;

    /// Rows of the audit log with a sequence number below `before`, newest first.
    fn audit_before(&self, before: i64, limit: usize) -> Result<Vec<AuditRecord>>;

    /// Counts the contents of the store; takes time in proportion to its size.
    fn usage(&self) -> Result<Usage>;
    /// The size of the store; cheap.
    fn file_bytes(&self) -> Result<u64>;
    /// Bytes in use; cheap enough to query before every commit.
    fn bytes_used(&self) -> Result<u64>;
    /// Objects with a row number below `before`, newest first: parents come before their children.
    fn objects_before(&self, kind: ObjectKind, before: i64, limit: usize) -> Result<Vec<(i64, [u8; 32])>>;
}

/// A transaction. Dropping it without a commit rolls it back.
pub trait Writer {
    /// The view of this transaction, including its own changes.
    fn view(&self) -> &dyn Reader;

    /// Sets a metadata value of the vault.
    fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()>;

    /// Stores blobs, in the order that packs them best, but chunk lists after the blobs they refer to. A different
    /// row under the same digest is replaced: it is either damaged or the same content in another encoding.
    fn put_blobs(&mut self, blobs: &[BlobRecord]) -> Result<()>;
    /// Stores tree pages in the same way; everything they refer to must already be stored, by this call or an
    /// earlier one.
    fn put_trees(&mut self, trees: &[(TreeId, Vec<u8>)]) -> Result<()>;
    /// Deletes objects by their digests.
    fn delete_objects(&mut self, objects: &[(ObjectKind, [u8; 32])]) -> Result<()>;

    /// Adds a version; the objects that it refers to must already be stored.
    fn put_version(&mut self, version: &VersionRecord) -> Result<()>;
    /// Marks the content of a version as pruned.
    fn mark_pruned(&mut self, id: &VersionId, at: avfs_types::clock::Timestamp) -> Result<()>;
    /// Deletes the record of a version.
    fn delete_version(&mut self, id: &VersionId) -> Result<()>;

    /// Adds a fork whose name is not in use.
    fn insert_fork(&mut self, fork: &ForkRecord) -> Result<()>;
    /// Moves a fork's head from one version to another; returns false if the head was not at `from`.
    fn move_fork(&mut self, name: &ForkName, from: &VersionId, to: &VersionId) -> Result<bool>;
    /// Deletes a fork; its versions stay until a sweep.
    fn delete_fork(&mut self, name: &ForkName) -> Result<()>;

    /// Adds a checkpoint whose name is not in use on its fork.
    fn insert_checkpoint(&mut self, checkpoint: &CheckpointRecord) -> Result<()>;
    /// Deletes a checkpoint; its version stays until a sweep.
    fn delete_checkpoint(&mut self, fork: &ForkName, name: &CheckpointName) -> Result<()>;

    /// Stores a run. A run with the same id is replaced and keeps its position in the journal.
    fn put_run(&mut self, run: &RunRecord) -> Result<()>;

    /// Stores an approval. An approval with the same id is replaced and keeps its position.
    fn put_approval(&mut self, approval: &ApprovalRecord) -> Result<()>;

    /// Stores a batch. A batch with the same id is replaced.
    fn put_batch(&mut self, batch: &BatchRecord) -> Result<()>;
    /// Records that a run was made for an item.
    fn put_batch_run(&mut self, item: &BatchItem, run: &RunId) -> Result<()>;
    /// Stores an application, as a new one if its number is 0; returns its number.
    fn put_application(&mut self, application: &ApplicationRecord) -> Result<i64>;
    /// Stores a recording. A recording with the same name is replaced and keeps its position.
    fn put_recording(&mut self, recording: &RecordingRecord) -> Result<()>;
    /// Deletes a recording; the runs stay.
    fn delete_recording(&mut self, name: &RecordingName) -> Result<()>;
    /// Stores a result, replacing any other with the same key.
    fn put_memo(&mut self, memo: &MemoRecord) -> Result<()>;
    /// Deletes a result.
    fn delete_memo(&mut self, key: &MemoKey) -> Result<()>;

    /// Appends a row to the audit log. The caller chains its digest to the last row.
    fn append_audit(&mut self, record: &AuditRecord) -> Result<()>;

    /// Makes all changes visible at once, or none of them.
    fn commit(self: Box<Self>, durability: Durability) -> Result<()>;
}
