//! A vault in memory: the model that tests compare the real store with. A transaction works on a copy.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    ApprovalPrefix, BatchId, BatchItem, BatchPrefix, BlobId, CheckpointName, ForkName, MemoKey, PartDigest,
    RecordingName, RequestDigest, RunId, RunPrefix, TreeId, VersionId,
};

use super::{Backend, Durability, Guard, Reader, Result, Writer};
use crate::backend::{
    ApplicationRecord, ApprovalRecord, AuditRecord, BatchRecord, BlobRecord, CheckpointRecord, Codec,
    ForkRecord, Life, MemoRecord, ObjectKind, RecordingRecord, RunRecord, Usage, VersionRecord,
};

/// A store that exists only in memory. For tests, and as a model of [`sqlite`](super::sqlite).
#[derive(Default)]
pub struct MemoryBackend {
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    last_row: i64,
    meta: BTreeMap<String, Vec<u8>>,
    blobs: BTreeMap<BlobId, (i64, BlobRecord)>,
    trees: BTreeMap<TreeId, (i64, Vec<u8>)>,
    versions: Vec<VersionRecord>,
    forks: BTreeMap<ForkName, ForkRecord>,
    checkpoints: Vec<CheckpointRecord>,
    audit: Vec<AuditRecord>,
    /// Ordered by sequence number, starting at 1.
    runs: Vec<RunRecord>,
    approvals: Vec<ApprovalRecord>,
    recordings: Vec<RecordingRecord>,
    applications: Vec<ApplicationRecord>,
    batches: Vec<BatchRecord>,
    batch_runs: Vec<(BatchItem, RunId)>,
    memos: Vec<MemoRecord>,
    /// Sequence numbers of results are never reused.
    last_memo: i64,
}

