//! What a directory of the host looked like when it was imported last, so that unchanged files are not read.
//!
//! One file for each pair of vault and directory, on the host's side; replaced as a whole; worth nothing to
//! anyone else and safe to delete. A file changed within the clock's granularity of the scan is marked and
//! never trusted, as its next change might not show.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::hostfs::stat::{FileTime, HostKind, HostStat};
use crate::ids::{BlobId, ContentId, LinkId, TreeId};

use super::codec::{DecodeError, Decoder, put_bytes, put_number, put_time};
use super::page::{DirRef, FileContent, Totals};

const MAGIC: &[u8; 8] = b"avfsstat";
const FORMAT: u8 = 1;
const CHECKSUM_BYTES: usize = 32;
/// What stands before each directory.
const LENGTH_BYTES: usize = 4;

/// The stamp of a file: if it is the same, the file is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub mode: u32,
    pub size: u64,
    pub mtime: FileTime,
    pub ctime: FileTime,
    pub inode: u64,
}

impl Stamp {
    #[must_use]
    pub fn of(stat: &HostStat) -> Self {
        Self { mode: stat.mode, size: stat.size, mtime: stat.mtime, ctime: stat.ctime, inode: stat.inode }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, u64::from(self.mode));
        put_number(out, self.size);
        put_time(out, self.mtime);
        put_time(out, self.ctime);
        put_number(out, self.inode);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            mode: decoder.small()?,
            size: decoder.number()?,
            mtime: decoder.time()?,
            ctime: decoder.time()?,
            inode: decoder.number()?,
        })
    }
}

/// What a name in a directory was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedKind<'a> {
    File {
        content: FileContent,
        xattrs: Option<BlobId>,
    },
    Symlink {
        target: &'a [u8],
    },
    Fifo,
    /// The number of the directory in the cache.
    Dir(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedEntry<'a> {
    pub name: &'a [u8],
    pub stamp: Stamp,
    /// False if the file changed so close to the scan that its stamp proves nothing.
    pub settled: bool,
    pub link: Option<LinkId>,
    pub kind: CachedKind<'a>,
}

impl CachedEntry<'_> {
    /// True if a file that looks like this now is the one that was imported.
    #[must_use]
    pub fn vouches_for(&self, now: &HostStat) -> bool {
        let same_kind = match self.kind {
            CachedKind::File { .. } => now.kind == HostKind::File,
            CachedKind::Symlink { .. } => now.kind == HostKind::Symlink,
            CachedKind::Fifo => now.kind == HostKind::Fifo,
            CachedKind::Dir(_) => now.kind == HostKind::Dir,
        };
        same_kind && self.settled && self.stamp == Stamp::of(now)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedDir<'a> {
    pub mode: u32,
    pub mtime: FileTime,
    pub xattrs: Option<BlobId>,
    pub dir: DirRef,
    /// Sorted by name.
    pub entries: Vec<CachedEntry<'a>>,
}

/// A cache as it was read; directory 0 is the root.
pub struct StatCache {
    data: Vec<u8>,
    /// Where each directory lies in the data.
    starts: Vec<usize>,
    root: DirRef,
}

impl StatCache {
    /// Reads a cache; one that is missing, damaged or not this vault's is as good as none.
    #[must_use]
    pub fn load(path: &Path, vault_id: &str) -> Option<Self> {
        let data = std::fs::read(path).ok()?;
        let (body, checksum) = data.split_at_checked(data.len().checked_sub(CHECKSUM_BYTES)?)?;
        if blake3::hash(body).as_bytes() != checksum {
            return None;
        }
        let (starts, root) = Self::index(body, vault_id).ok()?;
        Some(Self { data, starts, root })
    }

    fn index(body: &[u8], vault_id: &str) -> Result<(Vec<usize>, DirRef), DecodeError> {
        let mut decoder = Decoder::new(body);
        if decoder.take(MAGIC.len())? != MAGIC || decoder.byte()? != FORMAT {
            return Err(DecodeError::Rule("it is not a stat cache"));
        }
        if decoder.bytes()? != vault_id.as_bytes() {
            return Err(DecodeError::Rule("it belongs to another vault"));
        }
        let count = decoder.number()?;
        let mut starts = Vec::new();
        for _ in 0..count {
            let length = decoder.array::<LENGTH_BYTES>().map(u32::from_le_bytes)? as usize;
            starts.push(body.len() - decoder.left());
            decoder.take(length)?;
        }
        decoder.end()?;
        let root = starts.first().ok_or(DecodeError::Short)?;
        let root = decode_head(&mut Decoder::new(&body[*root..]))?.dir;
        Ok((starts, root))
    }

    /// The tree the cache describes: only while the vault has it can its blobs be relied on.
    #[must_use]
    pub fn root(&self) -> DirRef {
        self.root
    }

