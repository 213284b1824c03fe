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

use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use avfs_hostfs::make;
use avfs_types::encode::put_bytes;
use avfs_types::ids::VersionId;

use crate::codec::{DecodeError, Decoder};
use crate::page::DirRef;

pub(crate) use dir::{CachedDir, CachedEntry, CachedKind, Stamp};
use dir::{decode_dir, decode_head, encode_dir};

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

/// A cache as it was read; directory 0 is the root.
pub(crate) struct StatCache {
    data: Vec<u8>,
    parts: Parts,
    root: DirRef,
    foreign: Foreign,
    /// Where it was read from, if more can be written there.
    file: Option<File>,
}

/// What is believed of a file.
struct Parts {
    version: Option<VersionId>,
    /// Where each directory lies in the data.
    starts: Vec<usize>,
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
        let mut data = Vec::with_capacity(usize::try_from(length).ok()?);
        file.read_to_end(&mut data).ok()?;
        let parts = Parts::of(&data, vault_id).ok()?;
        let root = decode_head(&mut Decoder::new(&data[*parts.starts.first()?..])).ok()?.dir;
        let foreign = Foreign::from_byte(data[FOREIGN_AT]);
        Some(Self { data, parts, root, foreign, file: Some(file).filter(|_| can_write) })
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

    /// The version that has what the cache names: only while that is kept can its blobs be relied on. None while the
    /// import has made none.
    #[must_use]
    pub(crate) fn version(&self) -> Option<VersionId> {
        self.parts.version
    }

    #[must_use]
    pub(crate) fn dir(&self, number: u32) -> Option<CachedDir<'_>> {
        let start = self.parts.starts.get(number as usize)?;
        decode_dir(&self.data[*start..]).ok()
    }

    /// A directory as it stands in the file.
    #[must_use]
    pub(crate) fn encoded(&self, number: u32) -> Option<&[u8]> {
        let start = *self.parts.starts.get(number as usize)?;
        let length =
            self.data[..start].last_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length))?;
        self.data.get(start..start + length as usize)
    }

    /// The tree a directory was imported as.
    #[must_use]
    pub(crate) fn dir_ref(&self, number: u32) -> Option<DirRef> {
        let start = self.parts.starts.get(number as usize)?;
        decode_head(&mut Decoder::new(&self.data[*start..])).ok().map(|dir| dir.dir)
    }
}

impl Parts {
    fn of(data: &[u8], vault_id: &str) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(data);
        if decoder.take(MAGIC.len())? != MAGIC || decoder.byte()? != FORMAT {
            return Err(DecodeError::Rule("it is not a stat cache"));
        }
        decoder.byte()?;
        if decoder.bytes()? != vault_id.as_bytes() {
            return Err(DecodeError::Rule("it belongs to another vault"));
        }
        let head_end = data.len() - decoder.left();
        let checksum = head_checksum(&data[..head_end]);
        let mut parts = Self { version: None, starts: Vec::new(), first_end: 0, end: head_end, checksum };
        while let Some(body) = parts.next(&mut decoder) {
            parts.index(body, parts.end + PART_BYTES)?;
            parts.end = data.len() - decoder.left();
            if parts.first_end == 0 {
                parts.first_end = parts.end;
            }
        }
        Ok(parts)
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
        let version = VersionId(decoder.digest()?);
        self.version = Some(version).filter(|version| *version != NO_VERSION);
        while decoder.left() > 0 {
            let number = decoder.array::<NUMBER_BYTES>().map(u32::from_le_bytes)? as usize;
            let length = decoder.array::<LENGTH_BYTES>().map(u32::from_le_bytes)? as usize;
            let start = at + body.len() - decoder.left();
            decoder.take(length)?;
            let known = self.starts.len();
            match self.starts.get_mut(number) {
                Some(before) => *before = start,
                None if number == known => self.starts.push(start),
                None => return Err(DecodeError::Rule("a directory is missing")),
            }
        }
        Ok(())
    }
}

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

/// A cache that is being made: all directories, or those that are not what they were in another.
pub(crate) struct NewCache<'a> {
    onto: Option<(&'a File, &'a Parts)>,
    /// The part, behind room for its head.
    part: Vec<u8>,
}

impl<'a> NewCache<'a> {
    /// One that becomes about as long as another.
    #[must_use]
    pub(crate) fn like(old: Option<&StatCache>) -> Self {
        let mut part = Vec::with_capacity(old.map_or(PART_HEAD_BYTES, |old| old.data.len()));
        part.extend_from_slice(&[0; PART_HEAD_BYTES]);
        Self { onto: None, part }
    }

    /// What has changed in another, if that can be written: all directories keep their numbers, and new ones follow.
    #[must_use]
    pub(crate) fn onto(old: &'a StatCache) -> Option<Self> {
        let file = old.file.as_ref()?;
        Some(Self { onto: Some((file, &old.parts)), part: vec![0; PART_HEAD_BYTES] })
    }

