//! The order in which blobs are stored, chosen to fill the pages of the file.
//!
//! SQLite appends a row to the last page and starts a new page if the row does not fit: with rows in arbitrary
//! order, an eighth of the file stays empty. This module groups blobs that fill a page together.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::connect::PAGE_BYTES;
use crate::backend::{BlobRecord, Codec};

/// Bytes of a leaf page available for rows: all except its header.
const ROOM: usize = PAGE_BYTES - 8;
/// The overhead of a row: digest, numbers, lengths, and the cell pointer.
const ROW: usize = 54;
/// Sizes from "Cell Payload Overflow Pages" of SQLite's file format, for a row that does not fit in the leaf: the
/// most and the least that the leaf holds, and the capacity of an overflow page.
const MOST: usize = PAGE_BYTES - 35;
const LEAST: usize = (PAGE_BYTES - 12) * 32 / 255 - 23;
const OVERFLOW: usize = PAGE_BYTES - 4;

/// The blobs in storage order: chunk lists last, in their original order, after the blobs they refer to.
pub(crate) fn order(blobs: &[BlobRecord]) -> Vec<&BlobRecord> {
    let (lists, mut whole): (Vec<_>, Vec<_>) = blobs.iter().partition(|blob| blob.codec == Codec::List);
    whole.sort_by_key(|blob| Reverse(in_leaf(blob.data.len())));
    // Best fit decreasing: largest first, each into the fullest leaf with room for it.
    let mut leaves: Vec<Vec<&BlobRecord>> = Vec::new();
    let mut open: BTreeSet<(usize, usize)> = BTreeSet::new();
    for blob in whole {
        let size = in_leaf(blob.data.len());
        let fitting = open.range((size, 0)..).next().copied();
        let (room, leaf) = fitting.unwrap_or((ROOM, leaves.len()));
        if fitting.is_none() {
            leaves.push(Vec::new());
        }
        leaves[leaf].push(blob);
        open.remove(&(room, leaf));
        open.insert((room.saturating_sub(size), leaf));
    }
    leaves.into_iter().flatten().chain(lists).collect()
}

/// Bytes of the leaf that a blob with this much data uses.
fn in_leaf(data: usize) -> usize {
    let row = data + ROW;
    if row <= MOST {
        return row;
    }
    let rest = LEAST + (row - LEAST) % OVERFLOW;
    if rest <= MOST { rest } else { LEAST }
}

#[cfg(test)]
mod tests {
    use avfs_types::ids::BlobId;

    use super::*;

    fn blob(n: usize, length: usize, codec: Codec) -> BlobRecord {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&n.to_le_bytes());
        BlobRecord { id: BlobId(id), size: length as u64, codec, data: vec![0; length] }
    }

    /// The number of leaves that SQLite starts for rows in this order.
    fn leaves<'a>(blobs: impl IntoIterator<Item = &'a BlobRecord>) -> usize {
        let (mut begun, mut room) = (0, 0);
        for blob in blobs {
            let size = in_leaf(blob.data.len());
            if size > room {
                begun += 1;
                room = ROOM;
            }
            room -= size;
        }
        begun
    }

    #[test]
    fn rows_fill_their_pages() {
        let lengths = (0..500usize).map(|n| 150 + n * n * 7919 % 5000);
        let blobs: Vec<_> = lengths.enumerate().map(|(n, length)| blob(n, length, Codec::Zstd)).collect();
        let least = blobs.iter().map(|blob| in_leaf(blob.data.len())).sum::<usize>().div_ceil(ROOM);
        assert!(leaves(&blobs) > least * 115 / 100, "the original order wastes space: {}", leaves(&blobs));
        assert!(leaves(order(&blobs)) <= least + 2, "{} of {least}", leaves(order(&blobs)));
    }

    #[test]
    fn every_blob_is_ordered_once_and_lists_come_last() {
        let kinds = [Codec::Raw, Codec::List, Codec::Zstd, Codec::List, Codec::Raw];
        let blobs: Vec<_> = (0..50).map(|n| blob(n, n * 977 % 30_000, kinds[n % kinds.len()])).collect();
        let ordered = order(&blobs);
        let mut ids: Vec<_> = ordered.iter().map(|blob| blob.id).collect();
        let lists: Vec<_> = ordered.iter().skip_while(|blob| blob.codec != Codec::List).collect();
        assert!(lists.iter().all(|blob| blob.codec == Codec::List));
        assert!(lists.is_sorted_by_key(|blob| blobs.iter().position(|other| other.id == blob.id)));
        ids.sort_unstable();
        let mut all: Vec<_> = blobs.iter().map(|blob| blob.id).collect();
        all.sort_unstable();
        assert_eq!(ids, all);
    }

    #[test]
    fn in_leaf_counts_the_local_part_of_an_overflowing_row() {
        assert_eq!(in_leaf(0), ROW);
        assert_eq!(in_leaf(MOST - ROW), MOST);
        assert!(in_leaf(MOST - ROW + 1) <= MOST);
        assert_eq!(in_leaf(LEAST + 3 * OVERFLOW - ROW), LEAST);
        assert_eq!(in_leaf(LEAST + 3 * OVERFLOW + 100 - ROW), LEAST + 100);
    }
}