    #[must_use]
    pub fn dir(&self, number: u32) -> Option<CachedDir<'_>> {
        let start = self.starts.get(number as usize)?;
        decode_dir(&self.data[*start..]).ok()
    }

    /// A directory as it stands in the file.
    #[must_use]
    pub fn encoded(&self, number: u32) -> Option<&[u8]> {
        let start = *self.starts.get(number as usize)?;
        let length =
            self.data[..start].last_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length))?;
        self.data.get(start..start + length as usize)
    }

    /// The tree a directory was imported as.
    #[must_use]
    pub fn dir_ref(&self, number: u32) -> Option<DirRef> {
        let start = self.starts.get(number as usize)?;
        decode_head(&mut Decoder::new(&self.data[*start..])).ok().map(|dir| dir.dir)
    }
}

/// A directory without its entries.
fn decode_head<'a>(decoder: &mut Decoder<'a>) -> Result<CachedDir<'a>, DecodeError> {
    let mode = decoder.small()?;
    let mtime = decoder.time()?;
    let xattrs = match decoder.byte()? {
        0 => None,
        _ => Some(BlobId(decoder.digest()?)),
    };
    let dir = DirRef {
        tree: TreeId(decoder.digest()?),
        content: ContentId(decoder.digest()?),
        totals: Totals { entries: decoder.number()?, bytes: decoder.number()?, links: decoder.number()? },
    };
    Ok(CachedDir { mode, mtime, xattrs, dir, entries: Vec::new() })
}

fn decode_dir(data: &[u8]) -> Result<CachedDir<'_>, DecodeError> {
    let mut decoder = Decoder::new(data);
    let mut dir = decode_head(&mut decoder)?;
    let count = usize::try_from(decoder.number()?).map_err(|_| DecodeError::Number)?;
    dir.entries.reserve(count.min(decoder.left()));
    for _ in 0..count {
        dir.entries.push(decode_entry(&mut decoder)?);
    }
    Ok(dir)
}

const SETTLED: u8 = 0x08;
const LINKED: u8 = 0x10;
const XATTRS: u8 = 0x20;
const CHUNKED: u8 = 0x40;

fn decode_entry<'a>(decoder: &mut Decoder<'a>) -> Result<CachedEntry<'a>, DecodeError> {
    let name = decoder.bytes()?;
    let tag = decoder.byte()?;
    let stamp = Stamp::decode(decoder)?;
    let link = if tag & LINKED == 0 { None } else { Some(LinkId(decoder.array()?)) };
    let kind = match tag & 7 {
        0 => {
            let id = BlobId(decoder.digest()?);
            let content = if tag & CHUNKED == 0 { FileContent::Whole(id) } else { FileContent::Chunked(id) };
            let xattrs = if tag & XATTRS == 0 { None } else { Some(BlobId(decoder.digest()?)) };
            CachedKind::File { content, xattrs }
        }
        1 => CachedKind::Symlink { target: decoder.bytes()? },
        2 => CachedKind::Fifo,
        3 => CachedKind::Dir(decoder.small()?),
        other => return Err(DecodeError::Unknown(u64::from(other), "kind of entry")),
    };
    Ok(CachedEntry { name, stamp, settled: tag & SETTLED != 0, link, kind })
}

fn encode_entry(entry: &CachedEntry<'_>, out: &mut Vec<u8>) {
    put_bytes(out, entry.name);
    let kind = match entry.kind {
        CachedKind::File { content, xattrs } => {
            let chunked = if matches!(content, FileContent::Chunked(_)) { CHUNKED } else { 0 };
            chunked | if xattrs.is_some() { XATTRS } else { 0 }
        }
        CachedKind::Symlink { .. } => 1,
        CachedKind::Fifo => 2,
        CachedKind::Dir(_) => 3,
    };
    let settled = if entry.settled { SETTLED } else { 0 };
    out.push(kind | settled | if entry.link.is_some() { LINKED } else { 0 });
    entry.stamp.encode(out);
    if let Some(link) = entry.link {
        out.extend_from_slice(&link.0);
    }
    match entry.kind {
        CachedKind::File { content, xattrs } => {
            out.extend_from_slice(&content.id().0);
            out.extend(xattrs.iter().flat_map(|id| id.0));
        }
        CachedKind::Symlink { target } => put_bytes(out, target),
        CachedKind::Fifo => {}
        CachedKind::Dir(number) => put_number(out, u64::from(number)),
    }
}

fn encode_dir(dir: &CachedDir<'_>, out: &mut Vec<u8>) {
    put_number(out, u64::from(dir.mode));
    put_time(out, dir.mtime);
    out.push(u8::from(dir.xattrs.is_some()));
    out.extend(dir.xattrs.iter().flat_map(|id| id.0));
    out.extend_from_slice(&dir.dir.tree.0);
    out.extend_from_slice(&dir.dir.content.0);
    for sum in [dir.dir.totals.entries, dir.dir.totals.bytes, dir.dir.totals.links] {
        put_number(out, sum);
    }
    put_number(out, dir.entries.len() as u64);
    for entry in &dir.entries {
        encode_entry(entry, out);
    }
}

/// The directories of a cache that is being made, by their numbers.
#[derive(Default)]
pub struct NewCache {
    data: Vec<u8>,
    dirs: u64,
}

