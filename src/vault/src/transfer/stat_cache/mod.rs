//! The stat cache: the stat data of a host directory at its last import, so that unchanged files are not read again.
//!
//! One file per pair of vault and directory, local to the host and safe to delete. A file that changed within the
//! clock's granularity of the scan is marked and never trusted, as a further change might not alter its stat data.
//!
//! The file consists of a head and parts. The first part contains every directory, each further part those that an
//! import found changed or new, in any order; each part begins with the version that the import created. A checksum
//! covers a part and all parts before it. If a checksum is wrong, a writer died or two wrote at once: the parts before
//! it are a valid cache of an earlier import.

mod dir;
mod new_cache;

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use avfs_types::ids::{ContentId, TreeId, VersionId};

use crate::codec::{DecodeError, Decoder};
use crate::page::{DirRef, Totals};

use dir::decode_head;
pub(crate) use dir::{CachedDir, CachedEntry, CachedKind, Stamp, decode_dir, decode_entry, encode_entry};
pub(crate) use new_cache::{NewCache, NewDirs, unfinished};

const MAGIC: &[u8; 8] = b"avfsstat";
const FORMAT: u8 = 5;
/// Offset of the byte that describes foreign files. No checksum covers it.
const FOREIGN_AT: usize = MAGIC.len() + 1;
type Checksum = [u8; 32];
/// Sizes of the length field of a part, and of the two fields before each directory in it: its number and its length.
const PART_BYTES: usize = 8;
const NUMBER_BYTES: usize = 4;
const LENGTH_BYTES: usize = 4;

/// Owners in a directory that no sandbox of its user can map, so that the directory cannot be a lower layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Files owned by another user or group.
    pub owners: bool,
    /// Files with an ACL that names another user or group.
    pub lists: bool,
}

impl Foreign {
    /// The result of the directory's last import, from its stat cache; the default if there is no cache. Reads only the
    /// head of the file.
    #[must_use]
    pub fn last_seen(stat_cache: &Path) -> Self {
        let mut head = [0; FOREIGN_AT + 1];
        let read = File::open(stat_cache).and_then(|file| file.read_exact_at(&mut head, 0));
        match read {
            Ok(()) if head.starts_with(MAGIC) && head[FOREIGN_AT - 1] == FORMAT => {
                Self::from_byte(head[FOREIGN_AT])
            }
            Ok(()) | Err(_) => Self::default(),
        }
    }

    /// True if there is any foreign file.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.owners || self.lists
    }

    fn from_byte(byte: u8) -> Self {
        Self { owners: byte & 1 != 0, lists: byte & 2 != 0 }
    }

    fn byte(self) -> u8 {
        u8::from(self.owners) | u8::from(self.lists) << 1
    }
}

/// A larger cache is not held in memory: its directories are read one at a time.
const HELD_BYTES_MAX: u64 = 2 << 20;
/// Buffer size for checking such a cache.
const CHECK_BYTES: usize = 256 << 10;
/// Upper bound for the size of the head: the id of the vault has 32 digits.
const HEAD_BYTES_MAX: usize = 1 << 10;

/// A verified cache; directory 0 is the root.
pub(crate) struct StatCache {
    file: File,
    can_write: bool,
    /// The file from offset `held_from` on. The first part of a large cache is not held: it is never overwritten.
    held: Vec<u8>,
    held_from: usize,
    parts: Parts,
    root: DirRef,
    foreign: Foreign,
}

/// The verified parts of a file.
struct Parts {
    version: Option<VersionId>,
    /// Offset and length of each directory in the file, by number.
    places: Vec<(usize, u32)>,
    /// Number of places that are not yet known.
    missing: usize,
    /// Number of directories for which the file has space.
    numbers_max: usize,
    /// End offsets of the first and of the last part.
    first_end: usize,
    end: usize,
    checksum: Checksum,
}

