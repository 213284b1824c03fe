//! The storage backend: keeps objects, references and the audit log, in transactions.
//!
//! It knows rows and digests, not what they mean: encodings, trees and history belong to the vault.
//! Three of them: [`sqlite`] (the product), [`memory`] (the model tests compare with) and [`fault`]
//! (another one that fails on demand).

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
    /// With the next synced commit, or when the log is moved into the file. Until then it survives the end of every
    /// process, but not the loss of power: for objects that nothing refers to yet, and for records without a version.
    Deferred,
}

/// A place where a vault lives, shared by threads.
pub trait Backend: Send + Sync {
    /// A consistent view; it must not be held while files are written out, since it keeps the log growing.
    fn read(&self) -> Result<Box<dyn Reader + '_>>;
    /// As [`Backend::read`], without mapping the store into memory: for who may read much of it and has to stay small.
    fn read_unmapped(&self) -> Result<Box<dyn Reader + '_>> {
        self.read()
    }
    /// The only writer of the vault until it is committed or dropped (which undoes it).
    fn write(&self) -> Result<Box<dyn Writer + '_>>;
    /// While the guard lives nothing is swept: for work that adds or reads objects over several transactions.
    fn pin(&self) -> Result<Guard>;
    /// Excludes every pin: for the sweep.
    fn sweep_guard(&self) -> Result<Guard>;
    /// Gives unused space back to the file system, in steps, telling how many bytes are still to go.
    fn shrink(&self, progress: &dyn Fn(u64)) -> Result<()>;
    /// Waits until everything committed so far, by any process, is on the disk.
    fn flush(&self) -> Result<()>;
    /// Moves everything from the log into the vault file, so that it is whole by itself.
    fn settle(&self) -> Result<()>;
    /// The format of its file; nothing if it has none.
    fn format(&self) -> Option<i64> {
        None
    }
    /// What it lacked when it was opened, because it is an older copy of itself.
    fn older_copy(&self) -> Option<&Rollback> {
        None
    }
    /// Fails if nothing can ever be written to it, as far as that is known without trying.
    fn check_writable(&self) -> Result<()> {
        Ok(())
    }
    /// Does beforehand, in a moment with nothing else to do, what the commit of a run would do first.
    fn make_ready(&self) -> Result<()> {
        Ok(())
    }
    /// Fails if what was read may be half old and half new, so that what looks like damage may be none.
    fn check_steady(&self) -> Result<()> {
        Ok(())
    }
    /// The store's own view of its health: one line for each problem.
    fn integrity(&self) -> Result<Vec<String>>;
}

/// Holds locks until it is dropped; none where nothing has to be held.
pub struct Guard(
    #[expect(dead_code, reason = "held for its Drop")] pub(crate) Vec<avfs_hostfs::lock::FileLock>,
);

/// A consistent view of the store: later commits do not show in it.
pub trait Reader {
    /// A value of the vault's own, such as its id; see [`key`](crate::key).
    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>>;

    /// `None` if there is no such blob. The data is as stored and not checked.
    fn blob(&self, id: &BlobId) -> Result<Option<BlobRecord>>;
    /// Whether there is such a blob.
    fn has_blob(&self, id: &BlobId) -> Result<bool>;
    /// The encoded page; `None` if there is no such page. The data is not checked.
    fn tree(&self, id: &TreeId) -> Result<Option<Vec<u8>>>;
    /// Whether there is such a page.
    fn has_tree(&self, id: &TreeId) -> Result<bool>;

    /// `None` if there is no such version.
    fn version(&self, id: &VersionId) -> Result<Option<VersionRecord>>;
    /// Versions whose digest begins with these hex digits, at most `limit` of them.
    fn versions_with_prefix(&self, hex: &str, limit: usize) -> Result<Vec<VersionId>>;
    /// The version that a run made; `None` if it made none.
    fn version_of_run(&self, run: &str) -> Result<Option<VersionId>>;
    /// Every version, oldest first.
    fn version_ids(&self) -> Result<Vec<VersionId>>;
    /// Versions whose content is kept.
    fn versions_kept(&self) -> Result<u64>;

