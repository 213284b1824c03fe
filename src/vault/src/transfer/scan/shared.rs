//! The state that all jobs of a scan share, and their results so far.

use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use avfs_hostfs::cause::Cause;
use avfs_hostfs::foreign::Writable;
use avfs_hostfs::overlay::Shows;
use avfs_hostfs::stat::{HostStat, wall_clock};
use avfs_hostfs::{beneath, xattr};
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::BlobId;
use avfs_types::path::TreePath;

use super::Source;
use super::assembly::{Assembly, Built};
use super::entry::{Facts, LargeFile, What};
use super::error::ImportError;
use super::report::{Keep, OnTrouble, Scanned, Trouble, TroubleReason, UNVERSIONED_MAX};
use crate::backend::{BlobRecord, ObjectKind};
use crate::ingest::Known;
use crate::meter::Meter;
use crate::own::OwnFile;
use crate::stat_cache::{Foreign, StatCache};
use crate::transfer::{Error, Result};
use crate::{Vault, VaultError, content};

/// The kernel's clock for file timestamps may lag behind the wall clock by some ticks.
const CLOCK_LAG_NANOS: i64 = 50_000_000;
/// Digests that are remembered, so that identical files are stored once. A forgotten digest is sent again, and the
/// vault then finds that it exists.
const SEEN_MAX: usize = 1 << 17;
/// The rounding error of timestamps on a file system without subsecond resolution.
const COARSE_NANOS: i64 = 2_000_000_000;

/// The destination of blobs.
pub(crate) enum Outlet {
    Nowhere,
    /// Collected in memory, for small scans.
    Held(Mutex<Vec<BlobRecord>>),
    /// Sent to a storing thread.
    Channel(SyncSender<Vec<BlobRecord>>),
}

