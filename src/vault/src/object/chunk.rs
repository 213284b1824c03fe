//! Large and sparse files: split by content-defined chunking, listed in pages, zeros left out.
//!
//! The boundaries depend on the content alone, so equal files have equal ids everywhere, and an edit in the middle
//! of a large file changes only the chunks around it and one page of the list.

use avfs_types::encode::put_number;
use avfs_types::ids::{BlobId, DigestKind};

use super::codec::{DecodeError, Decoder};
use super::content;
use super::content::WHOLE_BYTES_MAX;
use crate::backend::{BlobRecord, Codec, Reader};
use crate::{Result, VaultError};

/// An aligned block of this many zeros is a hole.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
const CHUNK_BYTES_MIN: usize = 16 << 10;
const CHUNK_BYTES_AVERAGE: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Bytes collected before they are split.
const STRIDE_BYTES: usize = 4 << 20;
/// The largest file that can be stored: the limit of the largest common file systems.
pub const FILE_BYTES_MAX: u64 = 16 << 40;

const FORMAT: u8 = 1;
/// A list ends after an item whose digest ends in eight zero bits, or at this length.
const LIST_ITEMS_MAX: usize = 1024;
/// A file of [`FILE_BYTES_MAX`] cannot need more levels of lists than this.
pub(crate) const LIST_DEPTH_MAX: usize = 8;

/// A part of a file; the parts of a file are ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Vec<u8>),
    Hole(u64),
}

impl Piece {
    #[must_use]
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Hole(length) => *length,
        }
    }
}

/// Splits a stream of blocks into pieces. Every block except the last has [`BLOCK_BYTES`].
#[derive(Default)]
pub(crate) struct Cutter {
    /// Data since the last hole or boundary.
    segment: Vec<u8>,
    /// True if the segment is longer than a single blob may be, so it is being split.
    cutting: bool,
    hole: u64,
}

impl Cutter {
    pub(crate) fn block(&mut self, block: &[u8], pieces: &mut Vec<Piece>) {
        if is_zero(block) {
            self.skip(block.len() as u64, pieces);
            return;
        }
        self.end_hole(pieces);
        self.segment.extend_from_slice(block);
        if self.segment.len() > WHOLE_BYTES_MAX {
            self.cutting = true;
        }
        // In long strides, because the remainder of each is moved to the front.
        if self.segment.len() >= STRIDE_BYTES {
            self.cut(CHUNK_BYTES_MAX, pieces);
        }
    }

    /// Skips blocks that are known to be zeros.
    pub(crate) fn skip(&mut self, length: u64, pieces: &mut Vec<Piece>) {
        if length > 0 {
            self.end_segment(pieces);
            self.hole += length;
        }
    }

    pub(crate) fn finish(mut self, pieces: &mut Vec<Piece>) {
        self.end_segment(pieces);
        self.end_hole(pieces);
    }

    /// Splits while at least `keep` bytes are available: a boundary never depends on how much was read.
    fn cut(&mut self, keep: usize, pieces: &mut Vec<Piece>) {
        let cutter = fastcdc::v2020::FastCDC::new(
            &self.segment,
            CHUNK_BYTES_MIN,
            CHUNK_BYTES_AVERAGE,
            CHUNK_BYTES_MAX,
        );
        let mut start = 0;
        while self.segment.len() - start >= keep && start < self.segment.len() {
            let (_, end) = cutter.cut(start, self.segment.len() - start);
            pieces.push(Piece::Data(self.segment[start..end].to_vec()));
            start = end;
        }
        self.segment.drain(..start);
    }

    fn end_segment(&mut self, pieces: &mut Vec<Piece>) {
        if self.cutting {
            self.cut(0, pieces);
            self.cutting = false;
        } else if !self.segment.is_empty() {
            pieces.push(Piece::Data(std::mem::take(&mut self.segment)));
        }
    }

    fn end_hole(&mut self, pieces: &mut Vec<Piece>) {
        if self.hole > 0 {
            pieces.push(Piece::Hole(std::mem::take(&mut self.hole)));
        }
    }
}

fn is_zero(block: &[u8]) -> bool {
    let (head, words, tail) = (block.len() / 16 * 16, block.chunks_exact(16), block.len() % 16);
    words.into_iter().all(|word| word == [0; 16]) && block[head..].iter().take(tail).all(|b| *b == 0)
}

