//! What all jobs of a scan share, and what they have found so far.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use avfs_hostfs::cause::Cause;
use avfs_hostfs::foreign::Mapped;
use avfs_hostfs::overlay::Shows;
use avfs_hostfs::stat::{HostStat, wall_clock};
use avfs_hostfs::{beneath, overlay, xattr};
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::BlobId;
use avfs_types::path::TreePath;

use super::assembly::{Assembly, Built, Records};
use super::touched::TouchedBy;
use super::upper::{Over, Upper};
use super::{ImportError, ImportOptions, Keep, OnTrouble, Scanned, Trouble, TroubleReason, UNVERSIONED_MAX};
use crate::backend::{BlobRecord, ObjectKind};
use crate::capture::UpperKind;
use crate::ignore::Rules;
use crate::ingest::Known;
use crate::meter::Meter;
use crate::own::OwnFile;
use crate::page::FileContent;
use crate::stat_cache::{Foreign, StatCache};
use crate::{Result, Vault, VaultError, content};

/// The kernel stamps files with a clock that may lag behind the real one by some ticks.
const CLOCK_LAG_NANOS: i64 = 50_000_000;
/// Digests that are remembered, so that files of the same content are stored once. What is told twice is stored twice,
/// and found to be there.
const SEEN_MAX: usize = 1 << 17;
/// What a file system without fractions of a second may round away.
const COARSE_NANOS: i64 = 2_000_000_000;

pub(crate) struct ScannedDir {
    pub(crate) path: TreePath,
    /// The number of the directory it lies in; nothing for the root.
    pub(crate) parent: Option<u32>,
    pub(crate) stat: HostStat,
    pub(crate) xattrs: Option<BlobId>,
    pub(crate) entries: Vec<ScannedEntry>,
    /// Its number in the stat cache.
    pub(crate) cached: Option<u32>,
    /// Every entry is as the cache has it, subdirectories aside.
    pub(crate) clean: bool,
    /// Nothing in it is missing; at the end also nothing beneath it.
    pub(crate) complete: bool,
    /// What it lies over, in an upper.
    pub(crate) over: Over,
}

#[derive(Clone)]
pub(crate) struct ScannedEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) stat: HostStat,
    pub(crate) what: What,
    pub(crate) settled: bool,
}