    /// The same as another.
    #[must_use]
    pub(crate) fn again(old: &'a StatCache) -> Self {
        let added = Self::onto(old).filter(|added| !added.is_too_much());
        added.unwrap_or_else(|| {
            let mut all = Self::like(Some(old));
            let dirs = (0..).map_while(|number| Some((number, old.encoded(number)?)));
            dirs.for_each(|(number, dir)| all.keep(number, dir));
            all
        })
    }

    /// True if it is better told anew than added: every import reads all that was added.
    #[must_use]
    pub(crate) fn is_too_much(&self) -> bool {
        let too_long = |old: &Parts| old.end - old.first_end + self.part.len() > old.first_end / 2;
        self.onto.is_some_and(|(_, old)| too_long(old))
    }

    pub(crate) fn push(&mut self, number: u32, dir: &CachedDir<'_>) {
        self.part.extend_from_slice(&number.to_le_bytes());
        let at = self.part.len();
        self.part.extend_from_slice(&[0; LENGTH_BYTES]);
        encode_dir(dir, &mut self.part);
        // A length that does not fit makes a cache that cannot be read, which is as good as none.
        let length = u32::try_from(self.part.len() - at - LENGTH_BYTES).unwrap_or(u32::MAX);
        self.part[at..at + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    }

    /// Has a directory as it was, as [`StatCache::encoded`] gave it.
    pub(crate) fn keep(&mut self, number: u32, dir: &[u8]) {
        if self.onto.is_some() {
            return;
        }
        self.part.extend_from_slice(&number.to_le_bytes());
        let length = u32::try_from(dir.len()).unwrap_or(u32::MAX);
        self.part.extend_from_slice(&length.to_le_bytes());
        self.part.extend_from_slice(dir);
    }

    /// Replaces the cache file, or writes what has changed behind what is believed of it. `version` is what the
    /// directory was imported as.
    pub(crate) fn save(
        mut self,
        path: &Path,
        vault_id: &str,
        version: Option<VersionId>,
        foreign: Foreign,
    ) -> std::io::Result<()> {
        avfs_types::pause::point("cache-save");
        let length = (self.part.len() - PART_BYTES) as u64;
        self.part[..PART_BYTES].copy_from_slice(&length.to_le_bytes());
        self.part[PART_BYTES..PART_HEAD_BYTES].copy_from_slice(version.unwrap_or(NO_VERSION).as_bytes());
        if let Some((file, old)) = self.onto {
            if file.metadata()?.mode() & 0o077 != 0 {
                file.set_permissions(Permissions::from_mode(0o600))?;
            }
            self.part.extend(checksum_of(&old.checksum, &self.part[PART_BYTES..]));
            file.write_all_at(&[foreign.byte()], FOREIGN_AT as u64)?;
            return file.write_all_at(&self.part, old.end as u64);
        }
        let mut head = MAGIC.to_vec();
        head.extend([FORMAT, foreign.byte()]);
        put_bytes(&mut head, vault_id.as_bytes());
        self.part.extend(checksum_of(&head_checksum(&head), &self.part[PART_BYTES..]));
        // Names, and digests by which short content can be guessed, of directories that may be closed to others.
        if let Some(parent) = path.parent() {
            make::private_dirs(parent)?;
        }
        sweep(path)?;
        let unfinished = unfinished(path, &std::process::id().to_string());
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&head)?;
        file.write_all(&self.part)?;
        avfs_types::pause::point("cache-rename");
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
    use avfs_types::clock::FileTime;
    use avfs_types::ids::{BlobId, ContentId, LinkId, TreeId};

    use super::*;
    use crate::page::{FileContent, Totals};

    const VERSION: Option<VersionId> = Some(VersionId([6; 32]));

    fn sample() -> CachedDir<'static> {
        let time = FileTime { seconds: 5, nanos: 7 };
        let stamp = Stamp { mode: 0o644, size: 3, mtime: time, ctime: time, inode: 99 };
        let entry = |name, kind| CachedEntry { name, stamp, settled: true, link: None, kind };
        CachedDir {
            mode: 0o755,
            mtime: time,
            xattrs: Some(BlobId([9; 32])),
            complete: true,
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
        let mut cache = NewCache::like(None);
        (0..).zip(dirs).for_each(|(number, dir)| cache.push(number, dir));
        cache.save(path, "v1", VERSION, Foreign::default()).unwrap();
    }

    fn load(path: &Path) -> Option<StatCache> {
        StatCache::load(path, "v1")
    }

    fn of_mode(mode: u32) -> CachedDir<'static> {
        CachedDir { mode, xattrs: None, complete: mode.is_multiple_of(2), ..sample() }
    }

    fn modes(cache: &StatCache) -> Vec<u32> {
        (0..).map_while(|number| cache.dir(number)).map(|dir| dir.mode).collect()
    }