impl StatCache {
    /// Loads a cache. `None` if it is missing, damaged or belongs to another vault.
    #[must_use]
    pub(crate) fn load(path: &Path, vault_id: &str) -> Option<Self> {
        let writable = File::options().read(true).write(true).open(path);
        let can_write = writable.is_ok();
        let mut file = writable.or_else(|_| File::open(path)).ok()?;
        let length = file.metadata().ok()?.len();
        let (head, mut parts) = if length > HELD_BYTES_MAX {
            let mut head = vec![0; HEAD_BYTES_MAX];
            file.read_exact_at(&mut head, 0).ok()?;
            let mut parts = Parts::of_head(&head, vault_id, length).ok()?;
            parts.check_first(&mut file).ok()?;
            (head, parts)
        } else {
            let mut data = Vec::with_capacity(usize::try_from(length).ok()?);
            file.read_to_end(&mut data).ok()?;
            let parts = Parts::of_head(&data, vault_id, length).ok()?;
            (data, parts)
        };
        let foreign = Foreign::from_byte(*head.get(FOREIGN_AT)?);
        let (held, held_from) = if parts.first_end == 0 {
            (head, 0)
        } else {
            let mut rest = Vec::new();
            file.seek(SeekFrom::Start(parts.end as u64)).ok()?;
            file.read_to_end(&mut rest).ok()?;
            (rest, parts.end)
        };
        parts.check_held(&held, held_from).ok()?;
        let mut cache = Self { file, can_write, held, held_from, parts, root: NO_ROOT, foreign };
        cache.root = cache.dir_ref(0)?;
        Some(cache)
    }

    /// The tree the cache describes.
    #[must_use]
    pub(crate) fn root(&self) -> DirRef {
        self.root
    }

    #[must_use]
    pub(crate) fn foreign(&self) -> Foreign {
        self.foreign
    }

    /// Number of directories, including deleted ones: their numbers are not reused until the cache is rewritten.
    #[must_use]
    pub(crate) fn numbers(&self) -> u32 {
        u32::try_from(self.parts.places.len()).unwrap_or(u32::MAX)
    }

    /// The version with the content that the cache names: its blobs are only guaranteed to exist while it is kept.
    /// `None` if the import created no version.
    #[must_use]
    pub(crate) fn version(&self) -> Option<VersionId> {
        self.parts.version
    }

    /// A directory as encoded in the file, for [`decode_dir`].
    #[must_use]
    pub(crate) fn encoded(&self, number: u32) -> Option<Cow<'_, [u8]>> {
        let (at, length) = *self.parts.places.get(number as usize)?;
        let length = length as usize;
        if let Some(begin) = at.checked_sub(self.held_from) {
            return self.held.get(begin..begin + length).map(Cow::Borrowed);
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at as u64).ok()?;
        Some(Cow::Owned(bytes))
    }

    /// A directory without its entries.
    #[must_use]
    pub(crate) fn head(&self, number: u32) -> Option<CachedDir<'static>> {
        decode_head(&mut Decoder::new(&self.encoded(number)?)).ok()
    }

    /// The tree a directory was imported as.
    #[must_use]
    pub(crate) fn dir_ref(&self, number: u32) -> Option<DirRef> {
        self.head(number).map(|dir| dir.dir)
    }
}

