//! Writes a stat cache: appends the changes, or replaces the file. The directories of a large first import are spilled
//! as they are found, to a file that becomes the cache.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};

use avfs_hostfs::make;
use avfs_types::encode::put_bytes;
use avfs_types::ids::VersionId;

use super::dir::encode_dir;
use super::{
    CHECK_BYTES, CachedDir, CachedKind, Checksum, FOREIGN_AT, FORMAT, Foreign, LENGTH_BYTES, MAGIC,
    NO_VERSION, NUMBER_BYTES, PART_BYTES, PART_HEAD_BYTES, StatCache, decode_dir, head_checksum,
};
use crate::spill::Spill;

/// Size of the head of the file and of the head of the first part: the id of a vault has 32 digits.
pub(super) const FIRST_DIR_AT: u64 = (FOREIGN_AT + 2 + 32 + PART_HEAD_BYTES) as u64;

/// Encoded directories for a new cache, in the order of arrival.
#[derive(Default)]
pub(crate) struct NewDirs {
    /// A first part without its head and checksum, at its offset.
    bytes: Spill,
    /// Number, offset and length of each.
    dirs: Vec<(u32, u64, u32)>,
    /// By number: whether the directory exists.
    live: Vec<bool>,
}

impl NewDirs {
    pub(crate) fn new(places: &[PathBuf]) -> Self {
        Self { bytes: Spill::after_gap(places, FIRST_DIR_AT), ..Self::default() }
    }

    /// Marks a directory as existing. Returns false if it was already marked.
    pub(crate) fn claim(&mut self, number: u32) -> bool {
        let number = number as usize;
        if self.live.len() <= number {
            self.live.resize(number + 1, false);
        }
        !std::mem::replace(&mut self.live[number], true)
    }

    /// Marks a directory as missing.
    pub(crate) fn disclaim(&mut self, number: u32) {
        if let Some(live) = self.live.get_mut(number as usize) {
            *live = false;
        }
    }

    /// Adds a directory that differs from the old cache.
    pub(crate) fn push(&mut self, number: u32, dir: &CachedDir<'_>) {
        let mut encoded = vec![0; NUMBER_BYTES + LENGTH_BYTES];
        encode_dir(dir, &mut encoded);
        // A length that does not fit makes the cache invalid, which is the same as having no cache.
        let length = u32::try_from(encoded.len() - NUMBER_BYTES - LENGTH_BYTES).unwrap_or(u32::MAX);
        encoded[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        encoded[NUMBER_BYTES..][..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.claim(number);
        let at = self.bytes.push(&encoded);
        self.dirs.push((number, at + (NUMBER_BYTES + LENGTH_BYTES) as u64, length));
    }

    /// True if no directory differs from the old cache.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }
}

/// A new cache: the changes to an old one, or all directories.
pub(crate) struct NewCache<'a> {
    old: Option<&'a StatCache>,
    dirs: NewDirs,
}

impl<'a> NewCache<'a> {
    /// The directories of `old` with the changes in `dirs`.
    #[must_use]
    pub(crate) fn after(old: Option<&'a StatCache>, mut dirs: NewDirs) -> Self {
        dirs.dirs.sort_unstable_by_key(|(number, _, _)| *number);
        Self { old, dirs }
    }

    /// An unchanged copy of another cache.
    #[must_use]
    pub(crate) fn again(old: &'a StatCache) -> Self {
        let dirs = NewDirs { live: vec![true; old.parts.places.len()], ..NewDirs::default() };
        Self { old: Some(old), dirs }
    }

    /// The old cache, if the changes can be appended to it: all directories keep their numbers, new numbers follow
    /// without a gap, and the appended parts do not grow too large, since every import reads them all.
    pub(super) fn onto(&self) -> Option<&'a StatCache> {
        let old = self.old.filter(|old| old.can_write)?;
        let known = old.parts.places.len();
        let has_gaps = self.dirs.live.iter().skip(known).any(|live| !live);
        let parts = &old.parts;
        let is_too_much = parts.end - parts.first_end + self.part_bytes() > parts.first_end / 2;
        Some(old).filter(|_| !has_gaps && !is_too_much)
    }

    fn part_bytes(&self) -> usize {
        let dir = |(_, _, length): &(u32, u64, u32)| NUMBER_BYTES + LENGTH_BYTES + *length as usize;
        PART_HEAD_BYTES + self.dirs.dirs.iter().map(dir).sum::<usize>()
    }

    /// Replaces the cache file, or appends the changes after its verified parts. `version` is the version that the
    /// directory was imported as.
    pub(crate) fn save(
        mut self,
        path: &Path,
        vault_id: &str,
        version: Option<VersionId>,
        foreign: Foreign,
    ) -> io::Result<()> {
        avfs_types::pause::point("cache-save");
        let version = version.unwrap_or(NO_VERSION);
        if let Some(old) = self.onto() {
            let file = &old.file;
            if file.metadata()?.mode() & 0o077 != 0 {
                file.set_permissions(Permissions::from_mode(0o600))?;
            }
            file.write_all_at(&[foreign.byte()], FOREIGN_AT as u64)?;
            let mut part = PartWriter::new(file, old.parts.end as u64, &old.parts.checksum);
            part.begin(self.part_bytes() - PART_BYTES, &version)?;
            for (number, at, length) in &self.dirs.dirs {
                part.dir(*number, &self.dirs.bytes.read(*at, *length as usize)?)?;
            }
            return part.finish();
        }
        let mut head = MAGIC.to_vec();
        head.extend([FORMAT, foreign.byte()]);
        put_bytes(&mut head, vault_id.as_bytes());
        // Private: the cache has names, and digests from which short content can be guessed, of directories that other
        // users may not be able to read.
        if let Some(parent) = path.parent() {
            make::private_dirs(parent)?;
        }
        sweep(path)?;
        let unfinished = unfinished(path, &std::process::id().to_string());
        if !self.complete_spilled(&unfinished, &head, &version)? {
            let file =
                File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all_at(&head, 0)?;
            self.write_all(&file, &head, &version)?;
        }
        avfs_types::pause::point("cache-rename");
        std::fs::rename(&unfinished, path)
    }