/// The shared state of all jobs of a scan.
pub(crate) struct Shared<'a, S: Source> {
    pub(crate) vault: &'a Vault,
    pub(crate) source: S,
    pub(crate) root: OwnedFd,
    pub(crate) keep: Keep<'a>,
    pub(crate) on_trouble: OnTrouble,
    pub(crate) meter: &'a Meter,
    pub(crate) files_read: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    mended: AtomicU64,
    /// For a host directory: the users and groups that a sandbox can map.
    pub(crate) writable: Writable,
    foreign_owners: AtomicBool,
    foreign_lists: AtomicBool,
    /// The latest ctime, in nanoseconds since 1970.
    changed_at: AtomicI64,
    pub(super) large: Mutex<Vec<LargeFile>>,
    /// Builds the trees.
    pub(super) assembly: Assembly<'a, S>,
    pub(crate) cache: Option<&'a StatCache>,
    /// Location of the vault's own file.
    pub(crate) own_file: OwnFile,
    began: Timestamp,
    /// An empty vault need not be queried for known blobs. Determined on first use.
    vault_is_empty: OnceLock<bool>,
    /// Recent digests that callers were asked to store.
    seen: Mutex<HashSet<BlobId>>,
    pub(crate) outlet: Outlet,
    pub(crate) next_dir: AtomicU32,
    troubles: Mutex<Vec<Trouble>>,
    unversioned: Mutex<Vec<TreePath>>,
    failure: Mutex<Option<Error>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, S: Source> Shared<'a, S> {
    /// The state before a scan: nothing may be missing, and nothing is cached.
    pub(crate) fn new(
        vault: &'a Vault,
        source: S,
        root: OwnedFd,
        outlet: Outlet,
        meter: &'a Meter,
        assembly: Assembly<'a, S>,
    ) -> Self {
        let keep = match outlet {
            Outlet::Nowhere => Keep::Nothing,
            Outlet::Held(_) | Outlet::Channel(_) => Keep::Everything,
        };
        Self {
            vault,
            source,
            root,
            keep,
            on_trouble: OnTrouble::Fail,
            meter,
            files_read: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            mended: AtomicU64::new(0),
            writable: Writable::All,
            foreign_owners: AtomicBool::new(false),
            foreign_lists: AtomicBool::new(false),
            changed_at: AtomicI64::new(0),
            large: Mutex::default(),
            assembly,
            cache: None,
            own_file: OwnFile::nowhere(),
            began: vault.now(),
            vault_is_empty: OnceLock::new(),
            seen: Mutex::default(),
            outlet,
            next_dir: AtomicU32::new(1),
            troubles: Mutex::default(),
            unversioned: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.meter.stopped() || lock(&self.failure).is_some()
    }

    /// Stores the first failure; later jobs then do nothing.
    pub(crate) fn check(&self, done: Result<()>) {
        if let Err(error) = done {
            lock(&self.failure).get_or_insert(error);
        }
    }

    /// Handles an error that a directory in use can cause: reports it or fails, as the caller chose.
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
            // It existed a moment ago, and was deleted or replaced since.
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
        // In an upper, a file whose mode cannot be changed belongs to another user, and is reported. A file that
        // vanishes means that the upper is still being written to, so no capture of it can be correct.
        let named = S::IS_QUIET && reason == TroubleReason::NoPermission;
        match self.on_trouble {
            // Without its root there is nothing to keep.
            _ if path.is_root() => Err(strict.into()),
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

    /// Adds a path to the unversioned paths.
    pub(crate) fn leave_unversioned(&self, path: impl FnOnce() -> TreePath) {
        let mut unversioned = lock(&self.unversioned);
        if unversioned.len() <= UNVERSIONED_MAX {
            unversioned.push(path());
        }
    }

    /// The attributes of a file as its user sees them, and whether a directory of an upper is opaque. Reports
    /// significant attributes that cannot be kept.
    pub(crate) fn read_xattrs(
        &self,
        file: BorrowedFd<'_>,
        path: impl FnOnce() -> TreePath,
    ) -> std::io::Result<(xattr::Xattrs, Shows)> {
        let mut unkept = None;
        let xattrs = xattr::read_noting(file, |name| unkept = unkept.or_else(|| lost_with(name)))?;
        if let Some(what) = unkept {
            if what == ACCESS_LIST && self.writable.lacks_listed(file) {
                self.foreign_lists.store(true, Ordering::Relaxed);
            }
            lock(&self.troubles).push(Trouble { path: path(), reason: TroubleReason::Attribute(what) });
        }
        Ok(self.source.visible(xattrs))
    }

    /// Records whether a file has an owner or group whose files a command of this user cannot write.
    pub(crate) fn note_owner(&self, stat: &HostStat) {
        if !self.writable.has(stat.owner, stat.group) {
            self.foreign_owners.store(true, Ordering::Relaxed);
        }
    }

    /// Records a ctime. A time in the future comes from a clock that was set back, and does not count.
    pub(crate) fn note_change(&self, at: FileTime) {
        if at <= wall_clock() {
            self.changed_at.fetch_max(at.saturating_nanos(), Ordering::Relaxed);
        }
    }

    /// See [`beneath::outlast_write`]. Not needed for an upper, which no process writes to during a capture.
    pub(crate) fn outlast_write(&self, file: BorrowedFd<'_>) {
        if !S::IS_QUIET {
            beneath::outlast_write(file);
        }
    }

    /// True if any later change of the file would alter its stamp.
    pub(crate) fn is_settled(&self, stat: &HostStat) -> bool {
        // All processes that could write to an upper have ended before it is captured.
        if S::IS_QUIET {
            return true;
        }
        let coarse = stat.ctime.nanos == 0 && stat.mtime.nanos == 0;
        let slack = if coarse { COARSE_NANOS } else { CLOCK_LAG_NANOS };
        stat.ctime.saturating_nanos() < self.began.0.saturating_sub(slack)
    }

    /// Stores a set of attributes and returns its id.
    pub(crate) fn keep_xattrs(&self, xattrs: xattr::Xattrs) -> crate::Result<Option<BlobId>> {
        let Some(blob) = content::encode_xattrs(&xattrs) else { return Ok(None) };
        let id = blob.id;
        if self.unknown(&[id])?.contains(&id) {
            self.store(vec![blob])?;
        }
        Ok(Some(id))
    }

    /// Adds the results of reading files of one directory. `left` more files are read later.
    pub(super) fn add_facts(&self, number: u32, facts: Vec<Facts>, left: usize) -> Result<()> {
        for fact in facts.iter().filter(|fact| fact.what != What::Gone) {
            self.note_change(fact.stat.ctime);
        }
        let true_fact = |fact: Facts| {
            let stat = HostStat { mode: self.source.true_mode(&fact.stat), ..fact.stat };
            (Facts { stat, ..fact }, self.is_settled(&stat))
        };
        self.assembly.add_facts(&self.source, number, facts.into_iter().map(true_fact).collect(), left)
    }

    /// The ids that the caller has to store. Each id is returned to one caller only, unless [`SEEN_MAX`] was exceeded
    /// in between.
    pub(crate) fn unknown(&self, ids: &[BlobId]) -> crate::Result<HashSet<BlobId>> {
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

    fn vault_is_empty(&self) -> crate::Result<bool> {
        if let Some(is_empty) = self.vault_is_empty.get() {
            return Ok(*is_empty);
        }
        let is_empty = self.vault.read()?.objects_before(ObjectKind::Blob, i64::MAX, 1)?.is_empty();
        Ok(*self.vault_is_empty.get_or_init(|| is_empty))
    }

    /// Sends blobs to the storing thread. Blocks while its channel is full.
    pub(crate) fn store(&self, mut blobs: Vec<BlobRecord>) -> crate::Result<()> {
        if let Keep::Only(these) = self.keep {
            // Chunk lists are stored without asking `unknown` first.
            blobs.retain(|blob| these.contains(&blob.id));
        }
        match &self.outlet {
            Outlet::Channel(send) if !blobs.is_empty() => {
                // Closed after a failure to store, which is the one that is reported.
                send.send(blobs).map_err(|_| VaultError::Interrupted)
            }
            Outlet::Held(held) => {
                lock(held).extend(blobs);
                Ok(())
            }
            Outlet::Channel(_) | Outlet::Nowhere => Ok(()),
        }
    }

    fn check_end(&self) -> Result<()> {
        if let Some(error) = lock(&self.failure).take() {
            return Err(error);
        }
        if self.meter.stopped() { Err(ImportError::Interrupted.into()) } else { Ok(()) }
    }

    /// The trees of the finished scan.
    pub(super) fn built(&self) -> Result<Built<'a>> {
        self.check_end()?;
        let vanished = || ImportError::Vanished { path: TreePath::root() }.into();
        self.assembly.finish(&self.source, self.scanned())?.ok_or_else(vanished)
    }

    fn scanned(&self) -> Scanned {
        Scanned {
            files_read: self.files_read.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            mended: self.mended.load(Ordering::Relaxed),
            troubles: {
                let mut troubles = std::mem::take(&mut *lock(&self.troubles));
                troubles.sort_by(|a, b| a.path.cmp(&b.path));
                // A file that is read several times reports the same attributes each time.
                troubles.dedup();
                troubles
            },
            unversioned: std::mem::take(&mut *lock(&self.unversioned)),
            cache_unsaved: None,
            foreign: Foreign {
                owners: self.foreign_owners.load(Ordering::Relaxed),
                // Files that match the cache are not opened, so the earlier result still counts.
                lists: self.foreign_lists.load(Ordering::Relaxed)
                    || self.cache.is_some_and(|cache| cache.foreign().lists),
            },
            changed_at: FileTime::from_nanos(self.changed_at.load(Ordering::Relaxed)),
        }
    }
}

/// The name of an ACL in messages.
const ACCESS_LIST: &str = "access list";

/// The name in messages of an attribute that cannot be kept; `None` for attributes that the system sets automatically.
fn lost_with(name: &[u8]) -> Option<&'static str> {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => Some(ACCESS_LIST),
        b"security.capability" => Some("capabilities"),
        _ if name.starts_with(b"trusted.") && !name.starts_with(b"trusted.overlay.") => {
            Some("trusted attributes")
        }
        _ => None,
    }
}
