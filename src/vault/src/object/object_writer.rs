//! Stores objects before the version that needs them, in short transactions.
//!
//! The write lock is never held during hashing or compression, and never for long.

use std::collections::BTreeMap;

use avfs_types::ids::{BlobId, DIGEST_BYTES, TreeId};

use crate::backend::{BlobRecord, Codec, Durability};
use crate::quota::Quota;
use crate::{Result, Transaction, Vault, quota};

/// A transaction of this size holds the lock for about 20 ms.
const BATCH_ROWS: usize = 2000;
const BATCH_BYTES: usize = 8 << 20;
/// The maximum size of the blobs waiting to be stored.
const WAITING_BYTES_MAX: usize = 40 << 20;
/// The overhead of a waiting blob: its map entry, and the allocator.
const WAITING_ROW_BYTES: usize = 120;

/// Blobs waiting to be stored, ordered by digest.
///
/// A digest falls anywhere in its index. Once the index is large, a transaction that stores blobs in order of
/// arrival writes an index page for each of them. One that stores neighbours writes a page for many. So the blobs
/// are taken in rounds through the circle of digests, like an elevator serving its floors: blobs that arrive in the
/// meantime are taken in this round or the next.
#[derive(Default)]
struct Waiting {
    rows: BTreeMap<BlobId, WaitingBlob>,
    bytes: usize,
    /// Where the next transaction starts.
    next: [u8; DIGEST_BYTES],
    /// The number of blobs taken. The more were taken, the more may wait: the index has grown with them.
    taken: usize,
}

struct WaitingBlob {
    size: u64,
    codec: Codec,
    data: Box<[u8]>,
}

impl WaitingBlob {
    fn bytes(&self) -> usize {
        self.data.len() + WAITING_ROW_BYTES
    }
}

impl Waiting {
    fn push(&mut self, blob: BlobRecord) {
        let BlobRecord { id, size, codec, data } = blob;
        let blob = WaitingBlob { size, codec, data: data.into_boxed_slice() };
        self.bytes += blob.bytes();
        if let Some(before) = self.rows.insert(id, blob) {
            self.bytes -= before.bytes();
        }
    }

    /// True if blobs must be stored before more are added.
    fn is_full(&self) -> bool {
        let rows = self.rows.len();
        let is_of_large_rows = rows < BATCH_ROWS && self.bytes >= BATCH_BYTES;
        is_of_large_rows || rows >= BATCH_ROWS.max(self.taken / 2) || self.bytes >= WAITING_BYTES_MAX
    }

    /// True if one transaction can store all of them.
    fn is_little(&self) -> bool {
        self.rows.len() < BATCH_ROWS && self.bytes < BATCH_BYTES
    }

    /// The next blobs around the circle, as many as one transaction stores.
    fn take(&mut self) -> Vec<BlobRecord> {
        let mut taken = Vec::with_capacity(self.rows.len().min(BATCH_ROWS));
        let mut bytes = 0;
        let mut ids: Vec<BlobId> = Vec::with_capacity(taken.capacity());
        let mut fits = |blob: &WaitingBlob| {
            bytes += blob.data.len();
            bytes <= BATCH_BYTES || bytes == blob.data.len()
        };
        let ahead = self.rows.range(BlobId(self.next)..);
        ids.extend(ahead.take(BATCH_ROWS).take_while(|(_, blob)| fits(blob)).map(|(id, _)| *id));
        self.next = match ids.last() {
            Some(last) => following(last),
            // The end of the circle: start over.
            None => [0; DIGEST_BYTES],
        };
        for id in ids {
            if let Some(blob) = self.rows.remove(&id) {
                self.bytes -= blob.bytes();
                let WaitingBlob { size, codec, data } = blob;
                taken.push(BlobRecord { id, size, codec, data: data.into_vec() });
            }
        }
        self.taken += taken.len();
        taken
    }
}

/// The next digest; after the last one, the first.
fn following(id: &BlobId) -> [u8; DIGEST_BYTES] {
    let mut next = id.0;
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    next
}

/// Collects blobs. The caller must hold a pin of the vault until a version refers to them.
pub struct Batch<'v> {
    vault: &'v Vault,
    quota: Quota,
    blobs: Waiting,
    /// Chunk lists, which are stored after the blobs they refer to.
    lists: Vec<BlobRecord>,
    pages: Vec<(TreeId, Vec<u8>)>,
    /// Bytes of the lists and the pages.
    bytes: usize,
}

impl<'v> Batch<'v> {
    /// An empty batch, under the vault's quota.
    pub fn new(vault: &'v Vault) -> Result<Self> {
        let quota = vault.quota()?;
        let (blobs, lists, pages) = (Waiting::default(), Vec::new(), Vec::new());
        Ok(Self { vault, quota, blobs, lists, pages, bytes: 0 })
    }

    /// Adds a blob. Blobs beyond the limit are written at once, without waiting for the disk.
    pub fn push(&mut self, blob: BlobRecord) -> Result<()> {
        if blob.codec == Codec::List {
            self.bytes += blob.data.len();
            self.lists.push(blob);
            return self.flush_if_full();
        }
        self.blobs.push(blob);
        while self.blobs.is_full() {
            self.store_some()?;
        }
        Ok(())
    }