    /// `None` if there is no such fork.
    fn fork(&self, name: &ForkName) -> Result<Option<ForkRecord>>;
    /// Every fork, oldest first.
    fn forks(&self) -> Result<Vec<ForkRecord>>;
    /// Forks that end at this time or before it.
    fn forks_expired(&self, now: avfs_types::clock::Timestamp) -> Result<Vec<ForkRecord>>;
    /// `None` if there is no such checkpoint.
    fn checkpoint(&self, fork: &ForkName, name: &CheckpointName) -> Result<Option<CheckpointRecord>>;
    /// Every checkpoint, oldest first.
    fn checkpoints(&self) -> Result<Vec<CheckpointRecord>>;
    /// As [`Reader::checkpoints`], those of one fork.
    fn checkpoints_of_fork(&self, fork: &ForkName) -> Result<Vec<CheckpointRecord>>;

    /// `None` if the journal has no such run.
    fn run(&self, id: &RunId) -> Result<Option<RunRecord>>;
    /// Runs whose id begins with these digits, at most `limit` of them, by id.
    fn runs_with_prefix(&self, prefix: &RunPrefix, limit: usize) -> Result<Vec<RunRecord>>;
    /// Runs with a sequence number below `before`, newest first.
    fn runs(&self, before: i64, limit: usize) -> Result<Vec<RunRecord>>;
    /// As [`Reader::runs`], those of one fork.
    fn runs_of_fork(&self, fork: &ForkName, before: i64, limit: usize) -> Result<Vec<RunRecord>>;

    /// Runs with a sequence number above `after`, oldest first.
    fn runs_after(&self, after: i64, limit: usize) -> Result<Vec<RunRecord>>;
    /// As [`Reader::runs_after`], those of one fork.
    fn runs_of_fork_after(&self, fork: &ForkName, after: i64, limit: usize) -> Result<Vec<RunRecord>>;

    /// What was written to the bound directory of a fork's changes, newest first.
    fn applications_of_fork(&self, fork: &ForkName) -> Result<Vec<ApplicationRecord>>;
    /// Applications that expire after a moment, newest first.
    fn applications_after(&self, at: Timestamp) -> Result<Vec<ApplicationRecord>>;
    /// Every recording, oldest first.
    fn recordings(&self) -> Result<Vec<RecordingRecord>>;

    /// Approvals whose id begins with these digits, at most `limit` of them, by id.
    fn approvals_with_prefix(&self, prefix: &ApprovalPrefix, limit: usize) -> Result<Vec<ApprovalRecord>>;
    /// Approvals of one request, newest first.
    fn approvals_of(&self, digest: &RequestDigest) -> Result<Vec<ApprovalRecord>>;
    /// Approvals with a sequence number below `before`, newest first.
    fn approvals(&self, before: i64, limit: usize) -> Result<Vec<ApprovalRecord>>;

    /// Batches whose id begins with these digits, at most `limit` of them.
    fn batches_with_prefix(&self, prefix: &BatchPrefix, limit: usize) -> Result<Vec<BatchRecord>>;
    /// Batches, newest first.
    fn batches(&self, limit: usize) -> Result<Vec<BatchRecord>>;
    /// The runs of a batch's items, by the item's number and then in the order of the journal: those behind an item and
    /// a sequence number.
    fn batch_runs(&self, batch: &BatchId, after: (u64, i64), limit: usize) -> Result<Vec<(u64, RunRecord)>>;
    /// Runs of items that are not in the journal, each as it is written: batch, item, run.
    fn batch_runs_astray(&self, limit: usize) -> Result<Vec<(String, i64, String)>>;
    /// `None` if no result is remembered under this key.
    fn memo(&self, key: &MemoKey) -> Result<Option<MemoRecord>>;
    /// What is remembered of this run.
    fn memo_of_run(&self, run: &RunId) -> Result<Option<MemoRecord>>;
    /// Results of one command, newest first.
    fn memos_of_command(&self, command: &PartDigest, limit: usize) -> Result<Vec<MemoRecord>>;
    /// Results with a sequence number below `before`, newest first.
    fn memos(&self, before: i64, limit: usize) -> Result<Vec<MemoRecord>>;

    /// Rows of the audit log with a sequence number above `after`, in order.
    fn audit_after(&self, after: i64, limit: usize) -> Result<Vec<AuditRecord>>;