/// An item of a chunk list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Chunk { length: u64, id: BlobId },
    Hole { length: u64 },
    List { length: u64, id: BlobId },
}

const TAG_CHUNK: u8 = 0;
const TAG_HOLE: u8 = 1;
const TAG_LIST: u8 = 2;

impl Item {
    #[must_use]
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Chunk { length, .. } | Self::Hole { length } | Self::List { length, .. } => *length,
        }
    }

    fn ends_list(&self) -> bool {
        match self {
            Self::Chunk { id, .. } | Self::List { id, .. } => id.0[31] == 0,
            Self::Hole { .. } => false,
        }
    }
}

fn seal_list(items: &[Item]) -> BlobRecord {
    let mut data = vec![FORMAT];
    put_number(&mut data, items.len() as u64);
    for item in items {
        let (tag, id) = match item {
            Item::Chunk { id, .. } => (TAG_CHUNK, Some(id)),
            Item::Hole { .. } => (TAG_HOLE, None),
            Item::List { id, .. } => (TAG_LIST, Some(id)),
        };
        data.push(tag);
        put_number(&mut data, item.length());
        if let Some(id) = id {
            data.extend_from_slice(&id.0);
        }
    }
    let id = BlobId(DigestKind::ChunkList.digest(&data));
    let size = items.iter().map(Item::length).sum();
    BlobRecord { id, size, codec: Codec::List, data }
}

/// Decodes the items of a list after verifying its digest.
pub(crate) fn open_list(blob: &BlobRecord) -> Result<Vec<Item>> {
    let damaged = |detail: &str| VaultError::DamagedObject {
        kind: "chunk list",
        id: blob.id.short(),
        detail: detail.to_owned(),
    };
    if blob.codec != Codec::List {
        return Err(damaged("expected a chunk list, found content"));
    }
    if DigestKind::ChunkList.digest(&blob.data) != blob.id.0 {
        return Err(damaged("its digest does not match"));
    }
    let items = decode_list(&blob.data).map_err(|error| damaged(&error.to_string()))?;
    let length = items.iter().try_fold(0_u64, |sum, item| sum.checked_add(item.length()));
    if length == Some(blob.size) { Ok(items) } else { Err(damaged("its length does not match")) }
}

fn decode_list(data: &[u8]) -> std::result::Result<Vec<Item>, DecodeError> {
    let mut decoder = Decoder::new(data);
    let format = decoder.byte()?;
    if format != FORMAT {
        return Err(DecodeError::Unknown(u64::from(format), "list format"));
    }
    let count = decoder.number()?;
    let mut items = Vec::new();
    for _ in 0..count {
        let tag = decoder.byte()?;
        let length = decoder.number()?;
        if length == 0 {
            return Err(DecodeError::Rule("it has an empty item"));
        }
        items.push(match tag {
            TAG_CHUNK => Item::Chunk { length, id: BlobId(decoder.digest()?) },
            TAG_HOLE => Item::Hole { length },
            TAG_LIST => Item::List { length, id: BlobId(decoder.digest()?) },
            other => return Err(DecodeError::Unknown(u64::from(other), "kind of item")),
        });
    }
    decoder.end()?;
    Ok(items)
}

/// Builds the lists of one file from its items, in bounded memory.
#[derive(Default)]
pub(crate) struct ListBuilder {
    levels: Vec<Vec<Item>>,
}

impl ListBuilder {
    /// Adds an item; full lists are passed to `store`.
    pub(crate) fn push(&mut self, item: Item, store: &mut impl FnMut(BlobRecord)) {
        self.push_at(0, item, store);
    }

    fn push_at(&mut self, level: usize, item: Item, store: &mut impl FnMut(BlobRecord)) {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        let items = &mut self.levels[level];
        items.push(item);
        if item.ends_list() || items.len() >= LIST_ITEMS_MAX {
            self.close(level, store);
        }
    }

    fn close(&mut self, level: usize, store: &mut impl FnMut(BlobRecord)) {
        let items = std::mem::take(&mut self.levels[level]);
        let list = seal_list(&items);
        let item = Item::List { length: list.size, id: list.id };
        store(list);
        self.push_at(level + 1, item, store);
    }