    #[test]
    fn a_cache_round_trips_and_is_bound_to_its_vault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/cache");
        save(&path, &[sample(), sample()]);
        let cache = load(&path).unwrap();
        assert_eq!(cache.dir(1).unwrap(), sample());
        assert_eq!(cache.version(), VERSION);
        assert!(cache.dir(2).is_none());
        assert!(cache.encoded(2).is_none());
        let mut copy = NewCache::like(Some(&cache));
        copy.keep(0, cache.encoded(0).unwrap());
        copy.keep(1, cache.encoded(1).unwrap());
        let before = std::fs::read(&path).unwrap();
        copy.save(&path, "v1", VERSION, Foreign::default()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        // Under other names it stays what it is, and as short.
        for name in 1..100 {
            let version = Some(VersionId([name; 32]));
            NewCache::again(&load(&path).unwrap()).save(&path, "v1", version, Foreign::default()).unwrap();
            let renamed = load(&path).unwrap();
            assert_eq!((renamed.dir(0), renamed.dir(1)), (Some(sample()), Some(sample())));
            assert_eq!(renamed.version(), version);
            assert!(std::fs::metadata(&path).unwrap().len() < before.len() as u64 * 3 / 2);
        }
        assert!(StatCache::load(&path, "v2").is_none());
    }

    #[test]
    fn a_cache_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stat/cache");
        save(&path, &[sample()]);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
        // One that was made before is closed when it is written again.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let cache = load(&path).unwrap();
        NewCache::onto(&cache).unwrap().save(&path, "v1", None, Foreign::default()).unwrap();
        assert_eq!(load(&path).unwrap().version(), None);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn what_is_foreign_is_known_from_the_head() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        assert_eq!(Foreign::last_seen(&path), Foreign::default());
        save(&path, &[sample()]);
        assert_eq!(Foreign::last_seen(&path), Foreign::default());
        for (owners, lists) in [(true, false), (true, true), (false, true), (false, false)] {
            let foreign = Foreign { owners, lists };
            NewCache::onto(&load(&path).unwrap()).unwrap().save(&path, "v1", VERSION, foreign).unwrap();
            assert_eq!((Foreign::last_seen(&path), load(&path).unwrap().foreign()), (foreign, foreign));
            NewCache::like(None).save(&dir.path().join("whole"), "v1", VERSION, foreign).unwrap();
            assert_eq!(Foreign::last_seen(&dir.path().join("whole")), foreign);
        }
        std::fs::write(&path, b"avfsstat\x04\x03").unwrap();
        assert_eq!(Foreign::last_seen(&path), Foreign::default());
    }

    #[test]
    fn what_changed_is_added_until_it_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        let mut now: Vec<u32> = (0..8).collect();
        save(&path, &now.iter().copied().map(of_mode).collect::<Vec<_>>());
        let whole = std::fs::read(&path).unwrap();
        for mode in 100.. {
            let cache = load(&path).unwrap();
            let mut new = NewCache::onto(&cache).unwrap();
            new.push(3, &of_mode(mode));
            new.push(u32::try_from(now.len()).unwrap(), &of_mode(mode + 100));
            if new.is_too_much() {
                break;
            }
            let version = VersionId([u8::try_from(mode).unwrap(); 32]);
            new.save(&path, "v1", Some(version), Foreign::default()).unwrap();
            assert_eq!(load(&path).unwrap().version(), Some(version));
            now[3] = mode;
            now.push(mode + 100);
            assert_eq!(modes(&load(&path).unwrap()), now);
        }
        assert!(now.len() > 8, "nothing was added");
        let grown = std::fs::read(&path).unwrap();
        assert!(grown.starts_with(&whole) && grown.len() < whole.len() * 3 / 2);
    }

    #[test]
    fn a_part_that_is_not_whole_is_not_believed_and_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        save(&path, &[0, 1, 2, 3, 4, 5].map(of_mode));
        let before = std::fs::read(&path).unwrap();
        let first = load(&path).unwrap();
        let add = |to: &StatCache, mode| {
            let mut new = NewCache::onto(to).unwrap();
            new.push(1, &of_mode(mode));
            new.save(&path, "v1", VERSION, Foreign::default()).unwrap();
        };
        add(&first, 11);
        let added = std::fs::read(&path).unwrap();
        assert!(added.starts_with(&before));
        for at in (before.len()..added.len()).step_by(7) {
            let mut data = added.clone();
            data[at] ^= 1;
            for torn in [&data, &added[..at]] {
                std::fs::write(&path, torn).unwrap();
                assert_eq!(modes(&load(&path).unwrap()), [0, 1, 2, 3, 4, 5], "at {at}");
            }
            add(&load(&path).unwrap(), 12);
            assert_eq!(modes(&load(&path).unwrap()), [0, 12, 2, 3, 4, 5], "at {at}");
        }
        // Of two who began with the same cache the later one counts, and what follows the earlier does not.
        std::fs::write(&path, &before).unwrap();
        let (one, other) = (load(&path).unwrap(), load(&path).unwrap());
        add(&one, 21);
        add(&load(&path).unwrap(), 22);
        add(&other, 23);
        assert_eq!(modes(&load(&path).unwrap()), [0, 23, 2, 3, 4, 5]);
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
