//! Turns a stream of bytes into blobs, a single one or a list of chunks, in bounded memory, on all cores.

use std::collections::HashSet;
use std::io;
use std::io::Read;

use avfs_types::ids::BlobId;

use super::chunk::{BLOCK_BYTES, Cutter, FILE_BYTES_MAX, Item, ListBuilder, Piece};
use super::content::WHOLE_BYTES_MAX;
use super::page::FileContent;
use super::{chunk, content};
use crate::backend::{BlobRecord, Codec, Reader};
use crate::{Result, Vault, VaultError, threads};

/// Bytes processed at once: while one window is hashed and compressed the next is read.
const WINDOW_BYTES: usize = 4 << 20;

/// The next part of a file.
pub enum Block {
    /// This many bytes were put into the buffer.
    Data(usize),
    /// This many zeros follow; a multiple of the block size unless they end the file.
    Hole(u64),
    /// The file has ended.
    End,
}

/// A file as blocks of 64 KiB, the last one shorter.
pub trait Blocks: Send {
    /// The next block. Fills `buffer` with data, unless a hole or the end is next.
    fn next(&mut self, buffer: &mut [u8]) -> io::Result<Block>;
}

/// Any reader as blocks.
pub struct ReadBlocks<R>(pub R);

impl<R: Read + Send> Blocks for ReadBlocks<R> {
    fn next(&mut self, buffer: &mut [u8]) -> io::Result<Block> {
        let length = read_full(&mut self.0, buffer)?;
        Ok(if length == 0 { Block::End } else { Block::Data(length) })
    }
}

/// Reads until the buffer is full or the input ends.
pub(crate) fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Content that was split into blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingested {
    /// The reference to the content for a tree.
    pub content: FileContent,
    pub(crate) size: u64,
}

/// True if this content is stored as one blob: short enough, and without a block of zeros.
#[must_use]
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    bytes.len() < BLOCK_BYTES
        || (bytes.len() <= WHOLE_BYTES_MAX
            && bytes.chunks(BLOCK_BYTES).all(|block| block.iter().any(|byte| *byte != 0)))
}

/// Which of the given blobs a vault has.
pub(crate) struct Known {
    pub(crate) whole: HashSet<BlobId>,
    /// How many do not match their digest: a caller that has the content stores it again.
    pub(crate) damaged: u64,
}

impl Known {
    pub(crate) fn of<'i>(vault: &Vault, ids: impl IntoIterator<Item = &'i BlobId>) -> Result<Self> {
        let mut known = Self { whole: HashSet::new(), damaged: 0 };
        let reader = vault.backend().read_unmapped()?;
        for id in ids {
            if !reader.has_blob(id)? {
                continue;
            }
            match check(&*reader, id) {
                Ok(()) => {
                    known.whole.insert(*id);
                }
                Err(error) if error.is_damage() => known.damaged += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }
}

fn check(reader: &dyn Reader, id: &BlobId) -> Result<()> {
    let blob = content::fetch(reader, id)?;
    match blob.codec {
        Codec::List => chunk::open_list(&blob).map(drop),
        Codec::Raw | Codec::Zstd => content::decode(blob).map(drop),
    }
}

/// The destination of ingested blobs.
pub(crate) trait Sink {
    /// The ids that the vault already has, undamaged.
    fn known(&mut self, ids: &[BlobId]) -> Result<HashSet<BlobId>>;
    fn store(&mut self, blobs: Vec<BlobRecord>) -> Result<()>;
    /// Bytes processed at once; more than [`WHOLE_BYTES_MAX`].
    fn window_bytes(&self) -> usize {
        WINDOW_BYTES
    }
}

struct Window {
    pieces: Vec<Piece>,
    last: bool,
}

struct Source<'a> {
    blocks: &'a mut dyn Blocks,
    cutter: Option<Cutter>,
    buffer: Vec<u8>,
    size: u64,
    window_bytes: usize,
}

impl Source<'_> {
    /// Reads until a window's worth of pieces is available.
    fn window(&mut self) -> Result<Window> {
        let mut pieces = Vec::new();
        let mut read = 0;
        while let Some(cutter) = &mut self.cutter {
            match self.blocks.next(&mut self.buffer).map_err(VaultError::Input)? {
                Block::Data(length) => {
                    self.size += length as u64;
                    read += length;
                    cutter.block(&self.buffer[..length], &mut pieces);
                }
                Block::Hole(length) => {
                    self.size += length;
                    cutter.skip(length, &mut pieces);
                }
                Block::End => {
                    if let Some(cutter) = self.cutter.take() {
                        cutter.finish(&mut pieces);
                    }
                }
            }
            if self.size > FILE_BYTES_MAX {
                return Err(VaultError::FileTooLarge { size: self.size, max: FILE_BYTES_MAX });
            }
            if read >= self.window_bytes {
                break;
            }
        }
        Ok(Window { pieces, last: self.cutter.is_none() })
    }
}