    /// The id of the whole file's list.
    pub(crate) fn finish(mut self, store: &mut impl FnMut(BlobRecord)) -> BlobId {
        let mut level = 0;
        loop {
            let top = level + 1 >= self.levels.len();
            match self.levels.get(level).map(Vec::as_slice) {
                Some([Item::List { id, .. }]) if top && level > 0 => return *id,
                None => {
                    let list = seal_list(&[]);
                    let id = list.id;
                    store(list);
                    return id;
                }
                Some([]) => {}
                Some(_) => self.close(level, store),
            }
            level += 1;
        }
    }
}

/// Reads the pieces of a chunked file in order, verifying each chunk.
pub(crate) struct PieceReader {
    open: Vec<std::vec::IntoIter<Item>>,
}

impl PieceReader {
    pub(crate) fn open(reader: &dyn Reader, list: &BlobId) -> Result<Self> {
        Ok(Self { open: vec![open_list(&content::fetch(reader, list)?)?.into_iter()] })
    }

    /// The next piece as stored: fetching it needs the store, decoding it does not.
    pub(crate) fn next(&mut self, reader: &dyn Reader) -> Result<Option<Stored>> {
        while let Some(items) = self.open.last_mut() {
            match items.next() {
                None => {
                    self.open.pop();
                }
                Some(Item::Hole { length }) => return Ok(Some(Stored::Hole(length))),
                Some(Item::Chunk { id, length }) => {
                    return Ok(Some(Stored::Chunk(fetch_of(reader, &id, length)?)));
                }
                Some(Item::List { id, length }) => {
                    let blob = fetch_of(reader, &id, length)?;
                    if self.open.len() >= LIST_DEPTH_MAX {
                        let detail = "its lists are nested too deeply".to_owned();
                        let id = id.short();
                        return Err(VaultError::DamagedObject { kind: "chunk list", id, detail });
                    }
                    self.open.push(open_list(&blob)?.into_iter());
                }
            }
        }
        Ok(None)
    }
}

/// The row of a blob in a list; fails if its length does not match the list.
fn fetch_of(reader: &dyn Reader, id: &BlobId, length: u64) -> Result<BlobRecord> {
    let blob = content::fetch(reader, id)?;
    if blob.size == length {
        return Ok(blob);
    }
    let detail = format!("its list says {length} bytes, but it has {}", blob.size);
    Err(VaultError::DamagedObject { kind: "blob", id: id.short(), detail })
}

/// A piece before it is decoded.
pub(crate) enum Stored {
    Chunk(BlobRecord),
    Hole(u64),
}

impl Stored {
    /// Bytes it takes in memory.
    #[must_use]
    pub(crate) fn stored_bytes(&self) -> u64 {
        match self {
            Self::Chunk(blob) => blob.data.len() as u64,
            Self::Hole(_) => size_of::<Self>() as u64,
        }
    }