impl MemoryBackend {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryBackend {
    fn read(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.lock().clone()))
    }

    fn write(&self) -> Result<Box<dyn Writer + '_>> {
        let shared = self.lock();
        Ok(Box::new(MemoryWriter { work: shared.clone(), shared }))
    }

    fn pin(&self) -> Result<Guard> {
        Ok(Guard(Vec::new()))
    }

    fn sweep_guard(&self) -> Result<Guard> {
        Ok(Guard(Vec::new()))
    }

    fn shrink(&self, progress: &dyn Fn(u64)) -> Result<()> {
        progress(0);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn integrity(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl Reader for State {
    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.meta.get(key).cloned())
    }

    fn blob(&self, id: &BlobId) -> Result<Option<BlobRecord>> {
        Ok(self.blobs.get(id).map(|(_, blob)| blob.clone()))
    }

    fn has_blob(&self, id: &BlobId) -> Result<bool> {
        Ok(self.blobs.contains_key(id))
    }

    fn tree(&self, id: &TreeId) -> Result<Option<Vec<u8>>> {
        Ok(self.trees.get(id).map(|(_, data)| data.clone()))
    }

    fn has_tree(&self, id: &TreeId) -> Result<bool> {
        Ok(self.trees.contains_key(id))
    }

    fn version(&self, id: &VersionId) -> Result<Option<VersionRecord>> {
        Ok(self.versions.iter().find(|version| version.id == *id).cloned())
    }

    fn versions_with_prefix(&self, hex: &str, limit: usize) -> Result<Vec<VersionId>> {
        let matching =
            self.versions.iter().map(|version| version.id).filter(|id| id.to_hex().starts_with(hex));
        Ok(matching.take(limit).collect())
    }

    fn version_of_run(&self, run: &str) -> Result<Option<VersionId>> {
        let newest = self.versions.iter().rev().find(|version| version.run.as_deref() == Some(run));
        Ok(newest.map(|version| version.id))
    }

    fn version_ids(&self) -> Result<Vec<VersionId>> {
        Ok(self.versions.iter().map(|version| version.id).collect())
    }

    fn versions_kept(&self) -> Result<u64> {
        Ok(self.versions.iter().filter(|version| version.pruned_at.is_none()).count() as u64)
    }

    fn fork(&self, name: &ForkName) -> Result<Option<ForkRecord>> {
        Ok(self.forks.get(name).cloned())
    }

    fn forks(&self) -> Result<Vec<ForkRecord>> {
        let mut forks: Vec<_> = self.forks.values().cloned().collect();
        forks.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
        Ok(forks)
    }

    fn forks_expired(&self, now: Timestamp) -> Result<Vec<ForkRecord>> {
        let over = |fork: &ForkRecord| match fork.life {
            Life::Persistent => false,
            Life::Ephemeral { expires_at } => expires_at <= now,
        };
        Ok(self.forks.values().filter(|fork| over(fork)).cloned().collect())
    }

    fn checkpoint(&self, fork: &ForkName, name: &CheckpointName) -> Result<Option<CheckpointRecord>> {
        Ok(self.checkpoints.iter().find(|c| c.fork == *fork && c.name == *name).cloned())
    }

    fn checkpoints(&self) -> Result<Vec<CheckpointRecord>> {
        Ok(self.checkpoints.clone())
    }

    fn checkpoints_of_fork(&self, fork: &ForkName) -> Result<Vec<CheckpointRecord>> {
        Ok(self.checkpoints.iter().filter(|checkpoint| checkpoint.fork == *fork).cloned().collect())
    }

    fn run(&self, id: &RunId) -> Result<Option<RunRecord>> {
        Ok(self.runs.iter().find(|run| run.id == *id).cloned())
    }

    fn runs_with_prefix(&self, prefix: &RunPrefix, limit: usize) -> Result<Vec<RunRecord>> {
        let matching = self.runs.iter().filter(|run| run.id.as_str().starts_with(prefix.as_str()));
        let mut found: Vec<RunRecord> = matching.cloned().collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.truncate(limit);
        Ok(found)
    }

    fn runs(&self, before: i64, limit: usize) -> Result<Vec<RunRecord>> {
        Ok(self.runs.iter().rev().filter(|run| run.seq < before).take(limit).cloned().collect())
    }

    fn runs_of_fork(&self, fork: &ForkName, before: i64, limit: usize) -> Result<Vec<RunRecord>> {
        let of_fork = self.runs.iter().rev().filter(|run| run.seq < before && run.fork == *fork);
        Ok(of_fork.take(limit).cloned().collect())
    }

    fn runs_after(&self, after: i64, limit: usize) -> Result<Vec<RunRecord>> {
        Ok(self.runs.iter().filter(|run| run.seq > after).take(limit).cloned().collect())
    }

    fn runs_of_fork_after(&self, fork: &ForkName, after: i64, limit: usize) -> Result<Vec<RunRecord>> {
        let of_fork = self.runs.iter().filter(|run| run.seq > after && run.fork == *fork);
        Ok(of_fork.take(limit).cloned().collect())
    }

    fn applications_of_fork(&self, fork: &ForkName) -> Result<Vec<ApplicationRecord>> {
        Ok(self.applications.iter().rev().filter(|of| of.fork == *fork).cloned().collect())
    }

    fn applications_after(&self, at: Timestamp) -> Result<Vec<ApplicationRecord>> {
        Ok(self.applications.iter().rev().filter(|of| of.expires_at > at).cloned().collect())
    }

    fn recordings(&self) -> Result<Vec<RecordingRecord>> {
        Ok(self.recordings.clone())
    }

    fn approvals_with_prefix(&self, prefix: &ApprovalPrefix, limit: usize) -> Result<Vec<ApprovalRecord>> {
        let matching = self.approvals.iter().filter(|one| one.id.as_str().starts_with(prefix.as_str()));
        let mut found: Vec<ApprovalRecord> = matching.cloned().collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.truncate(limit);
        Ok(found)
    }

    fn approvals_of(&self, digest: &RequestDigest) -> Result<Vec<ApprovalRecord>> {
        Ok(self.approvals.iter().rev().filter(|one| one.request_digest == *digest).cloned().collect())
    }

    fn approvals(&self, before: i64, limit: usize) -> Result<Vec<ApprovalRecord>> {
        Ok(self.approvals.iter().rev().filter(|one| one.seq < before).take(limit).cloned().collect())
    }

    fn batches_with_prefix(&self, prefix: &BatchPrefix, limit: usize) -> Result<Vec<BatchRecord>> {
        let matching = self.batches.iter().filter(|batch| batch.id.as_str().starts_with(prefix.as_str()));
        Ok(matching.take(limit).cloned().collect())
    }

    fn batches(&self, limit: usize) -> Result<Vec<BatchRecord>> {
        Ok(self.batches.iter().rev().take(limit).cloned().collect())
    }

    fn batch_runs(&self, batch: &BatchId, after: (u64, i64), limit: usize) -> Result<Vec<(u64, RunRecord)>> {
        let of_batch = self.batch_runs.iter().filter(|(item, _)| item.batch == *batch);
        let rows = of_batch.filter_map(|(item, id)| {
            let run = self.runs.iter().find(|run| run.id == *id)?;
            Some((item.number, run.clone()))
        });
        let mut rows: Vec<(u64, RunRecord)> = rows.collect();
        rows.retain(|(number, run)| (*number, run.seq) > after);
        rows.sort_by_key(|(number, run)| (*number, run.seq));
        rows.truncate(limit);
        Ok(rows)
    }

    fn batch_runs_astray(&self, limit: usize) -> Result<Vec<(String, i64, String)>> {
        let is_there = |run: &RunId| self.runs.iter().any(|known| known.id == *run);
        let astray = self.batch_runs.iter().filter(|(_, run)| !is_there(run)).take(limit);
        let number = |item: &BatchItem| i64::try_from(item.number).unwrap_or(i64::MAX);
        Ok(astray.map(|(item, run)| (item.batch.to_string(), number(item), run.to_string())).collect())
    }

    fn memo(&self, key: &MemoKey) -> Result<Option<MemoRecord>> {
        Ok(self.memos.iter().find(|memo| memo.key == *key).cloned())
    }

    fn memo_of_run(&self, run: &RunId) -> Result<Option<MemoRecord>> {
        Ok(self.memos.iter().find(|memo| memo.run == *run).cloned())
    }

    fn memos_of_command(&self, command: &PartDigest, limit: usize) -> Result<Vec<MemoRecord>> {
        Ok(self.memos.iter().rev().filter(|memo| memo.command == *command).take(limit).cloned().collect())
    }

    fn memos(&self, before: i64, limit: usize) -> Result<Vec<MemoRecord>> {
        Ok(self.memos.iter().rev().filter(|memo| memo.seq < before).take(limit).cloned().collect())
    }

    fn audit_after(&self, after: i64, limit: usize) -> Result<Vec<AuditRecord>> {
        Ok(self.audit.iter().filter(|row| row.seq > after).take(limit).cloned().collect())
    }

    fn audit_before(&self, before: i64, limit: usize) -> Result<Vec<AuditRecord>> {
        Ok(self.audit.iter().rev().filter(|row| row.seq < before).take(limit).cloned().collect())
    }

    fn usage(&self) -> Result<Usage> {
        let blobs = || self.blobs.values().map(|(_, blob)| blob);
        Ok(Usage {
            file_bytes: self.file_bytes()?,
            free_bytes: 0,
            blobs: self.blobs.len() as u64,
            blob_stored_bytes: blobs().map(|blob| blob.data.len() as u64).sum(),
            blob_content_bytes: blobs().filter(|blob| blob.codec != Codec::List).map(|blob| blob.size).sum(),
            trees: self.trees.len() as u64,
            tree_bytes: self.trees.values().map(|(_, data)| data.len() as u64).sum(),
            versions: self.versions.len() as u64,
            audit_rows: self.audit.len() as u64,
            runs: self.runs.len() as u64,
        })
    }

    fn file_bytes(&self) -> Result<u64> {
        self.bytes_used()
    }

    fn bytes_used(&self) -> Result<u64> {
        let blobs: usize = self.blobs.values().map(|(_, blob)| blob.data.len()).sum();
        let trees: usize = self.trees.values().map(|(_, data)| data.len()).sum();
        Ok((blobs + trees) as u64)
    }

    fn objects_before(&self, kind: ObjectKind, before: i64, limit: usize) -> Result<Vec<(i64, [u8; 32])>> {
        let mut rows: Vec<(i64, [u8; 32])> = match kind {
            ObjectKind::Tree => self.trees.iter().map(|(id, (row, _))| (*row, id.0)).collect(),
            ObjectKind::Blob => self.blobs.iter().map(|(id, (row, _))| (*row, id.0)).collect(),
        };
        rows.retain(|(row, _)| *row < before);
        rows.sort_unstable_by_key(|(row, _)| std::cmp::Reverse(*row));
        rows.truncate(limit);
        Ok(rows)
    }
}