/// Stores a file's content.
pub(crate) fn ingest(blocks: &mut dyn Blocks, sink: &mut (dyn Sink + Send)) -> Result<Ingested> {
    let (cutter, buffer, window_bytes) = (Some(Cutter::default()), vec![0; BLOCK_BYTES], sink.window_bytes());
    let mut source = Source { blocks, cutter, buffer, size: 0, window_bytes };
    let mut window = source.window()?;
    if window.last
        && let Some(whole) = as_whole(&window.pieces, source.size)
    {
        let id = content::id_of(&whole);
        if sink.known(&[id])?.is_empty() {
            sink.store(vec![content::encode(id, whole)])?;
        }
        return Ok(Ingested { content: FileContent::Whole(id), size: source.size });
    }
    let mut list = ListBuilder::default();
    loop {
        let pieces = std::mem::take(&mut window.pieces);
        let last = window.last;
        let (next, stored) = threads::both(
            || if last { Ok(None) } else { source.window().map(Some) },
            || store_pieces(pieces, &mut list, sink),
        );
        stored?;
        match next? {
            Some(next) => window = next,
            None => break,
        }
    }
    let mut lists = Vec::new();
    let id = list.finish(&mut |blob| lists.push(blob));
    store_lists(lists, sink)?;
    Ok(Ingested { content: FileContent::Chunked(id), size: source.size })
}

/// The content as it would be stored, without storing it.
pub fn identify(blocks: &mut dyn Blocks) -> Result<Ingested> {
    ingest(blocks, &mut Forget)
}

/// Discards the blobs; only the digest is wanted.
struct Forget;

impl Sink for Forget {
    fn known(&mut self, ids: &[BlobId]) -> Result<HashSet<BlobId>> {
        Ok(ids.iter().copied().collect())
    }

    fn store(&mut self, _: Vec<BlobRecord>) -> Result<()> {
        Ok(())
    }
}

/// The content, if the pieces are those of a file stored as one blob.
fn as_whole(pieces: &[Piece], size: u64) -> Option<Vec<u8>> {
    match pieces {
        [] => Some(Vec::new()),
        [Piece::Data(data)] if data.len() <= WHOLE_BYTES_MAX => Some(data.clone()),
        [Piece::Hole(length)] if size < BLOCK_BYTES as u64 => {
            usize::try_from(*length).ok().map(|length| vec![0; length])
        }
        _ => None,
    }
}

fn store_pieces(pieces: Vec<Piece>, list: &mut ListBuilder, sink: &mut (dyn Sink + Send)) -> Result<()> {
    let items = threads::map(pieces, |piece| match piece {
        Piece::Hole(length) => (Item::Hole { length }, None),
        Piece::Data(data) => {
            let item = Item::Chunk { length: data.len() as u64, id: content::id_of(&data) };
            (item, Some(data))
        }
    });
    let ids: Vec<BlobId> = items.iter().filter_map(|(item, _)| chunk_id(item)).collect();
    let mut known = sink.known(&ids)?;
    let mut wanted = Vec::new();
    let mut order = Vec::with_capacity(items.len());
    for (item, data) in items {
        if let (Some(id), Some(data)) = (chunk_id(&item), data)
            && known.insert(id)
        {
            wanted.push((id, data));
        }
        order.push(item);
    }
    sink.store(threads::map(wanted, |(id, data)| content::encode(id, data)))?;
    // After the chunks they refer to, so that everything a stored object refers to exists.
    let mut lists = Vec::new();
    for item in order {
        list.push(item, &mut |blob| lists.push(blob));
    }
    store_lists(lists, sink)
}

fn store_lists(mut lists: Vec<BlobRecord>, sink: &mut (dyn Sink + Send)) -> Result<()> {
    let ids: Vec<BlobId> = lists.iter().map(|list| list.id).collect();
    let mut known = sink.known(&ids)?;
    lists.retain(|list| known.insert(list.id));
    sink.store(lists)
}

fn chunk_id(item: &Item) -> Option<BlobId> {
    match item {
        Item::Chunk { id, .. } => Some(*id),
        Item::Hole { .. } | Item::List { .. } => None,
    }
}

/// Stores directly into a vault, batch by batch.
pub(crate) struct VaultSink<'b, 'v> {
    pub(crate) vault: &'v Vault,
    pub(crate) batch: &'b mut crate::Batch<'v>,
}

impl Sink for VaultSink<'_, '_> {
    fn known(&mut self, ids: &[BlobId]) -> Result<HashSet<BlobId>> {
        Ok(Known::of(self.vault, ids)?.whole)
    }

    fn store(&mut self, blobs: Vec<BlobRecord>) -> Result<()> {
        blobs.into_iter().try_for_each(|blob| self.batch.push(blob))
    }
}
