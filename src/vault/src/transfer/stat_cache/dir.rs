//! The cached state of a directory and its entries, and its encoding.

use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::clock::FileTime;
use avfs_types::encode::{put_bytes, put_number};
use avfs_types::ids::{BlobId, ContentId, LinkId, TreeId};

use crate::codec::{DecodeError, Decoder, put_time};
use crate::page::{DirRef, FileContent, Totals};

/// The stamp of a file: if the stamp is the same, the file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub mode: u32,
    pub(crate) size: u64,
    pub(crate) mtime: FileTime,
    pub(crate) ctime: FileTime,
    pub(crate) inode: u64,
}

impl Stamp {
    #[must_use]
    pub(crate) fn of(stat: &HostStat) -> Self {
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

/// The kind of a cached entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedKind<'a> {
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
pub(crate) struct CachedEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) stamp: Stamp,
    /// False if the file changed so shortly before the scan that its stamp proves nothing.
    pub(crate) settled: bool,
    pub(crate) link: Option<LinkId>,
    pub(crate) kind: CachedKind<'a>,
}

impl CachedEntry<'_> {
    /// True if a file with these stat data is unchanged since the import.
    #[must_use]
    pub(crate) fn vouches_for(&self, now: &HostStat) -> bool {
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
pub(crate) struct CachedDir<'a> {
    pub mode: u32,
    pub(crate) mtime: FileTime,
    pub(crate) xattrs: Option<BlobId>,
    /// No entry in it or beneath it was missing. A missing entry was added to the version from elsewhere, and the tree
    /// without it belongs to no version.
    pub(crate) complete: bool,
    pub(crate) dir: DirRef,
    /// Sorted by name.
    pub(crate) entries: Vec<CachedEntry<'a>>,
}

const WITH_XATTRS: u8 = 0x01;
const COMPLETE: u8 = 0x02;

/// A directory without its entries.
pub(super) fn decode_head<'a>(decoder: &mut Decoder<'_>) -> Result<CachedDir<'a>, DecodeError> {
    let mode = decoder.small()?;
    let mtime = decoder.time()?;
    let flags = decoder.byte()?;
    let complete = flags & COMPLETE != 0;
    let xattrs = (flags & WITH_XATTRS != 0).then(|| decoder.digest().map(BlobId)).transpose()?;
    let dir = DirRef {
        tree: TreeId(decoder.digest()?),
        content: ContentId(decoder.digest()?),
        totals: Totals { entries: decoder.number()?, bytes: decoder.number()?, links: decoder.number()? },
    };
    Ok(CachedDir { mode, mtime, xattrs, complete, dir, entries: Vec::new() })
}

pub(crate) fn decode_dir(data: &[u8]) -> Result<CachedDir<'_>, DecodeError> {
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

pub(crate) fn decode_entry<'a>(decoder: &mut Decoder<'a>) -> Result<CachedEntry<'a>, DecodeError> {
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

pub(crate) fn encode_entry(entry: &CachedEntry<'_>, out: &mut Vec<u8>) {
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

pub(super) fn encode_dir(dir: &CachedDir<'_>, out: &mut Vec<u8>) {
    put_number(out, u64::from(dir.mode));
    put_time(out, dir.mtime);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(flag(dir.xattrs.is_some(), WITH_XATTRS) | flag(dir.complete, COMPLETE));
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
