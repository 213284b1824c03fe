//! A backend that fails on demand, to show that a failed write leaves the vault unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    BatchItem, CheckpointName, ForkName, MemoKey, RecordingName, RunId, TreeId, VersionId,
};

use super::{Backend, Durability, Guard, Reader, Result, Shortage, Writer};
use crate::backend::{
    ApplicationRecord, ApprovalRecord, AuditRecord, BackendError, BatchRecord, BlobRecord, CheckpointRecord,
    ForkRecord, MemoRecord, ObjectKind, RecordingRecord, RunRecord, VersionRecord,
};

/// Counts down with every write; the write that reaches zero fails, later writes succeed again.
#[derive(Clone, Debug)]
pub struct Fuse(Arc<AtomicI64>);

impl Fuse {
    /// A fuse that never blows.
    #[must_use]
    pub fn off() -> Self {
        Self(Arc::new(AtomicI64::new(-1)))
    }

    /// Allows `writes` writes and fails the next one.
    pub fn arm(&self, writes: u32) {
        self.0.store(i64::from(writes), Ordering::SeqCst);
    }

    /// True if it was armed and has not blown.
    #[must_use]
    pub fn disarm(&self) -> bool {
        self.0.swap(-1, Ordering::SeqCst) >= 0
    }

    fn burn(&self, operation: &'static str) -> Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n >= 0).then_some(n - 1));
        if left == Ok(0) { Err(BackendError::Injected { operation }) } else { Ok(()) }
    }
}

/// A backend that forwards every call to another one until its fuse blows.
pub struct FaultBackend<B> {
    inner: B,
    fuse: Fuse,
    shortage: Option<Shortage>,
}

impl<B: Backend> FaultBackend<B> {
    /// Wraps `inner`; calls that write fail when `fuse` blows.
    pub fn new(inner: B, fuse: Fuse) -> Self {
        Self { inner, fuse, shortage: None }
    }

    /// Claims that its disk is nearly full.
    #[must_use]
    pub fn short_of_space(self, shortage: Shortage) -> Self {
        Self { shortage: Some(shortage), ..self }
    }
}

impl<B: Backend> Backend for FaultBackend<B> {
    fn read(&self) -> Result<Box<dyn Reader + '_>> {
        self.inner.read()
    }

    fn read_unmapped(&self) -> Result<Box<dyn Reader + '_>> {
        self.inner.read_unmapped()
    }

    fn write(&self) -> Result<Box<dyn Writer + '_>> {
        self.fuse.burn("begin")?;
        Ok(Box::new(FaultWriter { inner: self.inner.write()?, fuse: self.fuse.clone() }))
    }

    fn pin(&self) -> Result<Guard> {
        self.inner.pin()
    }

    fn sweep_guard(&self) -> Result<Guard> {
        self.inner.sweep_guard()
    }

    fn shrink(&self, progress: &dyn Fn(u64)) -> Result<()> {
        self.inner.shrink(progress)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn format(&self) -> Option<i64> {
        self.inner.format()
    }

    fn check_writable(&self) -> Result<()> {
        self.inner.check_writable()
    }

    fn check_room(&self) -> Result<()> {
        self.inner.check_room()
    }

    fn shortage(&self) -> Option<Shortage> {
        self.shortage.or_else(|| self.inner.shortage())
    }

    fn make_ready(&self) -> Result<()> {
        self.inner.make_ready()
    }

    fn check_steady(&self) -> Result<()> {
        self.inner.check_steady()
    }

    fn integrity(&self) -> Result<Vec<String>> {
        self.inner.integrity()
    }
}

struct FaultWriter<'a> {
    inner: Box<dyn Writer + 'a>,
    fuse: Fuse,
}