    pub(crate) fn decode(self) -> Result<Piece> {
        match self {
            Self::Chunk(blob) => content::decode(blob).map(Piece::Data),
            Self::Hole(length) => Ok(Piece::Hole(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn pieces_of(content: &[u8]) -> Vec<Piece> {
        let (mut cutter, mut pieces) = (Cutter::default(), Vec::new());
        content.chunks(BLOCK_BYTES).for_each(|block| cutter.block(block, &mut pieces));
        cutter.finish(&mut pieces);
        pieces
    }

    fn joined(pieces: &[Piece]) -> Vec<u8> {
        let expand = |piece: &Piece| match piece {
            Piece::Data(data) => data.clone(),
            Piece::Hole(length) => vec![0; usize::try_from(*length).unwrap()],
        };
        pieces.iter().flat_map(expand).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn pieces_join_to_the_content(parts in proptest::collection::vec((any::<u64>(), 0..700_000_usize, any::<bool>()), 0..6)) {
            let part = |(seed, length, zero): &(u64, usize, bool)| if *zero { vec![0; *length] } else { noise(*seed, *length) };
            let content: Vec<u8> = parts.iter().flat_map(part).collect();
            let pieces = pieces_of(&content);
            prop_assert!(joined(&pieces) == content);
            // Skipping the zero blocks gives the same result as reading them.
            let (mut cutter, mut skipped) = (Cutter::default(), Vec::new());
            for block in content.chunks(BLOCK_BYTES) {
                if block.iter().all(|b| *b == 0) { cutter.skip(block.len() as u64, &mut skipped) } else { cutter.block(block, &mut skipped) }
            }
            cutter.finish(&mut skipped);
            prop_assert!(pieces == skipped);
        }
    }

    #[test]
    fn an_insertion_changes_few_chunks_and_little_of_the_list() {
        let before = noise(1, 24 << 20);
        let mut after = before.clone();
        after.splice(9_000_000..9_000_000, *b"inserted");
        let blobs = |content: &[u8]| {
            let (mut set, mut list) = (std::collections::HashMap::new(), ListBuilder::default());
            for piece in pieces_of(content) {
                let Piece::Data(data) = piece else { panic!("noise has no holes") };
                let id = content::id_of(&data);
                set.insert(id, data.len());
                list.push(Item::Chunk { length: data.len() as u64, id }, &mut |blob| {
                    set.insert(blob.id, blob.data.len());
                });
            }
            list.finish(&mut |blob| {
                set.insert(blob.id, blob.data.len());
            });
            set
        };
        let (old, new) = (blobs(&before), blobs(&after));
        let added: usize =
            new.iter().filter(|(id, _)| !old.contains_key(*id)).map(|(_, length)| length).sum();
        assert!(added < 600_000, "{added} bytes were added");
    }

    #[test]
    fn chunk_boundaries_are_part_of_the_format() {
        let pieces = pieces_of(&noise(7, 3 << 20));
        let lengths: Vec<usize> =
            pieces.iter().map(|piece| joined(std::slice::from_ref(piece)).len()).collect();
        let digest = blake3::hash(format!("{lengths:?}").as_bytes());
        assert_eq!((lengths.len(), &digest.to_hex()[..16]), (39, "ed02a397a12e00fc"));
    }

    #[test]
    fn lists_round_trip_at_every_length() {
        use crate::backend::memory::MemoryBackend;
        use crate::backend::{Backend, Durability};
        for count in [0_usize, 1, 2, 1023, 1024, 1025, 5000] {
            let store = MemoryBackend::default();
            let mut writer = store.write().unwrap();
            let mut list = ListBuilder::default();
            let mut blobs = Vec::new();
            let chunks: Vec<Vec<u8>> = (0..count).map(|n| n.to_le_bytes().to_vec()).collect();
            for chunk in &chunks {
                let id = content::id_of(chunk);
                blobs.push(content::encode(id, chunk.clone()));
                list.push(Item::Chunk { length: 8, id }, &mut |blob| blobs.push(blob));
            }
            let id = list.finish(&mut |blob| blobs.push(blob));
            writer.put_blobs(&blobs).unwrap();
            writer.commit(Durability::Deferred).unwrap();
            let reader = store.read().unwrap();
            let mut pieces = PieceReader::open(&*reader, &id).unwrap();
            let mut read = Vec::new();
            while let Some(stored) = pieces.next(&*reader).unwrap() {
                read.push(stored.decode().unwrap());
            }
            assert_eq!(read, chunks.into_iter().map(Piece::Data).collect::<Vec<_>>());
        }
    }

    #[test]
    fn malformed_lists_are_damage() {
        use crate::backend::memory::MemoryBackend;
        use crate::backend::{Backend, Durability};
        let nothing = seal_list(&[Item::Hole { length: 0 }]);
        assert!(open_list(&nothing).unwrap_err().to_string().contains("an empty item"));
        let store = MemoryBackend::default();
        let inner = seal_list(&[Item::Hole { length: 5 }]);
        let outer = seal_list(&[Item::List { length: 6, id: inner.id }]);
        let mut writer = store.write().unwrap();
        writer.put_blobs(&[inner, outer.clone()]).unwrap();
        writer.commit(Durability::Synced).unwrap();
        let reader = store.read().unwrap();
        let mut pieces = PieceReader::open(&*reader, &outer.id).unwrap();
        assert!(pieces.next(&*reader).err().unwrap().to_string().contains("says 6 bytes, but it has 5"));
    }
}