impl ScannedEntry {
    /// True for a file, link or fifo that may have other names here.
    pub(crate) fn is_shared(&self) -> bool {
        match self.what {
            What::File { .. } | What::Symlink { .. } | What::Fifo => self.stat.links > 1,
            What::Dir(_) | What::Pending | What::Gone | What::Whiteout => false,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum What {
    File {
        content: FileContent,
        xattrs: Option<BlobId>,
    },
    Symlink {
        target: Vec<u8>,
    },
    Fifo,
    /// The number of the directory.
    Dir(u32),
    /// A file that is being read.
    Pending,
    /// Nothing: it is gone or cannot be read. In an upper: whatever the base has there.
    Gone,
    /// Nothing, and nothing of the base either.
    Whiteout,
}

/// What reading a file gave.
pub(super) struct Facts {
    pub(crate) dir: u32,
    pub(crate) entry: usize,
    pub(crate) stat: HostStat,
    pub(crate) what: What,
}

impl Facts {
    /// Tells an entry what reading it gave.
    pub(super) fn apply(self, entry: &mut ScannedEntry, settled: bool) {
        entry.settled = settled;
        // To read a file may change the time of its last access.
        entry.stat = HostStat { atime: entry.stat.atime, ..self.stat };
        entry.what = self.what;
    }
}

/// Everything found, directories by number: children have higher numbers than their parents.
pub(crate) struct ScannedTree {
    pub(crate) dirs: Vec<ScannedDir>,
    pub(crate) scanned: Scanned,
}

/// A file too large, or too hollow, to be read in one go.
pub(super) struct LargeFile {
    pub(crate) dir: u32,
    pub(crate) entry: usize,
    pub(crate) path: TreePath,
}

impl LargeFile {
    /// What is known of it if it is not kept.
    pub(super) fn gone(&self, stat: HostStat) -> Facts {
        Facts { dir: self.dir, entry: self.entry, stat, what: What::Gone }
    }
}

/// Where blobs go.
pub(crate) enum Outlet {
    Nowhere,
    /// Kept here: for little.
    Held(Mutex<Vec<BlobRecord>>),
    /// To a thread that stores them.
    Channel(SyncSender<Vec<BlobRecord>>),
}

/// What kind of directory is looked at.
pub(crate) enum Flavour<'a> {
    Host {
        /// Wins over every ignore file.
        exclude: Rules,
        /// Only what this run touched is scanned.
        touched: Option<TouchedBy<'a>>,
    },
    Upper(Upper<'a>),
}

/// What all jobs of a scan share.
pub(crate) struct Shared<'a> {
    pub(crate) vault: &'a Vault,
    pub(crate) flavour: Flavour<'a>,
    pub(crate) root: OwnedFd,
    pub(super) keep: Keep<'a>,
    pub(crate) on_trouble: OnTrouble,
    pub(crate) meter: &'a Meter,
    pub(crate) files_read: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    mended: AtomicU64,
    /// Of a directory of the host.
    mapped: Mapped,
    foreign_owners: AtomicBool,
    foreign_lists: AtomicBool,
    /// The latest change of a status, in nanoseconds since 1970.
    changed_at: AtomicI64,
    pub(super) large: Mutex<Vec<LargeFile>>,
    /// What becomes of a directory of the host; an upper is held as it was found.
    pub(super) assembly: Option<Assembly<'a>>,
    facts: Mutex<Vec<Facts>>,
    pub(crate) cache: Option<&'a StatCache>,
    /// Where the vault's own file lies, if that is beneath the root.
    pub(super) own_file: OwnFile,
    began: Timestamp,
    /// A vault without blobs need not be asked whether it has one; known once something is to be stored.
    vault_is_empty: OnceLock<bool>,
    /// What was told to be stored, lately.
    seen: Mutex<HashSet<BlobId>>,
    pub(crate) outlet: Outlet,
    pub(crate) next_dir: AtomicU32,
    pub(crate) dirs: Mutex<Vec<(u32, ScannedDir)>>,
    troubles: Mutex<Vec<Trouble>>,
    unversioned: Mutex<Vec<TreePath>>,
    failure: Mutex<Option<VaultError>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Shared<'a> {
    pub(crate) fn new(
        vault: &'a Vault,
        flavour: Flavour<'a>,
        root: OwnedFd,
        outlet: Outlet,
        meter: &'a Meter,
    ) -> Self {
        let keep = match outlet {
            Outlet::Nowhere => Keep::Nothing,
            Outlet::Held(_) | Outlet::Channel(_) => Keep::Everything,
        };
        Self {
            vault,
            flavour,
            root,
            keep,
            on_trouble: OnTrouble::Fail,
            meter,
            files_read: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            mended: AtomicU64::new(0),
            mapped: Mapped::Everybody,
            foreign_owners: AtomicBool::new(false),
            foreign_lists: AtomicBool::new(false),
            changed_at: AtomicI64::new(0),
            large: Mutex::default(),
            assembly: None,
            facts: Mutex::default(),
            cache: None,
            own_file: OwnFile::nowhere(),
            began: vault.now(),
            vault_is_empty: OnceLock::new(),
            seen: Mutex::default(),
            outlet,
            next_dir: AtomicU32::new(1),
            dirs: Mutex::default(),
            troubles: Mutex::default(),
            unversioned: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// The scan of a directory of the host.
    pub(crate) fn of_host(
        vault: &'a Vault,
        dir: &Path,
        root: OwnedFd,
        cache: Option<&'a StatCache>,
        options: &ImportOptions<'a>,
        outlet: Outlet,
    ) -> Result<Self> {
        let exclude =
            Rules::excluding(options.exclude).map_err(|source| ImportError::BadExclude { source })?;
        let shared = Self::new(vault, Flavour::Host { exclude, touched: None }, root, outlet, options.meter);
        let own_file = OwnFile::of(vault, dir);
        let mapped = Mapped::here();
        let records = match shared.keep {
            Keep::Nothing => Records::NotWanted,
            Keep::Everything | Keep::Only(_) => Records::Kept,
        };
        let beside = |path: &Path| path.parent().map(Path::to_owned);
        let places = [vault.path(), options.stat_cache].into_iter().flatten().filter_map(beside);
        let assembly = Assembly::new(cache, records, &places.collect::<Vec<_>>());
        let next_dir = AtomicU32::new(cache.map_or(1, StatCache::numbers));
        let on_trouble = options.on_trouble;
        Ok(Self { on_trouble, cache, own_file, mapped, assembly: Some(assembly), next_dir, ..shared })
    }

    pub(crate) fn failed(&self) -> bool {
        self.meter.stopped() || lock(&self.failure).is_some()
    }

    /// Keeps the first failure; the jobs after it do nothing.
    pub(crate) fn check(&self, done: Result<()>) {
        if let Err(error) = done {
            lock(&self.failure).get_or_insert(error);
        }
    }

    /// Turns the troubles of a living directory into a report or a failure, as the caller wanted.
    pub(crate) fn tolerate<T>(
        &self,
        outcome: std::io::Result<T>,
        operation: &'static str,
        path: impl FnOnce() -> TreePath,
    ) -> Result<Option<T>> {
        let error = match outcome {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        let path = path();
        let (reason, strict) = match Cause::of(&error) {
            // It was a directory or a file a moment ago and is gone, or something else now.
            Cause::NotFound | Cause::NotADirectory | Cause::Link => {
                (TroubleReason::Vanished, ImportError::Vanished { path: path.clone() })
            }
            Cause::NoPermission => {
                (TroubleReason::NoPermission, ImportError::NoPermission { path: path.clone() })
            }
            Cause::Unreadable => {
                (TroubleReason::Unreadable, ImportError::Io { operation, path: path.clone(), source: error })
            }
            Cause::Exists | Cause::ReadOnly | Cause::DiskFull | Cause::Other => {
                return Err(ImportError::Io { operation, path, source: error }.into());
            }
        };
        // What its owner may not even open up belongs to somebody else, and is named; an upper in which
        // something vanishes is not quiet, and no capture of it can be right.
        let named = matches!((&self.flavour, reason), (Flavour::Upper(_), TroubleReason::NoPermission));
        match self.on_trouble {
            OnTrouble::Fail if !named => Err(strict.into()),
            OnTrouble::Fail | OnTrouble::KeepGoing => {
                self.report(path, reason);
                Ok(None)
            }
        }
    }

    pub(crate) fn report(&self, path: TreePath, reason: TroubleReason) {
        lock(&self.troubles).push(Trouble { path, reason });
    }

    /// Lists a path that no version has.
    pub(super) fn leave_unversioned(&self, path: impl FnOnce() -> TreePath) {
        let mut unversioned = lock(&self.unversioned);
        if unversioned.len() <= UNVERSIONED_MAX {
            unversioned.push(path());
        }
    }

    /// The attributes of a file as its user sees them, and whether a directory of an upper is opaque.
    /// Attributes that cannot be kept and change what a file is are told.
    pub(crate) fn read_xattrs(
        &self,
        file: BorrowedFd<'_>,
        path: impl FnOnce() -> TreePath,
    ) -> std::io::Result<(xattr::Xattrs, Shows)> {
        let mut unkept = None;
        let xattrs = xattr::read_noting(file, |name| unkept = unkept.or_else(|| what_is_lost_with(name)))?;
        if let Some(what) = unkept {
            if what == ACCESS_LIST && self.mapped.lacks_listed(file) {
                self.foreign_lists.store(true, Ordering::Relaxed);
            }
            lock(&self.troubles).push(Trouble { path: path(), reason: TroubleReason::Attribute(what) });
        }
        Ok(match &self.flavour {
            Flavour::Upper(upper) if upper.kind == UpperKind::Layer => overlay::unescape(xattrs),
            Flavour::Host { .. } | Flavour::Upper(_) => (xattrs, Shows::Beneath),
        })
    }

    /// Notes a file whose owner or group no sandbox of this user can map.
    pub(crate) fn note_owner(&self, stat: &HostStat) {
        if !self.mapped.has(stat.owner, stat.group) {
            self.foreign_owners.store(true, Ordering::Relaxed);
        }
    }

    /// Notes when something was changed last. A time in the future is a clock that was set back, not a change.
    pub(crate) fn note_change(&self, at: FileTime) {
        if at <= wall_clock() {
            self.changed_at.fetch_max(at.saturating_nanos(), Ordering::Relaxed);
        }
    }

    /// The mode of a file as its user left it.
    fn true_mode(&self, stat: &HostStat) -> u32 {
        match &self.flavour {
            Flavour::Host { .. } => stat.mode,
            Flavour::Upper(upper) => upper.modes.true_mode(stat),
        }
    }

    /// See [`beneath::outlast_write`]; nobody writes to an upper that is captured.
    pub(crate) fn outlast_write(&self, file: BorrowedFd<'_>) {
        if let Flavour::Host { .. } = self.flavour {
            beneath::outlast_write(file);
        }
    }

    /// A stamp proves something only if the file could not have changed again without a new one.
    pub(crate) fn is_settled(&self, stat: &HostStat) -> bool {
        // Everybody who could write to an upper is gone before it is captured.
        if let Flavour::Upper(_) = self.flavour {
            return true;
        }
        let coarse = stat.ctime.nanos == 0 && stat.mtime.nanos == 0;
        let slack = if coarse { COARSE_NANOS } else { CLOCK_LAG_NANOS };
        stat.ctime.saturating_nanos() < self.began.0.saturating_sub(slack)
    }

    /// Stores an attribute set and gives its id.
    pub(crate) fn keep_xattrs(&self, xattrs: xattr::Xattrs) -> Result<Option<BlobId>> {
        let Some(blob) = content::encode_xattrs(&xattrs) else { return Ok(None) };
        let id = blob.id;
        if self.unknown(&[id])?.contains(&id) {
            self.store(vec![blob])?;
        }
        Ok(Some(id))
    }

    /// Takes what reading files of one directory gave; `left` more of them are read later.
    pub(super) fn tell(&self, number: u32, facts: Vec<Facts>, left: usize) {
        for fact in facts.iter().filter(|fact| fact.what != What::Gone) {
            self.note_change(fact.stat.ctime);
        }
        match &self.assembly {
            Some(assembly) => {
                let settled = |fact: Facts| (self.is_settled(&fact.stat), fact);
                let facts = facts.into_iter().map(settled).map(|(settled, fact)| (fact, settled));
                assembly.tell(number, facts.collect(), left);
            }
            None => lock(&self.facts).extend(facts),
        }
    }

    /// Those of the ids that have to be stored; each is told to one caller only, unless much was told in between.
    pub(crate) fn unknown(&self, ids: &[BlobId]) -> Result<HashSet<BlobId>> {
        let unseen = |wanted: &dyn Fn(&BlobId) -> bool| -> HashSet<BlobId> {
            let mut seen = lock(&self.seen);
            if seen.len() > SEEN_MAX {
                seen.clear();
            }
            ids.iter().copied().filter(|id| wanted(id) && seen.insert(*id)).collect()
        };
        let mut unknown = match self.keep {
            Keep::Nothing => return Ok(HashSet::new()),
            Keep::Only(these) => return Ok(unseen(&|id| these.contains(id))),
            Keep::Everything => unseen(&|_| true),
        };
        if !unknown.is_empty() && !self.vault_is_empty()? {
            let known = Known::of(self.vault, &unknown)?;
            self.mended.fetch_add(known.damaged, Ordering::Relaxed);
            unknown.retain(|id| !known.whole.contains(id));
        }
        Ok(unknown)
    }

    fn vault_is_empty(&self) -> Result<bool> {
        if let Some(is_empty) = self.vault_is_empty.get() {
            return Ok(*is_empty);
        }
        let is_empty = self.vault.read()?.objects_before(ObjectKind::Blob, i64::MAX, 1)?.is_empty();
        Ok(*self.vault_is_empty.get_or_init(|| is_empty))
    }

    /// Hands blobs to the storing thread, waiting while it has enough to do.
    pub(crate) fn store(&self, mut blobs: Vec<BlobRecord>) -> Result<()> {
        if let Keep::Only(these) = self.keep {
            // Lists come without having been asked for.
            blobs.retain(|blob| these.contains(&blob.id));
        }
        match &self.outlet {
            Outlet::Channel(send) if !blobs.is_empty() => {
                send.send(blobs).map_err(|_| ImportError::Interrupted.into())
            }
            Outlet::Held(held) => {
                lock(held).extend(blobs);
                Ok(())
            }
            Outlet::Channel(_) | Outlet::Nowhere => Ok(()),
        }
    }

    /// Why there is not even a root, whatever else may be left out.
    fn without_root(&self) -> VaultError {
        let path = TreePath::root();
        let reason =
            lock(&self.troubles).iter().find(|trouble| trouble.path.is_root()).map(|root| root.reason);
        match reason {
            Some(TroubleReason::NoPermission) => ImportError::NoPermission { path }.into(),
            Some(
                TroubleReason::Special(_)
                | TroubleReason::Unreadable
                | TroubleReason::Vanished
                | TroubleReason::Torn
                | TroubleReason::TooLarge
                | TroubleReason::Attribute(_),
            )
            | None => ImportError::Vanished { path }.into(),
        }
    }

    fn check_end(&self) -> Result<()> {
        if let Some(error) = lock(&self.failure).take() {
            return Err(error);
        }
        if self.meter.stopped() { Err(ImportError::Interrupted.into()) } else { Ok(()) }
    }

    /// What a directory of the host became.
    pub(super) fn into_built(mut self) -> Result<Built<'a>> {
        self.check_end()?;
        let scanned = self.scanned();
        let built = self.assembly.take().and_then(|assembly| assembly.finish(scanned));
        built.ok_or_else(|| self.without_root())
    }

    /// What an upper holds.
    pub(crate) fn finish(&self) -> Result<ScannedTree> {
        self.check_end()?;
        let mut numbered = std::mem::take(&mut *lock(&self.dirs));
        if !numbered.iter().any(|(number, _)| *number == 0) {
            return Err(self.without_root());
        }
        // A parent is before what it holds.
        numbered.sort_unstable_by_key(|(number, _)| *number);
        // A directory that vanished has no row: give the rest numbers without gaps again.
        let highest = self.next_dir.load(Ordering::Relaxed) as usize;
        let mut renumbered: Vec<Option<u32>> = vec![None; highest];
        for (now, (number, _)) in numbered.iter().enumerate() {
            renumbered[*number as usize] = u32::try_from(now).ok();
        }
        let mut dirs: Vec<ScannedDir> = numbered.into_iter().map(|(_, dir)| dir).collect();
        for dir in &mut dirs {
            dir.parent = dir.parent.and_then(|parent| renumbered[parent as usize]);
            for entry in &mut dir.entries {
                if let What::Dir(number) = entry.what {
                    entry.what = renumbered[number as usize].map_or(What::Gone, What::Dir);
                    dir.clean &= !matches!(entry.what, What::Gone);
                }
            }
        }
        for fact in std::mem::take(&mut *lock(&self.facts)) {
            let Some(number) = renumbered[fact.dir as usize] else { continue };
            let settled = self.is_settled(&fact.stat);
            let entry = &mut dirs[number as usize].entries[fact.entry];
            fact.apply(entry, settled);
        }
        let_names_agree(&mut dirs.iter_mut().collect::<Vec<_>>());
        for number in (0..dirs.len()).rev() {
            let is_there = |entry: &ScannedEntry| match entry.what {
                What::Dir(beneath) => dirs[beneath as usize].complete,
                What::File { .. } | What::Symlink { .. } | What::Fifo => true,
                What::Pending | What::Gone | What::Whiteout => false,
            };
            dirs[number].complete = dirs[number].complete && dirs[number].entries.iter().all(is_there);
        }
        for dir in &mut dirs {
            dir.stat.mode = self.true_mode(&dir.stat);
            for entry in &mut dir.entries {
                entry.stat.mode = self.true_mode(&entry.stat);
            }
        }
        Ok(ScannedTree { dirs, scanned: self.scanned() })
    }

    fn scanned(&self) -> Scanned {
        Scanned {
            files_read: self.files_read.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            mended: self.mended.load(Ordering::Relaxed),
            troubles: {
                // Looked at once more if there is no root.
                let mut troubles = lock(&self.troubles).clone();
                troubles.sort_by(|a, b| a.path.cmp(&b.path));
                // What is read again has the same attributes.
                troubles.dedup();
                troubles
            },
            unversioned: std::mem::take(&mut *lock(&self.unversioned)),
            cache_unsaved: None,
            foreign: Foreign {
                owners: self.foreign_owners.load(Ordering::Relaxed),
                // Files that the cache vouches for are not opened, so what was seen of them before still counts.
                lists: self.foreign_lists.load(Ordering::Relaxed)
                    || self.cache.is_some_and(|cache| cache.foreign().lists),
            },
            changed_at: FileTime::from_nanos(self.changed_at.load(Ordering::Relaxed)),
        }
    }
}

/// What a file loses without its list.
const ACCESS_LIST: &str = "access list";

/// What a file loses without an attribute that is not its user's; nothing for what the system sets by itself.
fn what_is_lost_with(name: &[u8]) -> Option<&'static str> {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => Some(ACCESS_LIST),
        b"security.capability" => Some("capabilities"),
        _ if name.starts_with(b"trusted.") && !name.starts_with(b"trusted.overlay.") => {
            Some("trusted attributes")
        }
        _ => None,
    }
}

/// The names of one file are looked at one after the other; if it changed meanwhile they all tell what was seen last.
pub(super) fn let_names_agree(dirs: &mut [&mut ScannedDir]) {
    let mut latest: HashMap<(u64, u64), ScannedEntry> = HashMap::new();
    for entry in dirs.iter().flat_map(|dir| &dir.entries).filter(|entry| entry.is_shared()) {
        match latest.entry((entry.stat.device, entry.stat.inode)) {
            Entry::Vacant(place) => {
                place.insert(entry.clone());
            }
            Entry::Occupied(mut known) if known.get().stat.ctime < entry.stat.ctime => {
                known.insert(entry.clone());
            }
            Entry::Occupied(_) => {}
        }
    }
    for dir in dirs {
        for entry in dir.entries.iter_mut().filter(|entry| entry.is_shared()) {
            let Some(last) = latest.get(&(entry.stat.device, entry.stat.inode)) else { continue };
            if (&entry.what, entry.stat) != (&last.what, last.stat) {
                *entry = ScannedEntry { name: std::mem::take(&mut entry.name), ..last.clone() };
                dir.clean = false;
            }
        }
    }
}
