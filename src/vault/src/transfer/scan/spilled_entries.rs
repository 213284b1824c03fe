//! Entries of scanned directories that wait for the end of the scan, encoded and spilled.

use std::path::PathBuf;

use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::clock::FileTime;
use avfs_types::encode::put_number;
use avfs_types::ids::LinkId;

use super::entry::{ScannedDir, ScannedEntry, What};
use crate::codec::{DecodeError, Decoder};
use crate::spill::Spill;
use crate::stat_cache::{CachedEntry, CachedKind, Stamp, decode_entry, encode_entry};
use crate::{Result, VaultError};

#[derive(Default)]
pub(super) struct SpilledEntries(Spill);

/// The place of a directory's entries.
pub(super) struct EntriesAt {
    at: u64,
    length: usize,
}

impl SpilledEntries {
    pub(super) fn new(places: &[PathBuf]) -> Self {
        Self(Spill::new(places))
    }

    /// Takes the entries of a host directory in which every file was read.
    pub(super) fn push<D>(&mut self, dir: &mut ScannedDir<D>) -> EntriesAt {
        let mut encoded = Vec::new();
        for entry in std::mem::take(&mut dir.entries) {
            match cached_entry(&entry, None) {
                Some(cached) => {
                    encode_entry(&cached, &mut encoded);
                    put_number(&mut encoded, entry.stat.device);
                    put_number(&mut encoded, entry.stat.links);
                }
                None => dir.complete = false,
            }
        }
        EntriesAt { at: self.0.push(&encoded), length: encoded.len() }
    }

    /// The entries, without the parts of their stats that no tree contains.
    pub(super) fn read(&self, place: &EntriesAt) -> Result<Vec<ScannedEntry>> {
        let encoded = self.0.read(place.at, place.length).map_err(VaultError::Input)?;
        let mut decoder = Decoder::new(&encoded);
        let mut entries = Vec::new();
        while decoder.left() > 0 {
            let read = read_entry(&mut decoder);
            entries.push(read.map_err(|error| VaultError::Input(std::io::Error::other(error)))?);
        }
        Ok(entries)
    }
}

fn read_entry(decoder: &mut Decoder<'_>) -> std::result::Result<ScannedEntry, DecodeError> {
    let cached = decode_entry(decoder)?;
    let (what, kind) = match cached.kind {
        CachedKind::File { content, xattrs } => (What::File { content, xattrs }, HostKind::File),
        CachedKind::Symlink { target } => (What::Symlink { target: target.to_vec() }, HostKind::Symlink),
        CachedKind::Fifo => (What::Fifo, HostKind::Fifo),
        CachedKind::Dir(number) => (What::Dir(number), HostKind::Dir),
    };
    let Stamp { mode, size, mtime, ctime, inode } = cached.stamp;
    let (device, links) = (decoder.number()?, decoder.number()?);
    let (atime, owner, group) = (FileTime::default(), 0, 0);
    let stat = HostStat { kind, mode, size, mtime, ctime, atime, device, inode, links, owner, group };
    Ok(ScannedEntry { name: cached.name.to_vec(), stat, what, settled: cached.settled })
}

/// The entry as the stat cache records it. `None` if it is missing.
pub(super) fn cached_entry(entry: &ScannedEntry, link: Option<LinkId>) -> Option<CachedEntry<'_>> {
    let kind = match &entry.what {
        What::File { content, xattrs } => CachedKind::File { content: *content, xattrs: *xattrs },
        What::Symlink { target } => CachedKind::Symlink { target },
        What::Fifo => CachedKind::Fifo,
        What::Dir(number) => CachedKind::Dir(*number),
        What::Pending | What::Gone | What::Whiteout => return None,
    };
    let stamp = Stamp::of(&entry.stat);
    Some(CachedEntry { name: &entry.name, stamp, settled: entry.settled, link, kind })
}
