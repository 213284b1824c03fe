//! The output of a stream as blobs: stored and read in pieces, so that memory use does not depend on its size.

use std::collections::HashSet;
use std::io;
use std::io::{Read, Write};
use std::sync::Arc;

use avfs_types::ids::{BlobId, DIGEST_BYTES};

use crate::backend::{BlobRecord, Codec, Durability, Guard, Reader};
use crate::chunk::{BLOCK_BYTES, Piece, PieceReader};
use crate::content::WHOLE_BYTES_MAX;
use crate::ingest::{Known, ReadBlocks, Sink, ingest};
use crate::object::file_content::write_zeros;
use crate::{Result, Vault, VaultError, content, quota};

/// Blobs up to this size are stored in the transaction of the row that refers to them, more in transactions before it.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes processed at once. Fewer than for files, to use less memory.
const WINDOW_BYTES: usize = WHOLE_BYTES_MAX + BLOCK_BYTES;

/// The output of a stream, as blobs.
#[derive(Clone)]
pub(crate) struct StoredOutput {
    pub(crate) id: BlobId,
    pub(crate) digest: [u8; DIGEST_BYTES],
    /// The blobs that are not stored yet.
    pub(crate) blobs: Vec<BlobRecord>,
    /// Prevents a sweep of the stored blobs until a row refers to them.
    pub(crate) pin: Option<Arc<Guard>>,
}

impl std::fmt::Debug for StoredOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredOutput").field("id", &self.id).finish_non_exhaustive()
    }
}

impl StoredOutput {
    /// Hashes, compresses, and stores what does not fit in the transaction of the row.
    pub(crate) fn of(vault: &Vault, source: &mut (dyn Read + Send)) -> Result<Self> {
        let mut hashing = Hashing { source, hasher: blake3::Hasher::new() };
        let mut sink = Ahead { vault, pin: None, waiting: Vec::new(), waiting_bytes: 0 };
        let stored = ingest(&mut ReadBlocks(&mut hashing), &mut sink)?;
        Ok(Self {
            id: *stored.content.id(),
            digest: *hashing.hasher.finalize().as_bytes(),
            blobs: sink.waiting,
            pin: sink.pin.map(Arc::new),
        })
    }
}

/// Computes the digest of everything that is read.
struct Hashing<'a> {
    source: &'a mut (dyn Read + Send),
    hasher: blake3::Hasher,
}

impl Read for Hashing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}

/// Collects blobs, and stores them when they have become too many to hold.
struct Ahead<'v> {
    vault: &'v Vault,
    /// Taken before the first blob is stored.
    pin: Option<Guard>,
    waiting: Vec<BlobRecord>,
    waiting_bytes: usize,
}

impl Sink for Ahead<'_> {
    fn known(&mut self, ids: &[BlobId]) -> Result<HashSet<BlobId>> {
        let mut known = match self.pin {
            // Without a pin a known blob could be swept.
            None => HashSet::new(),
            Some(_) => Known::of(self.vault, ids)?.whole,
        };
        known.extend(self.waiting.iter().map(|blob| blob.id));
        Ok(known)
    }

    fn window_bytes(&self) -> usize {
        WINDOW_BYTES
    }

    /// Blobs arrive after those that they refer to, so everything that a stored blob refers to is stored.
    fn store(&mut self, blobs: Vec<BlobRecord>) -> Result<()> {
        for blob in blobs {
            self.waiting_bytes += blob.data.len();
            self.waiting.push(blob);
            if self.waiting_bytes > WAITING_BYTES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }
}

impl Ahead<'_> {
    fn flush(&mut self) -> Result<()> {
        if self.pin.is_none() {
            self.pin = Some(self.vault.backend().pin()?);
        }
        self.vault.transact_with(Durability::Deferred, |transaction| {
            transaction.put_blobs(&self.waiting)?;
            quota::check_bytes(transaction.view(), &quota::read(transaction.view())?)
        })?;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }
}

/// True if the quota has no room for outputs of these lengths; a run must not fail because of it.
///
/// Only output that is stored before its run counts: the run must still have room for its changes, of at most
/// `changes_bytes`. Less output is stored after them, and may exceed the limit once.
pub fn is_full(reader: &dyn Reader, lengths: [u64; 2], changes_bytes: u64) -> Result<bool> {
    let Some(limit) = quota::read(reader)?.bytes else { return Ok(false) };
    let ahead: u64 = lengths.into_iter().filter(|length| *length > WAITING_BYTES_MAX as u64).sum();
    let changes = if ahead > 0 { changes_bytes } else { 0 };
    Ok(reader.bytes_used()?.saturating_add(ahead).saturating_add(changes) > limit)
}

/// The size of a stored output in bytes.
pub fn output_bytes(reader: &dyn Reader, id: &BlobId) -> Result<u64> {
    Ok(content::fetch(reader, id)?.size)
}

/// Writes the output of a stream to `out`, each piece verified against its digest.
pub fn copy_output(reader: &dyn Reader, id: &BlobId, out: &mut dyn Write) -> Result<()> {
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(VaultError::Output);
    let blob = content::fetch(reader, id)?;
    if blob.codec != Codec::List {
        return write(&content::decode(blob)?);
    }
    let mut pieces = PieceReader::open(reader, id)?;
    while let Some(piece) = pieces.next(reader)? {
        match piece.decode()? {
            Piece::Data(data) => write(&data)?,
            Piece::Hole(length) => write_zeros(length, &mut write)?,
        }
    }
    Ok(())
}

/// The output of a stream in memory, for output known to be small.
pub fn read_output(reader: &dyn Reader, id: &BlobId) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The lists are intact, but the size may still be forged.
    let room = usize::try_from(output_bytes(reader, id)?).ok();
    if room.is_none_or(|size| bytes.try_reserve_exact(size).is_err()) {
        let detail = "invalid size".to_owned();
        return Err(VaultError::DamagedObject { kind: "chunk list", id: id.short(), detail });
    }
    copy_output(reader, id, &mut bytes)?;
    Ok(bytes)
}
