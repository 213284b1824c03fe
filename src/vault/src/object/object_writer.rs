//! Stores objects ahead of the version that will need them, in short transactions.
//!
//! The write lock is never held while something is hashed or compressed, and never for long.

use avfs_types::ids::TreeId;

use crate::backend::{BlobRecord, Durability};
use crate::quota::Quota;
use crate::{Result, Transaction, Vault, quota};

/// A transaction of this size holds the lock for some 20 ms. A smaller one would write nearly as many pages: every
/// digest lands on another leaf of its index.
const BATCH_ROWS: usize = 2000;
const BATCH_BYTES: usize = 8 << 20;

/// Collects blobs. The caller holds a pin of the vault until a version refers to them.
pub struct Batch<'v> {
    vault: &'v Vault,
    quota: Quota,
    blobs: Vec<BlobRecord>,
    pages: Vec<(TreeId, Vec<u8>)>,
    bytes: usize,
}

impl<'v> Batch<'v> {
    /// An empty batch, under the vault's quota.
    pub fn new(vault: &'v Vault) -> Result<Self> {
        Ok(Self { vault, quota: vault.quota()?, blobs: Vec::new(), pages: Vec::new(), bytes: 0 })
    }

    /// Adds a blob; a full batch is written at once, without waiting for the disk.
    pub fn push(&mut self, blob: BlobRecord) -> Result<()> {
        self.bytes += blob.data.len();
        self.blobs.push(blob);
        self.flush_if_full()
    }

    /// Adds a page; everything it refers to was added before, so what is stored is always whole.
    pub(crate) fn push_page(&mut self, id: TreeId, data: Vec<u8>) -> Result<()> {
        self.bytes += data.len();
        self.pages.push((id, data));
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let full = self.blobs.len() + self.pages.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES;
        if full { self.flush() } else { Ok(()) }
    }

    /// Stores what there is, for who has something else to do meanwhile; not where a limit may still refuse the version,
    /// of which nothing is to stay then.
    pub(crate) fn store_ahead(&mut self) -> Result<()> {
        if self.quota == Quota::default() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.blobs.is_empty() && self.pages.is_empty() {
            return Ok(());
        }
        self.vault.transact_with(Durability::Deferred, |transaction| {
            Self::put(&self.blobs, &self.pages, transaction)?;
            // Pages alone may be those of a version that has less.
            if self.blobs.is_empty() { Ok(()) } else { quota::check_bytes(transaction.view(), &self.quota) }
        })?;
        self.blobs.clear();
        self.pages.clear();
        self.bytes = 0;
        Ok(())
    }

    fn put(
        blobs: &[BlobRecord],
        pages: &[(TreeId, Vec<u8>)],
        transaction: &mut Transaction<'_>,
    ) -> Result<()> {
        transaction.put_blobs(blobs)?;
        Ok(transaction.writer.put_trees(pages)?)
    }

    /// Stores what is left, in the transaction that makes the version.
    pub(crate) fn finish(self, transaction: &mut Transaction<'_>) -> Result<()> {
        Self::put(&self.blobs, &self.pages, transaction)
    }
}
