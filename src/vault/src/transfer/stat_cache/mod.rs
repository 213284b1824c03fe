//! What a directory of the host looked like when it was imported last, so that unchanged files are not read.
//!
//! One file for each pair of vault and directory, on the host's side; worth nothing to anyone else and safe to
//! delete. A file changed within the clock's granularity of the scan is marked and never trusted, as its next
//! change might not show.
//!
//! The file is a head and parts. The first part has every directory, each further one those that an import has
//! found changed or new; each begins with the version that the import made. A checksum goes over a part and all before it; where one is wrong, somebody died or two
//! wrote at once, and what is there up to it is a cache like any other, of an import before.

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
pub(crate) use dir::{CachedDir, CachedEntry, CachedKind, Stamp, decode_dir};
pub(crate) use new_cache::{NewCache, NewDirs};

const MAGIC: &[u8; 8] = b"avfsstat";
const FORMAT: u8 = 5;
/// Where what is known of foreign files stands, in one byte that no checksum covers.
const FOREIGN_AT: usize = MAGIC.len() + 1;
type Checksum = [u8; 32];
/// The length of a part, and what stands before each directory in it: its number and its length.
const PART_BYTES: usize = 8;
const NUMBER_BYTES: usize = 4;
const LENGTH_BYTES: usize = 4;

/// What of a directory no sandbox of its user can map, so that the directory cannot be a lower layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Files of another user or group.
    pub owners: bool,
    /// Files whose access list names another user or group.
    pub lists: bool,
}

impl Foreign {
    /// What the last import of a directory found, from its stat cache; nothing where there is none. Reads some bytes.
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

    /// True if there is something of the kind.
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

/// A cache of more bytes is not held in memory: its directories are read one at a time.
const HELD_BYTES_MAX: u64 = 2 << 20;
/// Bytes read at once while such a cache is checked.
const CHECK_BYTES: usize = 256 << 10;
/// What the head of a cache fits in: the name of its vault is 32 digits.
const HEAD_BYTES_MAX: usize = 1 << 10;

/// A cache that was checked; directory 0 is the root.
pub(crate) struct StatCache {
    file: File,
    can_write: bool,
    /// The end of the file, from `held_from` on. The first part of a large cache is not held: it is never written over.
    held: Vec<u8>,
    held_from: usize,
    parts: Parts,
    root: DirRef,
    foreign: Foreign,
}

/// What is believed of a file.
struct Parts {
    version: Option<VersionId>,
    /// Where each directory lies in the file, and its length.
    places: Vec<(usize, u32)>,
    /// Where the first part ends, and the last.
    first_end: usize,
    end: usize,
    checksum: Checksum,
}

impl StatCache {
    /// Reads a cache; one that is missing, damaged or not this vault's is as good as none.
    #[must_use]
    pub(crate) fn load(path: &Path, vault_id: &str) -> Option<Self> {
        let writable = File::options().read(true).write(true).open(path);
        let can_write = writable.is_ok();
        let mut file = writable.or_else(|_| File::open(path)).ok()?;
        let length = file.metadata().ok()?.len();
        let (head, mut parts) = if length > HELD_BYTES_MAX {
            let mut head = vec![0; HEAD_BYTES_MAX];
            file.read_exact_at(&mut head, 0).ok()?;
            let mut parts = Parts::of_head(&head, vault_id).ok()?;
            parts.check_first(&mut file).ok()?;
            (head, parts)
        } else {
            let mut data = Vec::with_capacity(usize::try_from(length).ok()?);
            file.read_to_end(&mut data).ok()?;
            let parts = Parts::of_head(&data, vault_id).ok()?;
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

    /// Directories it has, those that are gone included: their numbers are not given again before it is written anew.
    #[must_use]
    pub(crate) fn numbers(&self) -> u32 {
        u32::try_from(self.parts.places.len()).unwrap_or(u32::MAX)
    }

    /// The version that has what the cache names: only while that is kept can its blobs be relied on. None while the
    /// import has made none.
    #[must_use]
    pub(crate) fn version(&self) -> Option<VersionId> {
        self.parts.version
    }

    /// A directory as it stands in the file, for [`decode_dir`].
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
    /// Those of a file of which only the head was looked at.
    fn of_head(data: &[u8], vault_id: &str) -> Result<Self, DecodeError> {
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
        Ok(Self { version: None, places: Vec::new(), first_end: 0, end, checksum })
    }

    /// Checks the first part of a large file and finds the directories in it, in little memory.
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
        let mut told = [0; size_of::<Checksum>()];
        input.read_exact(&mut told)?;
        if told != checksum {
            return Err(bad());
        }
        self.checksum = checksum;
        self.end = start + told.len();
        self.first_end = self.end;
        Ok(())
    }

    /// Finds the directories of the parts that are held, from the end of what was checked on.
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

    /// The next part, if there is one that is whole.
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

    /// Finds the directories of a part that lies here.
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
        Ok(())
    }

    fn take_version(&mut self, version: VersionId) {
        self.version = Some(version).filter(|version| *version != NO_VERSION);
    }

    fn add(&mut self, number: usize, place: (usize, u32)) -> Result<(), DecodeError> {
        let known = self.places.len();
        match self.places.get_mut(number) {
            Some(before) => *before = place,
            None if number == known => self.places.push(place),
            None => return Err(DecodeError::Rule("a directory is missing")),
        }
        Ok(())
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Stands where the root was not read yet.
const NO_ROOT: DirRef = DirRef {
    tree: TreeId([0; 32]),
    content: ContentId([0; 32]),
    totals: Totals { entries: 0, bytes: 0, links: 0 },
};
/// Stands where there is no version yet.
const NO_VERSION: VersionId = VersionId([0; 32]);
/// What is known of a part when it is saved: its length, and the version.
const PART_HEAD_BYTES: usize = PART_BYTES + size_of::<VersionId>();

/// Of everything but the byte that changes.
fn head_checksum(head: &[u8]) -> Checksum {
    let (before, after) = (&head[..FOREIGN_AT], &head[FOREIGN_AT + 1..]);
    *blake3::Hasher::new().update(before).update(after).finalize().as_bytes()
}

fn checksum_of(before: &Checksum, body: &[u8]) -> Checksum {
    *blake3::Hasher::new().update(before).update(body).finalize().as_bytes()
}

#[cfg(test)]
mod tests;
