//! Keeps the cache directory within its limit automatically, without walking it for each run.
//!
//! Everything put into the cache is added to an account (`avfs_vault::account`). After the result of a run has
//! been reported, the cache is measured, but only if the account says that the limit may be exceeded, or if it
//! was not measured for an hour: leftovers of dead processes are removed, then the data of deleted vaults, then
//! the least recently used data.
//!
//! Never removed: leased data, and a scratch that `avfs recover` can finish.

mod dirs;
mod full_disk;
mod measure;
mod owners;
mod scratches;
mod usage;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::make;
use avfs_hostfs::remove::remove_tree;
use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_vault::evict::{CacheItem, CacheItemKind};
use avfs_vault::gc::Trial;
use avfs_vault::materialize::BaseCache;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::{VaultError, transfer};

use crate::fork_dirs::ForkDirs;
use crate::mount_session::{ScratchDir, SessionError};

pub(crate) use dirs::{RUN_BYTES as DIRS_RUN_BYTES, lease_all as lease_dirs};
pub(crate) use full_disk::{is_cache_full, make_room};
pub use owners::CacheOwners;
pub use usage::{CacheUsage, Part};

/// How often to check for leftovers in a cache that nothing is written to.
const LOOK_EVERY: Duration = Duration::from_secs(60 * 60);
/// An eviction goes below the limit by this fraction of it, so that not every run needs one.
const SLACK_PART: u64 = 8;

/// An error in the maintenance of the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheCareError {
    #[error("cannot {operation} {}", path.display())]
    Host {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Vault(#[from] transfer::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<VaultError> for CacheCareError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.into())
    }
}

impl CacheCareError {
    fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Host { operation, path, source }
    }
}

impl Diagnose for CacheCareError {
    fn code(&self) -> &'static str {
        match self {
            Self::Host { .. } => "host.io",
            Self::Vault(error) => error.code(),
            Self::Session(error) => error.code(),
        }
    }
}

type Result<T> = std::result::Result<T, CacheCareError>;

/// The removed data, or in a trial the data that would be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub bases: u64,
    pub layers: u64,
    /// Directories of `cache.dirs`.
    pub dirs: u64,
    pub stat_caches: u64,
    pub scratches: u64,
    /// Unfinished work of dead processes.
    pub leftovers: u64,
    pub freed_bytes: u64,
    /// The remaining bytes: in use, or within the limit.
    pub kept_bytes: u64,
}

impl Swept {
    fn add(&mut self, what: Kind, bytes: u64) {
        let count = match what {
            Kind::Item(CacheItemKind::Base) => &mut self.bases,
            Kind::Item(CacheItemKind::Layer) => &mut self.layers,
            Kind::Dir => &mut self.dirs,
            Kind::StatCache => &mut self.stat_caches,
        };
        *count += 1;
        self.freed_bytes = self.freed_bytes.saturating_add(bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Item(CacheItemKind),
    Dir,
    StatCache,
}

/// Data that can be removed if it is not in use.
enum Candidate {
    Item(CacheItem),
    Dir(dirs::CacheDir),
    StatCache { path: PathBuf, bytes: u64, last_used: SystemTime },
}

impl Candidate {
    fn kind(&self) -> Kind {
        match self {
            Self::Item(item) => Kind::Item(item.kind),
            Self::Dir(_) => Kind::Dir,
            Self::StatCache { .. } => Kind::StatCache,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Item(item) => item.bytes,
            Self::Dir(dir) => dir.bytes,
            Self::StatCache { bytes, .. } => *bytes,
        }
    }

    /// Data that is cheapest to recreate comes first: bases, layers and directories by last use. Stat caches
    /// come last: without its stat cache an import reads every file, and removing it frees only a few bytes.
    fn order(&self) -> (bool, SystemTime) {
        match self {
            Self::Item(item) => (false, item.last_used),
            Self::Dir(dir) => (false, dir.last_used),
            Self::StatCache { last_used, .. } => (true, *last_used),
        }
    }

    /// True for data created before the last boot, which is not trusted.
    fn is_useless(&self) -> bool {
        matches!(self, Self::Item(item) if !item.is_usable)
    }

    fn is_of(&self, vaults: &[String]) -> bool {
        match self {
            Self::Item(item) => item.vault.as_ref().is_some_and(|vault| vaults.contains(vault)),
            Self::Dir(dir) => vaults.contains(&dir.vault),
            Self::StatCache { path, .. } => {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.split_once('-').is_some_and(|(vault, _)| vaults.iter().any(|gone| gone == vault))
            }
        }
    }
}

/// The limits of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    /// Nothing is evicted while the total is at most this.
    max: u64,
    /// The maximum size after an eviction.
    target: u64,
}

/// Which scratches to remove, in addition to those with nothing left to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphans {
    /// Keep a scratch whose changes were never captured, even if its vault is gone: the vault may come back.
    Kept,
    /// Discard the changes of runs whose vault is gone.
    Discarded,
}