    /// Rows of the audit log with a sequence number below `before`, newest first.
    fn audit_before(&self, before: i64, limit: usize) -> Result<Vec<AuditRecord>>;

    /// What the store holds, counted; takes time in proportion to it.
    fn usage(&self) -> Result<Usage>;
    /// Bytes in use, cheap enough to ask before every commit.
    fn bytes_used(&self) -> Result<u64>;
    /// Objects with a row number below `before`, newest first: children are always older than parents.
    fn objects_before(&self, kind: ObjectKind, before: i64, limit: usize) -> Result<Vec<(i64, [u8; 32])>>;
}

/// A transaction. Dropped without a commit, it undoes everything.
pub trait Writer {
    /// What the transaction sees, its own changes included.
    fn view(&self) -> &dyn Reader;

    /// Sets a value of the vault's own.
    fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()>;

    /// Keeps blobs, in whatever order stores them best, but lists behind what they refer to. What is there under the
    /// digest of one and is not the same gives way: it is damaged, or the same content in another form.
    fn put_blobs(&mut self, blobs: &[BlobRecord]) -> Result<()>;
    /// Keeps tree pages in the same way; everything they refer to was kept before, in this call or another.
    fn put_trees(&mut self, trees: &[(TreeId, Vec<u8>)]) -> Result<()>;
    /// Removes objects by their row numbers, see [`Reader::objects_before`].
    fn delete_objects(&mut self, kind: ObjectKind, rows: &[i64]) -> Result<()>;

    /// Adds a version; the objects that it refers to were kept before.
    fn put_version(&mut self, version: &VersionRecord) -> Result<()>;
    /// Marks the content of a version as given up.
    fn mark_pruned(&mut self, id: &VersionId, at: avfs_types::clock::Timestamp) -> Result<()>;
    /// Removes the record of a version.
    fn delete_version(&mut self, id: &VersionId) -> Result<()>;

    /// Adds a fork whose name is free.
    fn insert_fork(&mut self, fork: &ForkRecord) -> Result<()>;
    /// Moves a fork's head from one version to another; false if it was not where it was expected.
    fn move_fork(&mut self, name: &ForkName, from: &VersionId, to: &VersionId) -> Result<bool>;
    /// Removes a fork; its versions stay until a sweep.
    fn delete_fork(&mut self, name: &ForkName) -> Result<()>;

    /// Adds a checkpoint whose name is free on its fork.
    fn insert_checkpoint(&mut self, checkpoint: &CheckpointRecord) -> Result<()>;
    /// Removes a checkpoint; its version stays until a sweep.
    fn delete_checkpoint(&mut self, fork: &ForkName, name: &CheckpointName) -> Result<()>;

    /// Keeps a run; one with the same id is replaced and keeps its place in the journal.
    fn put_run(&mut self, run: &RunRecord) -> Result<()>;

    /// Keeps an approval; one with the same id is replaced and keeps its place.
    fn put_approval(&mut self, approval: &ApprovalRecord) -> Result<()>;

    /// Keeps a batch; one with the same id is replaced.
    fn put_batch(&mut self, batch: &BatchRecord) -> Result<()>;
    /// Notes that a run was made for an item.
    fn put_batch_run(&mut self, item: &BatchItem, run: &RunId) -> Result<()>;
    /// Keeps an application, a new one where its number is 0; gives its number.
    fn put_application(&mut self, application: &ApplicationRecord) -> Result<i64>;
    /// Keeps a recording; one with the same name is replaced and keeps its place.
    fn put_recording(&mut self, recording: &RecordingRecord) -> Result<()>;
    /// Removes a recording; the runs stay.
    fn delete_recording(&mut self, name: &RecordingName) -> Result<()>;
    /// Keeps a result; another one with the same key gives way.
    fn put_memo(&mut self, memo: &MemoRecord) -> Result<()>;
    /// Forgets a result.
    fn delete_memo(&mut self, key: &MemoKey) -> Result<()>;

    /// Adds a row to the audit log. The caller chains its digest to the last row.
    fn append_audit(&mut self, record: &AuditRecord) -> Result<()>;

    /// Makes everything visible at once, or nothing.
    fn commit(self: Box<Self>, durability: Durability) -> Result<()>;
}