    /// Adds a page. Everything it refers to must already be added, so that everything a stored object refers to
    /// exists.
    pub(crate) fn push_page(&mut self, id: TreeId, data: Vec<u8>) -> Result<()> {
        self.bytes += data.len();
        self.pages.push((id, data));
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let full = self.lists.len() + self.pages.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES;
        if full { self.flush() } else { Ok(()) }
    }

    /// Stores all blobs except those that the transaction of the version can store; call it when no more blobs
    /// follow for now.
    pub(crate) fn settle(&mut self) -> Result<()> {
        while !self.blobs.is_little() {
            self.store_some()?;
        }
        Ok(())
    }

    /// Stores everything in advance, so that the transaction of the version is short. Not if a quota may still
    /// refuse the version, because then nothing of it may stay.
    pub(crate) fn store_ahead(&mut self) -> Result<()> {
        if self.quota == Quota::default() { self.flush() } else { self.settle() }
    }

    fn store_some(&mut self) -> Result<()> {
        let blobs = self.blobs.take();
        if blobs.is_empty() {
            return Ok(());
        }
        self.vault.transact_with(Durability::Deferred, |transaction| {
            transaction.put_blobs(&blobs)?;
            quota::check_bytes(transaction.view(), &self.quota)
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.settle()?;
        let blobs = self.left();
        if blobs.is_empty() && self.pages.is_empty() {
            return Ok(());
        }
        self.vault.transact_with(Durability::Deferred, |transaction| {
            transaction.put_blobs(&blobs)?;
            transaction.writer.put_trees(&self.pages)?;
            // Pages alone may belong to a version that is smaller.
            if blobs.is_empty() { Ok(()) } else { quota::check_bytes(transaction.view(), &self.quota) }
        })?;
        self.pages.clear();
        self.bytes = 0;
        Ok(())
    }

    /// All waiting blobs, the lists last.
    fn left(&mut self) -> Vec<BlobRecord> {
        let mut blobs = Vec::with_capacity(self.blobs.rows.len() + self.lists.len());
        while !self.blobs.rows.is_empty() {
            blobs.append(&mut self.blobs.take());
        }
        blobs.append(&mut self.lists);
        blobs
    }

    /// Stores the rest, in the transaction that creates the version.
    pub(crate) fn finish(mut self, transaction: &mut Transaction<'_>) -> Result<()> {
        let blobs = self.left();
        transaction.put_blobs(&blobs)?;
        Ok(transaction.writer.put_trees(&self.pages)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(n: u64, length: usize) -> BlobRecord {
        let id = BlobId(*blake3::hash(&n.to_le_bytes()).as_bytes());
        BlobRecord { id, size: length as u64, codec: Codec::Raw, data: vec![0; length] }
    }

    #[test]
    fn small_blobs_are_taken_in_few_rounds() {
        let mut waiting = Waiting::default();
        let (mut turns, mut stored) = (0, 0);
        let mut take = |waiting: &mut Waiting| {
            let taken = waiting.take();
            assert!(taken.is_sorted_by_key(|blob| blob.id) && taken.len() <= BATCH_ROWS);
            turns += usize::from(taken.is_empty());
            stored += taken.len();
        };
        for n in 0..200_000 {
            waiting.push(blob(n, 40));
            while waiting.is_full() {
                take(&mut waiting);
            }
            assert!(waiting.bytes < WAITING_BYTES_MAX);
        }
        while !waiting.rows.is_empty() {
            take(&mut waiting);
        }
        assert_eq!((stored, waiting.bytes), (200_000, 0));
        // In order of arrival, every one of the 100 transactions would be a round.
        assert!(turns < 20, "{turns} rounds");
    }

    #[test]
    fn large_blobs_do_not_wait_for_small_ones() {
        let mut waiting = Waiting::default();
        for n in 0..100 {
            waiting.push(blob(n, 1 << 20));
            while waiting.is_full() {
                let bytes: usize = waiting.take().iter().map(|blob| blob.data.len()).sum();
                assert!(bytes <= BATCH_BYTES);
            }
            assert!(waiting.bytes <= BATCH_BYTES + (2 << 20));
        }
        // A blob larger than a transaction's limit gets a separate transaction.
        waiting.push(blob(1000, BATCH_BYTES * 2));
        while !waiting.rows.is_empty() {
            waiting.take();
        }
        assert_eq!(waiting.bytes, 0);
    }

    #[test]
    fn duplicate_blob_is_taken_once() {
        let mut waiting = Waiting::default();
        (0..10).for_each(|n| waiting.push(blob(n % 3, 100)));
        let taken = waiting.take();
        assert_eq!((taken.len(), waiting.bytes, waiting.take().len()), (3, 0, 0));
        assert_eq!(following(&BlobId([0xff; 32])), [0; 32]);
        assert_eq!(following(&BlobId([0; 32]))[31], 1);
    }
}