/// Maintains one cache directory.
#[derive(Clone, Debug)]
pub struct CacheKeeper {
    pub dir: PathBuf,
    pub layers: BaseCache,
    /// `cache.max`.
    pub bytes_max: Option<u64>,
    /// The id and path of the vault in use.
    pub vault: Option<(String, Option<PathBuf>)>,
}

impl CacheKeeper {
    /// Brings the cache within its limit if the limit may be exceeded, or if the cache was not measured for a
    /// while. Costs one stat of a file if nothing was written to the cache.
    pub fn after_run(&self, now: Timestamp) -> Result<Option<Swept>> {
        self.sweep_unfinished()?;
        let account = self.layers.account();
        if account.take_disk_full() {
            let freed_bytes = self.make_room()?;
            return Ok(Some(Swept { freed_bytes, ..Swept::default() }));
        }
        let is_stale = account.measured_at().is_none_or(|at| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(now.0).unwrap_or(0));
            // A clock that was set back must not prevent measuring.
            now.duration_since(at).unwrap_or(LOOK_EVERY) >= LOOK_EVERY
        });
        let may_exceed = || account.wrote() && self.bytes_max.is_some_and(|max| account.may_exceed(max));
        if !is_stale && !may_exceed() {
            return Ok(None);
        }
        self.hold_within(self.bytes_max.map(|max| Bound { max, target: max - max / SLACK_PART }))
    }

    /// Removes what killed processes left unfinished: bases, and staging directories of exports, wherever they
    /// are. Costs one read of an empty directory if there is nothing to remove.
    pub fn sweep_unfinished(&self) -> Result<u64> {
        Ok(Unfinished::new(&self.dir).sweep()?)
    }

    /// Brings the cache within `bytes_max`, unless another process is doing so.
    pub fn evict_to(&self, bytes_max: u64) -> Result<Option<Swept>> {
        self.hold_within(Some(Bound { max: bytes_max, target: bytes_max }))
    }

    /// Removes unused data that can be recreated, because the disk is full. Bases and layers come first: the
    /// directories of `cache.dirs` cost more to recreate. Returns the number of bytes freed.
    pub fn make_room(&self) -> Result<u64> {
        let swept = self.sweep_leftovers(Trial::Real)?;
        let mut freed = swept.freed_bytes.saturating_add(self.layers.evict(0)?);
        if freed == 0 {
            let rest = self.evict_all(Trial::Real)?;
            freed = rest.freed_bytes;
        }
        Ok(freed)
    }

    /// Removes all unused data that can be recreated.
    pub fn clean(&self, trial: Trial, orphans: Orphans) -> Result<Swept> {
        if trial == Trial::Real {
            self.sweep_unfinished()?;
        }
        let mut swept = self.sweep_leftovers(trial)?;
        if orphans == Orphans::Discarded {
            let (count, bytes) = scratches::discard_orphans(&self.scratch(), trial)?;
            swept.scratches += count;
            swept.freed_bytes += bytes;
        }
        let rest = self.evict_all(trial)?;
        let Swept { bases, layers, dirs, stat_caches, freed_bytes, kept_bytes, .. } = rest;
        let freed_bytes = swept.freed_bytes.saturating_add(freed_bytes);
        Ok(Swept { bases, layers, dirs, stat_caches, freed_bytes, kept_bytes, ..swept })
    }

    /// Removes the data of a deleted vault, including the scratches of its runs. `path` is its former path.
    pub fn forget_vault(&self, id: &str, path: &Path) -> Result<Swept> {
        let mut swept = Swept::default();
        let (count, bytes) = scratches::discard_of(&self.scratch(), id, path)?;
        swept.scratches = count;
        swept.freed_bytes = bytes;
        self.evict_of(&[id.to_owned()], &mut swept)?;
        Ok(swept)
    }

    fn scratch(&self) -> ScratchDir {
        ScratchDir::new(&self.dir)
    }

    fn owners(&self) -> CacheOwners {
        CacheOwners::new(&self.dir)
    }

    fn hold_within(&self, bound: Option<Bound>) -> Result<Option<Swept>> {
        make::private_dirs(&self.dir).map_err(CacheCareError::host("create", &self.dir))?;
        let turn = self.dir.join("sweep.lock");
        let Some(_turn) = FileLock::try_acquire(&turn, Mode::Exclusive)
            .map_err(|error| CacheCareError::host("lock", &turn)(std::io::Error::other(error)))?
        else {
            return Ok(None);
        };
        avfs_types::pause::point("sweep-cache");
        let account = self.layers.account();
        let begun = account.begin();
        if let Some((id, path)) = &self.vault {
            self.owners().update(id, path.as_deref());
        }
        let mut swept = self.sweep_leftovers(Trial::Real)?;
        let gone = self.owners().gone().map_err(CacheCareError::host("list", &self.dir.join("vault")))?;
        if !gone.is_empty() {
            self.evict_of(&gone, &mut swept)?;
        }
        swept.freed_bytes = swept.freed_bytes.saturating_add(self.layers.sweep()?);
        let mut candidates = Vec::new();
        for candidate in self.candidates()? {
            match candidate.is_useless() && self.remove(&candidate)? {
                true => swept.add(candidate.kind(), candidate.bytes()),
                false => candidates.push(candidate),
            }
        }
        let mut total: u64 = candidates.iter().map(Candidate::bytes).sum();
        total = total.saturating_add(scratches::kept_bytes(&self.scratch())?);
        if let Some(bound) = bound.filter(|bound| total > bound.max) {
            candidates.sort_by_key(Candidate::order);
            for candidate in candidates {
                if total <= bound.target {
                    break;
                }
                if self.remove(&candidate)? {
                    total = total.saturating_sub(candidate.bytes());
                    swept.add(candidate.kind(), candidate.bytes());
                }
            }
            // A layer over a base that was removed is unusable.
            let freed = self.layers.sweep()?;
            total = total.saturating_sub(freed);
            swept.freed_bytes = swept.freed_bytes.saturating_add(freed);
        }
        swept.kept_bytes = total;
        account
            .settle(begun, total, bound.map_or(u64::MAX, |bound| bound.max))
            .map_err(CacheCareError::host("write the account in", &self.dir))?;
        Ok(Some(swept))
    }

    /// Removes leftovers of dead processes: partially built or removed directories, and scratches with nothing
    /// to keep.
    fn sweep_leftovers(&self, trial: Trial) -> Result<Swept> {
        let mut swept = Swept::default();
        let unfinished = || -> Result<Vec<PathBuf>> {
            let mut found = self.layers.unfinished()?;
            found.extend(
                dirs::unfinished(&self.dir).map_err(CacheCareError::host("list", &self.dir.join("dirs")))?,
            );
            found.extend(abandoned(&self.dir).map_err(CacheCareError::host("list", &self.dir))?);
            Ok(found)
        };
        let before = unfinished()?;
        if trial == Trial::DryRun {
            swept.leftovers = before.len() as u64;
            swept.freed_bytes = before.iter().map(|path| measure::disk_bytes(path)).sum();
        } else if !before.is_empty() {
            let bytes: Vec<u64> = before.iter().map(|path| measure::disk_bytes(path)).collect();
            self.layers.sweep()?;
            let ours = before.iter().filter(|path| path.exists() && !self.is_on_shelf(path));
            for path in ours {
                remove_leftover(path).map_err(CacheCareError::host("remove", path))?;
            }
            for (_, bytes) in before.iter().zip(bytes).filter(|(path, _)| !path.exists()) {
                swept.leftovers += 1;
                swept.freed_bytes = swept.freed_bytes.saturating_add(bytes);
            }
        }
        let (count, bytes) = scratches::sweep(&self.scratch(), trial)?;
        swept.scratches = count;
        swept.freed_bytes = swept.freed_bytes.saturating_add(bytes);
        Ok(swept)
    }

    /// True for data that its builder locks: it stays while the builder is alive.
    fn is_on_shelf(&self, path: &Path) -> bool {
        ["base", "layer"].iter().any(|shelf| path.starts_with(self.dir.join(shelf)))
    }

    fn candidates(&self) -> Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = self.layers.items()?.into_iter().map(Candidate::Item).collect();
        let place = self.dir.join("dirs");
        let listed = dirs::list(&self.dir).map_err(CacheCareError::host("list", &place))?;
        found.extend(listed.into_iter().map(Candidate::Dir));
        let place = self.dir.join("stat");
        let listed = stat_caches(&place).map_err(CacheCareError::host("list", &place))?;
        found.extend(listed);
        Ok(found)
    }

    fn evict_of(&self, vaults: &[String], swept: &mut Swept) -> Result<()> {
        for candidate in self.candidates()?.into_iter().filter(|candidate| candidate.is_of(vaults)) {
            if self.remove(&candidate)? {
                swept.add(candidate.kind(), candidate.bytes());
            }
        }
        swept.freed_bytes = swept.freed_bytes.saturating_add(self.layers.sweep()?);
        for id in vaults {
            let kept = ForkDirs::new(&self.dir, id);
            if kept.dir().exists() {
                let bytes = measure::disk_bytes(kept.dir());
                remove_tree(kept.dir()).map_err(CacheCareError::host("remove", kept.dir()))?;
                swept.freed_bytes = swept.freed_bytes.saturating_add(bytes);
            }
            self.owners()
                .forget(id)
                .map_err(CacheCareError::host("remove", &self.dir.join("vault").join(id)))?;
        }
        Ok(())
    }

    fn evict_all(&self, trial: Trial) -> Result<Swept> {
        let begun = self.layers.account().begin();
        let mut swept = Swept::default();
        for candidate in self.candidates()? {
            let goes = match trial {
                Trial::DryRun => !self.is_in_use(&candidate),
                Trial::Real => self.remove(&candidate)?,
            };
            match goes {
                true => swept.add(candidate.kind(), candidate.bytes()),
                false => swept.kept_bytes = swept.kept_bytes.saturating_add(candidate.bytes()),
            }
        }
        let kept = scratches::kept_bytes(&self.scratch())?;
        swept.kept_bytes = swept.kept_bytes.saturating_add(kept);
        if trial == Trial::Real {
            self.layers.sweep()?;
            self.layers
                .account()
                .settle(begun, swept.kept_bytes, self.bytes_max.unwrap_or(u64::MAX))
                .map_err(CacheCareError::host("write the account in", &self.dir))?;
        }
        Ok(swept)
    }

    fn is_in_use(&self, candidate: &Candidate) -> bool {
        match candidate {
            Candidate::Item(item) => self.layers.is_in_use(item),
            Candidate::Dir(dir) => dirs::is_in_use(dir),
            Candidate::StatCache { .. } => false,
        }
    }

    fn remove(&self, candidate: &Candidate) -> Result<bool> {
        match candidate {
            Candidate::Item(item) => Ok(self.layers.remove(item)?),
            Candidate::Dir(dir) => {
                dirs::evict(&self.dir, dir).map_err(CacheCareError::host("remove", &dir.path))
            }
            Candidate::StatCache { path, .. } => match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(CacheCareError::host("remove", path)(error))
                }
                Ok(()) | Err(_) => Ok(true),
            },
        }
    }
}

/// Removes a leftover: a directory, or a file such as an unfinished stat cache. Another process may remove it at the
/// same time.
fn remove_leftover(path: &Path) -> std::io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => remove_tree(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Directories of host checks and unfinished stat caches whose process is gone.
fn abandoned(cache_dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let is_dead = |process: &str| {
        process.parse::<u32>().is_ok_and(|process| !Path::new("/proc").join(process.to_string()).exists())
    };
    let mut found = Vec::new();
    for (dir, mark) in [(cache_dir.to_owned(), "doctor-"), (cache_dir.join("stat"), ".new-")] {
        let listing = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in listing.flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.rsplit_once(mark)).map(|(_, process)| process);
            if process.is_some_and(is_dead) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn stat_caches(dir: &Path) -> std::io::Result<Vec<Candidate>> {
    let listing = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in listing.flatten() {
        // It is being replaced or removed by another process.
        let Ok(meta) = entry.metadata() else { continue };
        let last_used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = measure::disk_bytes(&entry.path());
        if !entry.file_name().to_string_lossy().contains(".new-") {
            found.push(Candidate::StatCache { path: entry.path(), bytes, last_used });
        }
    }
    Ok(found)
}