impl NewCache {
    /// One that becomes about as long as another.
    #[must_use]
    pub fn like(old: Option<&StatCache>) -> Self {
        Self { data: Vec::with_capacity(old.map_or(0, |old| old.data.len())), dirs: 0 }
    }

    pub fn push(&mut self, dir: &CachedDir<'_>) {
        let at = self.data.len();
        self.data.extend_from_slice(&[0; LENGTH_BYTES]);
        encode_dir(dir, &mut self.data);
        // A length that does not fit makes a cache that cannot be read, which is as good as none.
        let length = u32::try_from(self.data.len() - at - LENGTH_BYTES).unwrap_or(u32::MAX);
        self.data[at..at + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.dirs += 1;
    }

    /// Adds a directory that is what it was, as [`StatCache::encoded`] gave it.
    pub fn push_encoded(&mut self, dir: &[u8]) {
        let length = u32::try_from(dir.len()).unwrap_or(u32::MAX);
        self.data.extend_from_slice(&length.to_le_bytes());
        self.data.extend_from_slice(dir);
        self.dirs += 1;
    }

    /// Replaces the cache file.
    pub fn save(&self, path: &Path, vault_id: &str) -> std::io::Result<()> {
        let mut head = MAGIC.to_vec();
        head.push(FORMAT);
        put_bytes(&mut head, vault_id.as_bytes());
        put_number(&mut head, self.dirs);
        let checksum = blake3::Hasher::new().update(&head).update(&self.data).finalize();
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        sweep(path)?;
        let unfinished = unfinished(path, &std::process::id().to_string());
        let mut file = File::create(&unfinished)?;
        for part in [&head, &self.data, checksum.as_bytes().as_slice()] {
            file.write_all(part)?;
        }
        std::fs::rename(&unfinished, path)
    }
}

const UNFINISHED: &str = ".new-";

fn unfinished(path: &Path, process: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.push(process);
    PathBuf::from(name)
}

/// Removes what processes left that died while they saved this cache.
fn sweep(path: &Path) -> std::io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    for entry in std::fs::read_dir(dir)? {
        let left = entry?.file_name();
        let rest = left.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let process = rest.and_then(|rest| rest.strip_prefix(UNFINISHED.as_bytes()));
        if let Some(process) = process.and_then(|process| std::str::from_utf8(process).ok())
            && !Path::new("/proc").join(process).exists()
        {
            std::fs::remove_file(dir.join(&left))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> CachedDir<'static> {
        let time = FileTime { seconds: 5, nanos: 7 };
        let stamp = Stamp { mode: 0o644, size: 3, mtime: time, ctime: time, inode: 99 };
        let entry = |name, kind| CachedEntry { name, stamp, settled: true, link: None, kind };
        CachedDir {
            mode: 0o755,
            mtime: time,
            xattrs: Some(BlobId([9; 32])),
            dir: DirRef { tree: TreeId([1; 32]), content: ContentId([2; 32]), totals: Totals::default() },
            entries: vec![
                entry(b"a", CachedKind::File { content: FileContent::Whole(BlobId([3; 32])), xattrs: None }),
                entry(b"b", CachedKind::Symlink { target: b"a" }),
                CachedEntry { link: Some(LinkId([4; 16])), settled: false, ..entry(b"c", CachedKind::Fifo) },
                entry(b"d", CachedKind::Dir(1)),
            ],
        }
    }

    fn save(path: &Path, dirs: &[CachedDir<'_>]) {
        let mut cache = NewCache::default();
        dirs.iter().for_each(|dir| cache.push(dir));
        cache.save(path, "v1").unwrap();
    }

    #[test]
    fn a_cache_round_trips_and_is_bound_to_its_vault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/cache");
        save(&path, &[sample(), sample()]);
        let cache = StatCache::load(&path, "v1").unwrap();
        assert_eq!(cache.dir(1).unwrap(), sample());
        assert!(cache.dir(2).is_none());
        let mut copy = NewCache::like(Some(&cache));
        copy.push_encoded(cache.encoded(0).unwrap());
        copy.push_encoded(cache.encoded(1).unwrap());
        assert!(cache.encoded(2).is_none());
        let before = std::fs::read(&path).unwrap();
        copy.save(&path, "v1").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert!(StatCache::load(&path, "v2").is_none());
    }

    #[test]
    fn leftovers_of_dead_processes_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        // No process can have this number.
        std::fs::write(unfinished(&path, "4194305"), "half").unwrap();
        std::fs::write(unfinished(&path, "1"), "alive").unwrap();
        save(&path, &[sample()]);
        assert!(!unfinished(&path, "4194305").exists());
        assert!(unfinished(&path, "1").exists());
    }

    #[test]
    fn a_damaged_cache_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        save(&path, &[sample()]);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut data = whole.clone();
            data[at] ^= 1;
            std::fs::write(&path, &data).unwrap();
            assert!(StatCache::load(&path, "v1").is_none(), "byte {at} went unnoticed");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(StatCache::load(&path, "v1").is_none(), "a cut at {at} went unnoticed");
        }
    }
}
