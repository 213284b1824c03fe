//! Scans all directories beneath the root in parallel, each through its own descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use rayon::Scope;

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::Listed;
use avfs_hostfs::overlay::Shows;
use avfs_hostfs::stat::HostStat;
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;

use super::assembly::Built;
use super::entry::{LargeFile, ScannedDir, ScannedEntry};
use super::error::ImportError;
use super::report::Scanned;
use super::shared::{Outlet, Shared, lock};
use super::{Source, files};
use crate::backend::BlobRecord;
use crate::ignore::Rules;
use crate::transfer::Result;
use crate::{Batch, Vault, threads};

/// Capacity of the channel to the storing thread, in batches of a few megabytes at most.
pub(crate) const CHANNEL_BATCHES: usize = 8;
/// Files read by one job.
const JOB_FILES: usize = 64;
/// Maximum number of file jobs that wait while directories are scanned: each holds a descriptor.
const WAITING_FILE_JOBS_MAX: usize = 32;
/// Amount of work that one thread does as fast as several, including the time to start them.
const ALONE_DIRS_MAX: usize = 256;
const ALONE_FILES_MAX: usize = 256;
const ALONE_BYTES_MAX: u64 = 4 << 20;

/// A scan with its remaining directories and files.
pub(crate) struct Scan<'a, S: Source> {
    pub(crate) shared: Shared<'a, S>,
    pub(crate) dirs: Vec<Job<S::Dir>>,
    files: Vec<FileJob>,
}

impl<'a, S: Source> Scan<'a, S> {
    pub(crate) fn new(shared: Shared<'a, S>, cached: Option<u32>, own: S::Dir) -> Self {
        let (path, rules) = (TreePath::root(), Rules::default());
        let start = Job { number: 0, parent: None, path, cached, rules, own };
        Self { shared, dirs: vec![start], files: Vec::new() }
    }

    /// Scans, and adds the blobs to store to a batch: on this thread if the scan is small, else on all cores. `end`
    /// consumes the scan's shared state.
    pub(crate) fn store_into<'v, T: Send>(
        mut self,
        vault: &'v Vault,
        end: impl FnOnce(&Scanned, Shared<'a, S>) -> T,
    ) -> Result<(Built<'a>, Batch<'v>, T)> {
        if self.is_little()? {
            let shared = self.look_alone()?;
            let built = shared.built()?;
            let mut batch = Batch::new(vault)?;
            take_held(&shared.outlet).into_iter().try_for_each(|blob| batch.push(blob))?;
            let ended = end(&built.scanned, shared);
            return Ok((built, batch, ended));
        }
        let (send, receive) = mpsc::sync_channel::<Vec<BlobRecord>>(CHANNEL_BATCHES);
        let held = take_held(&std::mem::replace(&mut self.shared.outlet, Outlet::Channel(send)));
        std::thread::scope(|scope| {
            let storing = threads::spawn(scope, move || -> Result<Batch<'_>> {
                let mut batch = Batch::new(vault)?;
                for blob in held.into_iter().chain(receive.into_iter().flatten()) {
                    batch.push(blob)?;
                }
                batch.settle()?;
                Ok(batch)
            })?;
            let scanned = self.look_everywhere().and_then(|shared| {
                let built = shared.built()?;
                let ended = end(&built.scanned, shared);
                Ok((built, ended))
            });
            // A failure to store also ends the scan; it is the cause to report.
            let batch = threads::join(storing)?;
            scanned.map(|(built, ended)| (built, batch, ended))
        })
    }

    /// Scans the first directories on this thread. Returns true if these were all and their files are few and small:
    /// then threads would cost more than they save.
    pub(crate) fn is_little(&mut self) -> Result<bool> {
        let (mut dirs, mut files, mut bytes) = (0, 0, 0_u64);
        while let Some(job) = self.dirs.pop() {
            if self.shared.failed() {
                break;
            }
            let Some(looked) = self.shared.look(job)? else { continue };
            dirs += 1;
            bytes = bytes.saturating_add(looked.bytes);
            files += looked.files.iter().map(|job| job.names.len()).sum::<usize>();
            self.dirs.extend(looked.subdirs);
            self.files.extend(looked.files);
            if dirs >= ALONE_DIRS_MAX || files > ALONE_FILES_MAX || bytes > ALONE_BYTES_MAX {
                break;
            }
            if self.files.len() >= WAITING_FILE_JOBS_MAX {
                self.read_waiting()?;
            }
        }
        Ok(self.dirs.is_empty() && files <= ALONE_FILES_MAX && bytes <= ALONE_BYTES_MAX)
    }

    /// Does the remaining work on this thread.
    fn look_alone(mut self) -> Result<Shared<'a, S>> {
        self.read_waiting()?;
        while let Some(job) = self.dirs.pop() {
            if self.shared.failed() {
                break;
            }
            if let Some(looked) = self.shared.look(job)? {
                self.dirs.extend(looked.subdirs);
                self.files.extend(looked.files);
            }
            self.read_waiting()?;
        }
        self.shared.read_large(|file| files::read_large(&self.shared, file));
        Ok(self.shared)
    }

    fn read_waiting(&mut self) -> Result<()> {
        for job in std::mem::take(&mut self.files) {
            if !self.shared.failed() {
                files::read_small(&self.shared, job.number, &job.path, &job.dir, job.names)?;
            }
        }
        Ok(())
    }

    /// The trees of the directory.
    pub(crate) fn build(self) -> Result<Built<'a>> {
        self.look_everywhere()?.built()
    }

    /// Does the remaining work on all cores, or on this thread if no other can be started.
    fn look_everywhere(self) -> Result<Shared<'a, S>> {
        let Ok(pool) = threads::pool() else { return self.look_alone() };
        let Self { shared, dirs, files } = self;
        pool.scope(|scope| {
            files.into_iter().for_each(|job| shared.spawn_files(scope, job));
            dirs.into_iter().for_each(|job| shared.spawn_dir(scope, job));
        });
        // One large file at a time, each on all cores, to bound the memory.
        shared.read_large(|file| pool.install(|| files::read_large(&shared, file)));
        Ok(shared)
    }
}