impl Parts {
    /// Starts from the head of a file of this size, before any part is checked.
    fn of_head(data: &[u8], vault_id: &str, size: u64) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(data);
        if decoder.take(MAGIC.len())? != MAGIC || decoder.byte()? != FORMAT {
            return Err(DecodeError::Rule("it is not a stat cache"));
        }
        decoder.byte()?;
        if decoder.bytes()? != vault_id.as_bytes() {
            return Err(DecodeError::Rule("it belongs to another vault"));
        }
        let end = data.len() - decoder.left();
        let checksum = head_checksum(&data[..end]);
        let numbers_max = usize::try_from(size).unwrap_or(usize::MAX) / (NUMBER_BYTES + LENGTH_BYTES);
        let (version, places, missing, first_end) = (None, Vec::new(), 0, 0);
        Ok(Self { version, places, missing, numbers_max, first_end, end, checksum })
    }

    /// Checks the first part of a large file and indexes its directories, without holding the part in memory.
    fn check_first(&mut self, file: &mut File) -> io::Result<()> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        file.seek(SeekFrom::Start(self.end as u64))?;
        let mut input = BufReader::with_capacity(CHECK_BYTES, file);
        let mut length = [0; PART_BYTES];
        input.read_exact(&mut length)?;
        let mut left = usize::try_from(u64::from_le_bytes(length)).map_err(|_| bad())?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.checksum);
        let mut at = self.end + PART_BYTES;
        let mut version = [0; size_of::<VersionId>()];
        let mut number = [0; NUMBER_BYTES + LENGTH_BYTES];
        let mut body = Vec::new();
        let mut read = |into: &mut [u8]| -> io::Result<usize> {
            left = left.checked_sub(into.len()).ok_or_else(bad)?;
            input.read_exact(into)?;
            hasher.update(into);
            at += into.len();
            Ok(left)
        };
        let mut rest = read(&mut version)?;
        self.take_version(VersionId(version));
        let mut start = self.end + PART_BYTES + version.len();
        while rest > 0 {
            rest = read(&mut number)?;
            start += number.len();
            let (number, length) = number.split_at(NUMBER_BYTES);
            let (number, length) = (le_u32(number), le_u32(length));
            if length as usize > rest {
                return Err(bad());
            }
            self.add(number as usize, (start, length)).map_err(|_| bad())?;
            body.resize(length as usize, 0);
            rest = read(&mut body)?;
            start += length as usize;
        }
        let checksum: Checksum = *hasher.finalize().as_bytes();
        let mut stored = [0; size_of::<Checksum>()];
        input.read_exact(&mut stored)?;
        if stored != checksum || self.missing > 0 {
            return Err(bad());
        }
        self.checksum = checksum;
        self.end = start + stored.len();
        self.first_end = self.end;
        Ok(())
    }

    /// Checks and indexes the held parts, starting at the end of the checked parts.
    fn check_held(&mut self, held: &[u8], held_from: usize) -> Result<(), DecodeError> {
        let mut decoder = Decoder::new(&held[self.end - held_from..]);
        while let Some(body) = self.next(&mut decoder) {
            self.index(body, self.end + PART_BYTES)?;
            self.end = held_from + held.len() - decoder.left();
            if self.first_end == 0 {
                self.first_end = self.end;
            }
        }
        Ok(())
    }

    /// The next part. `None` if it is missing or its checksum is wrong.
    fn next<'a>(&mut self, decoder: &mut Decoder<'a>) -> Option<&'a [u8]> {
        let length = decoder.array::<PART_BYTES>().map(u64::from_le_bytes).ok()?;
        let body = decoder.take(usize::try_from(length).ok()?).ok()?;
        let checksum: Checksum = decoder.array().ok()?;
        if checksum != checksum_of(&self.checksum, body) {
            return None;
        }
        self.checksum = checksum;
        Some(body)
    }

    /// Indexes the directories of a part at this offset.
    fn index(&mut self, body: &[u8], at: usize) -> Result<(), DecodeError> {
        let mut decoder = Decoder::new(body);
        self.take_version(VersionId(decoder.digest()?));
        while decoder.left() > 0 {
            let number = decoder.array::<NUMBER_BYTES>().map(u32::from_le_bytes)? as usize;
            let length = decoder.array::<LENGTH_BYTES>().map(u32::from_le_bytes)?;
            let start = at + body.len() - decoder.left();
            decoder.take(length as usize)?;
            self.add(number, (start, length))?;
        }
        if self.missing > 0 { Err(DecodeError::Rule("a directory is missing")) } else { Ok(()) }
    }

    fn take_version(&mut self, version: VersionId) {
        self.version = Some(version).filter(|version| *version != NO_VERSION);
    }

    fn add(&mut self, number: usize, place: (usize, u32)) -> Result<(), DecodeError> {
        if number >= self.numbers_max {
            return Err(DecodeError::Rule("it has more directories than fit"));
        }
        if number >= self.places.len() {
            self.missing += number + 1 - self.places.len();
            self.places.resize(number + 1, MISSING);
        }
        if std::mem::replace(&mut self.places[number], place) == MISSING {
            self.missing -= 1;
        }
        Ok(())
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Placeholder until the root is read.
const NO_ROOT: DirRef = DirRef {
    tree: TreeId([0; 32]),
    content: ContentId([0; 32]),
    totals: Totals { entries: 0, bytes: 0, links: 0 },
};
/// A place that is not yet known: no directory is at the beginning of the file.
const MISSING: (usize, u32) = (0, 0);
/// Encodes that there is no version yet.
const NO_VERSION: VersionId = VersionId([0; 32]);
/// Size of the head of a part: its length, and the version.
const PART_HEAD_BYTES: usize = PART_BYTES + size_of::<VersionId>();

/// Checksum of the head, except the byte at [`FOREIGN_AT`], which changes.
fn head_checksum(head: &[u8]) -> Checksum {
    let (before, after) = (&head[..FOREIGN_AT], &head[FOREIGN_AT + 1..]);
    *blake3::Hasher::new().update(before).update(after).finalize().as_bytes()
}

fn checksum_of(before: &Checksum, body: &[u8]) -> Checksum {
    *blake3::Hasher::new().update(before).update(body).finalize().as_bytes()
}

#[cfg(test)]
mod tests;