impl Writer for FaultWriter<'_> {
    fn view(&self) -> &dyn Reader {
        self.inner.view()
    }

    fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.fuse.burn("set_meta")?;
        self.inner.set_meta(key, value)
    }

    fn put_blobs(&mut self, blobs: &[BlobRecord]) -> Result<()> {
        for blob in blobs {
            self.fuse.burn("put_blobs")?;
            self.inner.put_blobs(std::slice::from_ref(blob))?;
        }
        Ok(())
    }

    fn put_trees(&mut self, trees: &[(TreeId, Vec<u8>)]) -> Result<()> {
        for tree in trees {
            self.fuse.burn("put_trees")?;
            self.inner.put_trees(std::slice::from_ref(tree))?;
        }
        Ok(())
    }

    fn delete_objects(&mut self, objects: &[(ObjectKind, [u8; 32])]) -> Result<()> {
        self.fuse.burn("delete_objects")?;
        self.inner.delete_objects(objects)
    }

    fn put_version(&mut self, version: &VersionRecord) -> Result<()> {
        self.fuse.burn("put_version")?;
        self.inner.put_version(version)
    }

    fn mark_pruned(&mut self, id: &VersionId, at: Timestamp) -> Result<()> {
        self.fuse.burn("mark_pruned")?;
        self.inner.mark_pruned(id, at)
    }

    fn delete_version(&mut self, id: &VersionId) -> Result<()> {
        self.fuse.burn("delete_version")?;
        self.inner.delete_version(id)
    }

    fn insert_fork(&mut self, fork: &ForkRecord) -> Result<()> {
        self.fuse.burn("insert_fork")?;
        self.inner.insert_fork(fork)
    }

    fn move_fork(&mut self, name: &ForkName, from: &VersionId, to: &VersionId) -> Result<bool> {
        self.fuse.burn("move_fork")?;
        self.inner.move_fork(name, from, to)
    }

    fn delete_fork(&mut self, name: &ForkName) -> Result<()> {
        self.fuse.burn("delete_fork")?;
        self.inner.delete_fork(name)
    }

    fn insert_checkpoint(&mut self, checkpoint: &CheckpointRecord) -> Result<()> {
        self.fuse.burn("insert_checkpoint")?;
        self.inner.insert_checkpoint(checkpoint)
    }

    fn delete_checkpoint(&mut self, fork: &ForkName, name: &CheckpointName) -> Result<()> {
        self.fuse.burn("delete_checkpoint")?;
        self.inner.delete_checkpoint(fork, name)
    }

    fn put_run(&mut self, run: &RunRecord) -> Result<()> {
        self.fuse.burn("put_run")?;
        self.inner.put_run(run)
    }

    fn put_approval(&mut self, approval: &ApprovalRecord) -> Result<()> {
        self.fuse.burn("put_approval")?;
        self.inner.put_approval(approval)
    }

    fn put_batch(&mut self, batch: &BatchRecord) -> Result<()> {
        self.fuse.burn("put_batch")?;
        self.inner.put_batch(batch)
    }

    fn put_batch_run(&mut self, item: &BatchItem, run: &RunId) -> Result<()> {
        self.fuse.burn("put_batch_run")?;
        self.inner.put_batch_run(item, run)
    }

    fn put_application(&mut self, application: &ApplicationRecord) -> Result<i64> {
        self.fuse.burn("put_application")?;
        self.inner.put_application(application)
    }

    fn put_recording(&mut self, recording: &RecordingRecord) -> Result<()> {
        self.fuse.burn("put_recording")?;
        self.inner.put_recording(recording)
    }

    fn delete_recording(&mut self, name: &RecordingName) -> Result<()> {
        self.fuse.burn("delete_recording")?;
        self.inner.delete_recording(name)
    }

    fn put_memo(&mut self, memo: &MemoRecord) -> Result<()> {
        self.fuse.burn("put_memo")?;
        self.inner.put_memo(memo)
    }

    fn delete_memo(&mut self, key: &MemoKey) -> Result<()> {
        self.fuse.burn("delete_memo")?;
        self.inner.delete_memo(key)
    }

    fn append_audit(&mut self, record: &AuditRecord) -> Result<()> {
        self.fuse.burn("append_audit")?;
        self.inner.append_audit(record)
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        self.fuse.burn("commit")?;
        self.inner.commit(durability)
    }
}
