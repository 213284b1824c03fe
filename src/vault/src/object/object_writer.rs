//! Stores objects ahead of the version that will need them, in short transactions.
//!
//! The write lock is never held while something is hashed or compressed, and never for long.

use std::collections::BTreeMap;

use avfs_types::ids::{BlobId, DIGEST_BYTES, TreeId};

use crate::backend::{BlobRecord, Codec, Durability};
use crate::quota::Quota;
use crate::{Result, Transaction, Vault, quota};

/// A transaction of this size holds the lock for some 20 ms.
const BATCH_ROWS: usize = 2000;
const BATCH_BYTES: usize = 8 << 20;
/// The most that waits to be stored.
const WAITING_BYTES_MAX: usize = 40 << 20;
/// What a waiting blob takes beside its data: its place in the map, and what the allocator adds.
const WAITING_ROW_BYTES: usize = 120;

/// Blobs that wait to be stored, in the order of their digests.
///
/// A digest lands anywhere in its index. A transaction that takes the blobs as they come writes a page of the index for
/// each of them, once the index is large. One that takes neighbours writes a page for many. So the blobs are taken in
/// turns around the circle of digests, as an elevator serves its floors: those that come meanwhile are taken in this
/// turn or in the next one.
#[derive(Default)]
struct Waiting {
    rows: BTreeMap<BlobId, WaitingBlob>,
    bytes: usize,
    /// Where the next transaction begins.
    next: [u8; DIGEST_BYTES],
    /// Blobs that were taken. The more there are, the more may wait: the index has grown with them.
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

    /// True if something has to be stored before more is added.
    fn is_full(&self) -> bool {
        let rows = self.rows.len();
        let is_of_large_rows = rows < BATCH_ROWS && self.bytes >= BATCH_BYTES;
        is_of_large_rows || rows >= BATCH_ROWS.max(self.taken / 2) || self.bytes >= WAITING_BYTES_MAX
    }

    /// True if one transaction can take all of it.
    fn is_little(&self) -> bool {
        self.rows.len() < BATCH_ROWS && self.bytes < BATCH_BYTES
    }

    /// The next blobs around the circle, as many as one transaction takes.
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
            // The circle is closed.
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

/// The digest behind this one; the first one behind the last.
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

/// Collects blobs. The caller holds a pin of the vault until a version refers to them.
pub struct Batch<'v> {
    vault: &'v Vault,
    quota: Quota,
    blobs: Waiting,
    /// Chunk lists, which follow what they refer to.
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

    /// Adds a blob. What becomes too much is written at once, without waiting for the disk.
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

    /// Adds a page; everything it refers to was added before, so what is stored is always whole.
    pub(crate) fn push_page(&mut self, id: TreeId, data: Vec<u8>) -> Result<()> {
        self.bytes += data.len();
        self.pages.push((id, data));
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let full = self.lists.len() + self.pages.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES;
        if full { self.flush() } else { Ok(()) }
    }

    /// Says that no more blobs come for now: stores all but what the transaction of the version can take.
    pub(crate) fn settle(&mut self) -> Result<()> {
        while !self.blobs.is_little() {
            self.store_some()?;
        }
        Ok(())
    }

    /// Stores what there is, so that the transaction of the version is short; not where a limit may still refuse the
    /// version, of which nothing is to stay then.
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
            // Pages alone may be those of a version that has less.
            if blobs.is_empty() { Ok(()) } else { quota::check_bytes(transaction.view(), &self.quota) }
        })?;
        self.pages.clear();
        self.bytes = 0;
        Ok(())
    }

    /// All blobs that wait, the lists last.
    fn left(&mut self) -> Vec<BlobRecord> {
        let mut blobs = Vec::with_capacity(self.blobs.rows.len() + self.lists.len());
        while !self.blobs.rows.is_empty() {
            blobs.append(&mut self.blobs.take());
        }
        blobs.append(&mut self.lists);
        blobs
    }

    /// Stores what is left, in the transaction that makes the version.
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
    fn small_blobs_are_taken_in_few_turns_around_the_circle() {
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
        // As they come, every one of the 100 transactions would be a turn.
        assert!(turns < 20, "{turns} turns");
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
        // One of more than a transaction takes is a transaction of its own.
        waiting.push(blob(1000, BATCH_BYTES * 2));
        while !waiting.rows.is_empty() {
            waiting.take();
        }
        assert_eq!(waiting.bytes, 0);
    }

    #[test]
    fn a_blob_that_comes_twice_is_taken_once() {
        let mut waiting = Waiting::default();
        (0..10).for_each(|n| waiting.push(blob(n % 3, 100)));
        let taken = waiting.take();
        assert_eq!((taken.len(), waiting.bytes, waiting.take().len()), (3, 0, 0));
        assert_eq!(following(&BlobId([0xff; 32])), [0; 32]);
        assert_eq!(following(&BlobId([0; 32]))[31], 1);
    }
}