    /// Completes and links the file with the spilled directories if these are the whole cache and the file is on the
    /// same file system: otherwise returns false.
    fn complete_spilled(&mut self, link: &Path, head: &[u8], version: &VersionId) -> io::Result<bool> {
        let is_whole = self.old.is_none() && self.dirs.live.iter().all(|live| *live);
        if !is_whole || (head.len() + PART_HEAD_BYTES) as u64 != FIRST_DIR_AT {
            return Ok(false);
        }
        let Some((file, end)) = self.dirs.bytes.whole_file()? else { return Ok(false) };
        match std::fs::remove_file(link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let by_fd = format!("/proc/self/fd/{}", file.as_raw_fd());
        if rustix::fs::linkat(CWD, by_fd, CWD, link, AtFlags::SYMLINK_FOLLOW).is_err() {
            return Ok(false);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&head_checksum(head)).update(version.as_bytes());
        let mut buffer = vec![0; CHECK_BYTES];
        let mut at = FIRST_DIR_AT;
        while at < end {
            let take = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            file.read_exact_at(&mut buffer[..take], at)?;
            hasher.update(&buffer[..take]);
            at += take as u64;
        }
        let mut start = head.to_vec();
        start.extend((end - (head.len() + PART_BYTES) as u64).to_le_bytes());
        start.extend(version.as_bytes());
        file.write_all_at(&start, 0)?;
        file.write_all_at(hasher.finalize().as_bytes(), end)?;
        Ok(true)
    }

    /// Writes every existing directory, renumbered without gaps.
    fn write_all(&self, file: &File, head: &[u8], version: &VersionId) -> io::Result<()> {
        let numbers = self.numbers();
        let mut part = PartWriter::new(file, head.len() as u64, &head_checksum(head));
        let mut new = self.dirs.dirs.iter().peekable();
        part.begin(0, version)?;
        for (number, now) in (0..).zip(&numbers) {
            let new = new.next_if(|(new, _, _)| *new == number);
            let Some(now) = *now else { continue };
            let encoded = match new {
                Some((_, at, length)) => Some(self.dirs.bytes.read(*at, *length as usize)?),
                None => self.old.and_then(|old| old.encoded(number)),
            };
            let lost = || io::Error::from(io::ErrorKind::InvalidData);
            let encoded = encoded.ok_or_else(lost)?;
            let moved = renumbered(&encoded, &numbers).ok_or_else(lost)?;
            part.dir(now, moved.as_deref().unwrap_or(&encoded))?;
        }
        part.finish_unknown()
    }

    /// Maps old numbers to the new numbers of existing directories.
    fn numbers(&self) -> Vec<Option<u32>> {
        let mut next = 0;
        let number = |live: &bool| {
            live.then(|| {
                next += 1;
                next - 1
            })
        };
        self.dirs.live.iter().map(number).collect()
    }
}

/// An encoded directory with the new numbers of its subdirectories. The inner option is `None` if no number changes.
fn renumbered(encoded: &[u8], numbers: &[Option<u32>]) -> Option<Option<Vec<u8>>> {
    let mut dir = decode_dir(encoded).ok()?;
    let mut moved = false;
    for entry in &mut dir.entries {
        if let CachedKind::Dir(number) = &mut entry.kind {
            let now = numbers.get(*number as usize).copied().flatten()?;
            moved |= std::mem::replace(number, now) != now;
        }
    }
    Some(moved.then(|| {
        let mut encoded = Vec::new();
        encode_dir(&dir, &mut encoded);
        encoded
    }))
}

/// Writes one part.
struct PartWriter<'f> {
    file: &'f File,
    start: u64,
    /// File offset of `held`.
    at: u64,
    held: Vec<u8>,
    hasher: blake3::Hasher,
}

impl<'f> PartWriter<'f> {
    fn new(file: &'f File, start: u64, before: &Checksum) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(before);
        Self { file, start, at: start, held: Vec::new(), hasher }
    }

    fn begin(&mut self, length: usize, version: &VersionId) -> io::Result<()> {
        self.held.extend_from_slice(&(length as u64).to_le_bytes());
        self.add(version.as_bytes())
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.held.extend_from_slice(bytes);
        if self.held.len() >= CHECK_BYTES { self.flush() } else { Ok(()) }
    }

    fn dir(&mut self, number: u32, encoded: &[u8]) -> io::Result<()> {
        self.add(&number.to_le_bytes())?;
        // See [`NewDirs::push`].
        self.add(&u32::try_from(encoded.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        self.add(encoded)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.held, self.at)?;
        self.at += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        let checksum = self.hasher.finalize();
        self.held.extend_from_slice(checksum.as_bytes());
        self.flush()
    }

    /// Like [`Self::finish`], for a part whose length is only known now.
    fn finish_unknown(self) -> io::Result<()> {
        let (file, start) = (self.file, self.start);
        let length = self.at + self.held.len() as u64 - start - PART_BYTES as u64;
        self.finish()?;
        file.write_all_at(&length.to_le_bytes(), start)
    }
}

const UNFINISHED: &str = ".new-";

pub(crate) fn unfinished(path: &Path, process: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.push(process);
    PathBuf::from(name)
}

/// Removes leftovers of processes that died while saving this cache.
fn sweep(path: &Path) -> io::Result<()> {
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