/// A directory to scan; `D` is what its source keeps with it.
pub(crate) struct Job<D> {
    pub(crate) number: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) path: TreePath,
    pub(crate) cached: Option<u32>,
    pub(crate) rules: Rules,
    pub(crate) own: D,
}

/// Files of one directory to read, with their indexes among its entries.
struct FileJob {
    number: u32,
    path: TreePath,
    dir: Arc<OwnedFd>,
    names: Vec<(usize, Vec<u8>)>,
}

/// The facts about a directory before it is listed.
pub(crate) struct Found {
    /// Its state, if a vault is in it.
    pub(crate) vault_dir: Option<HostStat>,
    pub(crate) shows: Shows,
}

/// The entries of a directory while it is scanned.
pub(crate) struct Listing<'j, D> {
    pub(crate) job: &'j Job<D>,
    pub(crate) fd: OwnedFd,
    pub(crate) entries: Vec<ScannedEntry>,
    /// Files to read, with their indexes among the entries.
    pub(crate) pending: Vec<(usize, Vec<u8>)>,
    pub(crate) subdirs: Vec<Job<D>>,
    pub(crate) clean: bool,
    /// No versioned name is missing from the entries.
    pub(crate) complete: bool,
    /// The latest ctime of an entry.
    pub(crate) changed_at: FileTime,
}

impl<'j, D> Listing<'j, D> {
    pub(crate) fn new(job: &'j Job<D>, fd: OwnedFd, names: usize) -> Self {
        let (entries, clean) = (Vec::with_capacity(names), false);
        let changed_at = FileTime::default();
        Self { job, fd, entries, pending: Vec::new(), subdirs: Vec::new(), clean, complete: true, changed_at }
    }
}

/// The remaining work of a scanned directory.
struct Looked<D> {
    subdirs: Vec<Job<D>>,
    files: Vec<FileJob>,
    /// Total size of the files to read.
    bytes: u64,
}

fn take_held(outlet: &Outlet) -> Vec<BlobRecord> {
    match outlet {
        Outlet::Held(held) => std::mem::take(&mut *lock(held)),
        Outlet::Nowhere | Outlet::Channel(_) => Vec::new(),
    }
}

