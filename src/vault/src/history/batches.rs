//! Batches: lists of commands that were started, and the runs made for their items.
//!
//! The link from an item to its run is written in the transaction that stores the run: resuming a batch finds every
//! item that has ended, and no other.

use avfs_types::ids::{BatchId, BatchPrefix, RunId};

use super::audit::Event;
use crate::backend::{BatchRecord, RunRecord};
use crate::{Result, Vault, VaultError};

/// Rows read at once.
const ROWS: usize = 500;

impl Vault {
    /// Stores a batch before its first item runs.
    pub fn begin_batch(&self, batch: &BatchRecord) -> Result<()> {
        self.transact(|transaction| {
            transaction.writer.put_batch(batch)?;
            let detail = format!("list={}", batch.list.short());
            let (action, subject) = ("batch.begin", batch.id.as_str());
            transaction.record(&Event {
                action,
                subject,
                before: Some(batch.base.0),
                after: None,
                detail: &detail,
            })
        })
    }

    /// Records that every item of the batch has ended.
    pub fn end_batch(&self, batch: &BatchRecord, detail: &str) -> Result<()> {
        self.transact(|transaction| {
            let ended_at = Some(transaction.now());
            transaction.writer.put_batch(&BatchRecord { ended_at, ..batch.clone() })?;
            let (action, subject) = ("batch.end", batch.id.as_str());
            transaction.record(&Event { action, subject, before: None, after: None, detail })
        })
    }

    /// The batch whose id begins with these digits. Fails if no batch or several match.
    pub fn batch(&self, prefix: &BatchPrefix) -> Result<BatchRecord> {
        let mut found = self.read()?.batches_with_prefix(prefix, 2)?;
        match (found.pop(), found.len()) {
            (Some(batch), 0) => Ok(batch),
            (Some(_), _) => Err(VaultError::AmbiguousBatch { id: prefix.clone() }),
            (None, _) => Err(VaultError::NoBatch { id: prefix.clone() }),
        }
    }

    /// Batches, newest first.
    pub fn batches(&self, limit: usize) -> Result<Vec<BatchRecord>> {
        Ok(self.read()?.batches(limit)?)
    }

    /// Passes every run made for an item to a callback, ordered by item number and then by journal order. No reader
    /// is open during the callback.
    pub fn each_batch_run<E: From<VaultError>>(
        &self,
        id: &BatchId,
        mut each: impl FnMut(u64, RunRecord) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut after = (0, 0);
        loop {
            let rows = self.batch_runs(id, after)?;
            let Some((item, last)) = rows.last() else { return Ok(()) };
            after = (*item, last.seq);
            for (item, run) in rows {
                each(item, run)?;
            }
        }
    }

    /// True if the run was made for an item of the batch.
    pub fn is_of_batch(&self, id: &BatchId, run: &RunId) -> Result<bool> {
        let mut found = false;
        self.each_batch_run(id, |_, made| {
            found |= made.id == *run;
            Ok::<(), VaultError>(())
        })?;
        Ok(found)
    }

    /// The runs made for one item, in journal order.
    pub fn runs_of_item(&self, id: &BatchId, item: u64) -> Result<Vec<RunRecord>> {
        let mut runs: Vec<RunRecord> = Vec::new();
        loop {
            let rows = self.batch_runs(id, (item, runs.last().map_or(0, |run| run.seq)))?;
            let of_item = rows.into_iter().take_while(|(number, _)| *number == item);
            let known = runs.len();
            runs.extend(of_item.map(|(_, run)| run));
            if runs.len() - known < ROWS {
                return Ok(runs);
            }
        }
    }

    fn batch_runs(&self, id: &BatchId, after: (u64, i64)) -> Result<Vec<(u64, RunRecord)>> {
        Ok(self.read()?.batch_runs(id, after, ROWS)?)
    }
}