struct MemoryWriter<'a> {
    work: State,
    shared: MutexGuard<'a, State>,
}

impl Writer for MemoryWriter<'_> {
    fn view(&self) -> &dyn Reader {
        &self.work
    }

    fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.work.meta.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn put_blobs(&mut self, blobs: &[BlobRecord]) -> Result<()> {
        for blob in blobs {
            self.work.last_row += 1;
            let row = self.work.blobs.get(&blob.id).map_or(self.work.last_row, |(row, _)| *row);
            self.work.blobs.insert(blob.id, (row, blob.clone()));
        }
        Ok(())
    }

    fn put_trees(&mut self, trees: &[(TreeId, Vec<u8>)]) -> Result<()> {
        for (id, data) in trees {
            self.work.last_row += 1;
            let row = self.work.trees.get(id).map_or(self.work.last_row, |(row, _)| *row);
            self.work.trees.insert(*id, (row, data.clone()));
        }
        Ok(())
    }

    fn delete_objects(&mut self, objects: &[(ObjectKind, [u8; 32])]) -> Result<()> {
        for (kind, digest) in objects {
            match kind {
                ObjectKind::Tree => drop(self.work.trees.remove(&TreeId(*digest))),
                ObjectKind::Blob => drop(self.work.blobs.remove(&BlobId(*digest))),
            }
        }
        Ok(())
    }

    fn put_version(&mut self, version: &VersionRecord) -> Result<()> {
        if !self.work.versions.iter().any(|known| known.id == version.id) {
            self.work.versions.push(version.clone());
        }
        Ok(())
    }

    fn mark_pruned(&mut self, id: &VersionId, at: Timestamp) -> Result<()> {
        for version in self.work.versions.iter_mut().filter(|version| version.id == *id) {
            version.pruned_at = Some(at);
        }
        Ok(())
    }

    fn delete_version(&mut self, id: &VersionId) -> Result<()> {
        self.work.versions.retain(|version| version.id != *id);
        Ok(())
    }

    fn insert_fork(&mut self, fork: &ForkRecord) -> Result<()> {
        self.work.forks.insert(fork.name.clone(), fork.clone());
        Ok(())
    }

    fn move_fork(&mut self, name: &ForkName, from: &VersionId, to: &VersionId) -> Result<bool> {
        match self.work.forks.get_mut(name) {
            Some(fork) if fork.head == *from => {
                fork.head = *to;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn delete_fork(&mut self, name: &ForkName) -> Result<()> {
        self.work.forks.remove(name);
        self.work.checkpoints.retain(|checkpoint| checkpoint.fork != *name);
        Ok(())
    }

    fn insert_checkpoint(&mut self, checkpoint: &CheckpointRecord) -> Result<()> {
        self.work.checkpoints.push(checkpoint.clone());
        Ok(())
    }

    fn delete_checkpoint(&mut self, fork: &ForkName, name: &CheckpointName) -> Result<()> {
        self.work.checkpoints.retain(|c| c.fork != *fork || c.name != *name);
        Ok(())
    }

    fn put_run(&mut self, run: &RunRecord) -> Result<()> {
        match self.work.runs.iter_mut().find(|known| known.id == run.id) {
            Some(known) => *known = RunRecord { seq: known.seq, ..run.clone() },
            None => {
                let seq = self.work.runs.last().map_or(1, |last| last.seq + 1);
                self.work.runs.push(RunRecord { seq, ..run.clone() });
            }
        }
        Ok(())
    }

    fn put_approval(&mut self, approval: &ApprovalRecord) -> Result<()> {
        match self.work.approvals.iter_mut().find(|known| known.id == approval.id) {
            Some(known) => *known = ApprovalRecord { seq: known.seq, ..approval.clone() },
            None => {
                let seq = self.work.approvals.last().map_or(1, |last| last.seq + 1);
                self.work.approvals.push(ApprovalRecord { seq, ..approval.clone() });
            }
        }
        Ok(())
    }

    fn put_batch(&mut self, batch: &BatchRecord) -> Result<()> {
        match self.work.batches.iter_mut().find(|known| known.id == batch.id) {
            Some(known) => *known = batch.clone(),
            None => self.work.batches.push(batch.clone()),
        }
        Ok(())
    }

    fn put_batch_run(&mut self, item: &BatchItem, run: &RunId) -> Result<()> {
        self.work.batch_runs.push((item.clone(), run.clone()));
        Ok(())
    }

    fn put_application(&mut self, application: &ApplicationRecord) -> Result<i64> {
        match self.work.applications.iter_mut().find(|known| known.seq == application.seq) {
            Some(known) => *known = application.clone(),
            None => {
                let seq = self.work.applications.last().map_or(1, |last| last.seq + 1);
                self.work.applications.push(ApplicationRecord { seq, ..application.clone() });
                return Ok(seq);
            }
        }
        Ok(application.seq)
    }

    fn put_recording(&mut self, recording: &RecordingRecord) -> Result<()> {
        match self.work.recordings.iter_mut().find(|known| known.name == recording.name) {
            Some(known) => *known = RecordingRecord { seq: known.seq, ..recording.clone() },
            None => {
                let seq = self.work.recordings.last().map_or(1, |last| last.seq + 1);
                self.work.recordings.push(RecordingRecord { seq, ..recording.clone() });
            }
        }
        Ok(())
    }

    fn delete_recording(&mut self, name: &RecordingName) -> Result<()> {
        self.work.recordings.retain(|recording| recording.name != *name);
        Ok(())
    }

    fn put_memo(&mut self, memo: &MemoRecord) -> Result<()> {
        self.work.memos.retain(|known| known.key != memo.key && known.run != memo.run);
        self.work.last_memo += 1;
        self.work.memos.push(MemoRecord { seq: self.work.last_memo, ..memo.clone() });
        Ok(())
    }

    fn delete_memo(&mut self, key: &MemoKey) -> Result<()> {
        self.work.memos.retain(|memo| memo.key != *key);
        Ok(())
    }

    fn append_audit(&mut self, record: &AuditRecord) -> Result<()> {
        self.work.audit.push(record.clone());
        Ok(())
    }

    fn commit(self: Box<Self>, _: Durability) -> Result<()> {
        let Self { work, mut shared } = *self;
        *shared = work;
        Ok(())
    }
}