impl<S: Source> Shared<'_, S> {
    fn spawn_dir<'s>(&'s self, scope: &Scope<'s>, job: Job<S::Dir>) {
        scope.spawn(move |scope| {
            if self.failed() {
                return;
            }
            match self.look(job) {
                Ok(None) => {}
                Ok(Some(looked)) => {
                    looked.subdirs.into_iter().for_each(|job| self.spawn_dir(scope, job));
                    looked.files.into_iter().for_each(|job| self.spawn_files(scope, job));
                }
                Err(error) => self.check(Err(error)),
            }
        });
    }

    fn spawn_files<'s>(&'s self, scope: &Scope<'s>, job: FileJob) {
        scope.spawn(move |_| {
            if !self.failed() {
                let done = files::read_small(self, job.number, &job.path, &job.dir, job.names);
                self.check(done);
            }
        });
    }

    fn read_large(&self, read: impl Fn(&LargeFile) -> Result<()>) {
        let large = std::mem::take(&mut *lock(&self.large));
        for file in large {
            if self.failed() {
                break;
            }
            self.check(read(&file));
        }
    }

    /// Scans one directory. `None` if it no longer exists.
    fn look(&self, job: Job<S::Dir>) -> Result<Option<Looked<S::Dir>>> {
        let (number, parent) = (job.number, job.parent);
        let looked = self.look_at(job)?;
        if looked.is_none() {
            self.assembly.add_gone(&self.source, number, parent)?;
        }
        Ok(looked)
    }

    fn look_at(&self, mut job: Job<S::Dir>) -> Result<Option<Looked<S::Dir>>> {
        if job.path.is_too_deep() {
            return Err(ImportError::TooDeep { path: job.path }.into());
        }
        avfs_types::pause::point("scan-dir");
        let opened = self.source.open_dir(self.root.as_fd(), &job.path);
        let Some(fd) = self.tolerate(opened, "open", || job.path.clone())? else {
            // The parent finds no directory with this number and drops the entry.
            return Ok(None);
        };
        let io = |operation| {
            let path = job.path.clone();
            move |source| ImportError::Io { operation, path, source }
        };
        let stat = beneath::fstat(fd.as_fd()).map_err(io("stat"))?;
        let vault_dir = Some(stat).filter(|stat| self.own_file.is_in(stat));
        let holds_vault = vault_dir.is_some();
        self.note_owner(&stat);
        let mut stat = S::stat_of_dir(self, &job, &fd, stat)?;
        let (xattrs, shows) =
            self.read_xattrs(fd.as_fd(), || job.path.clone()).map_err(io("read the attributes of"))?;
        let xattrs = self.keep_xattrs(S::kept_xattrs(self, &job.path, xattrs))?;
        let Some(listing) = S::list(self, &mut job, fd, Found { vault_dir, shows })? else {
            return Ok(None);
        };
        let Listing { fd, mut entries, pending, subdirs, clean, complete, changed_at, .. } = listing;
        for stat in std::iter::once(&mut stat).chain(entries.iter_mut().map(|entry| &mut entry.stat)) {
            stat.mode = self.source.true_mode(stat);
        }
        self.note_change(if holds_vault { changed_at } else { changed_at.max(stat.ctime) });
        // Every use of the vault changes the mtime of its directory.
        let known = job.cached.filter(|_| clean && holds_vault);
        let stat = match known.and_then(|number| self.cache?.head(number)) {
            Some(known) => HostStat { mtime: known.mtime, ..stat },
            None => stat,
        };
        self.meter.add(entries.len().saturating_sub(subdirs.len()) as u64, 0);
        let bytes = pending.iter().map(|(at, _)| entries[*at].stat.size).fold(0, u64::saturating_add);
        let dir = Arc::new(fd);
        let chunks = pending.chunks(JOB_FILES).map(<[_]>::to_vec);
        let (number, path) = (job.number, &job.path);
        let file_job = |names| FileJob { number, path: path.clone(), dir: Arc::clone(&dir), names };
        let looked = Looked { subdirs, files: chunks.map(file_job).collect(), bytes };
        let Job { number, parent, path, cached, own, .. } = job;
        let scanned = ScannedDir { path, parent, stat, xattrs, entries, cached, clean, complete, own };
        self.assembly.add(&self.source, number, scanned, looked.files.len() + looked.subdirs.len())?;
        Ok(Some(looked))
    }

    /// The names in a directory, sorted. `None` if it no longer exists.
    pub(crate) fn names(&self, dir: BorrowedFd<'_>, path: &TreePath) -> Result<Option<Vec<Listed>>> {
        // A directory that was removed while it is open cannot be listed.
        self.tolerate(beneath::names(dir), "list", || path.clone())
    }

    /// A job for a subdirectory, which keeps its number in the cache.
    pub(crate) fn subdir(
        &self,
        above: &Job<S::Dir>,
        path: TreePath,
        cached: Option<u32>,
        own: S::Dir,
    ) -> Job<S::Dir> {
        let next = || self.next_dir.fetch_add(1, Ordering::Relaxed);
        let (number, cached) = self.assembly.number(cached, next);
        Job { number, parent: Some(above.number), path, cached, rules: above.rules.clone(), own }
    }
}
