//! Scans all directories beneath the root in parallel, each through its own descriptor.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use rayon::Scope;

use avfs_hostfs::beneath::Listed;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::overlay::Shows;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::{beneath, overlay};
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;

use super::assembly::Built;
use super::shared::{Flavour, LargeFile, Outlet, ScannedDir, ScannedEntry, Shared, What, lock};
use super::touched::{Reach, TouchedBy};
use super::upper::Over;
use super::{CHANNEL_BATCHES, ImportError, ImportOptions, Scanned, TroubleReason, files};
use crate::backend::BlobRecord;
use crate::ignore::{FILE_NAME, OWN_DIR, Rules};
use crate::own::is_staging_name;
use crate::stat_cache::{CachedEntry, CachedKind, StatCache, decode_dir};
use crate::transfer::Result;
use crate::{Batch, Vault, threads};

/// Files read by one job.
const JOB_FILES: usize = 64;
/// Maximum number of file jobs that wait while directories are scanned: each holds a descriptor.
const WAITING_FILE_JOBS_MAX: usize = 32;
/// Amount of work that one thread does as fast as several, including the time to start them.
const ALONE_DIRS_MAX: usize = 256;
const ALONE_FILES_MAX: usize = 256;
const ALONE_BYTES_MAX: u64 = 4 << 20;

/// Starts the scan of a host directory.
pub(super) fn host<'a>(
    vault: &'a Vault,
    dir: &Path,
    cache: Option<&'a StatCache>,
    options: &ImportOptions<'a>,
    outlet: Outlet,
) -> Result<Scan<'a>> {
    let root = beneath::open_root(dir).map_err(|source| match Cause::of(&source) {
        Cause::NotFound => ImportError::NoDirectory { path: dir.to_owned() },
        Cause::NotADirectory => ImportError::NotADirectory { path: dir.to_owned() },
        Cause::NoPermission => ImportError::NoPermission { path: TreePath::root() },
        Cause::Exists
        | Cause::Link
        | Cause::ReadOnly
        | Cause::DiskFull
        | Cause::Unreadable
        | Cause::Other => ImportError::Io { operation: "open", path: TreePath::root(), source },
    })?;
    let shared = Shared::of_host(vault, dir, root, cache, options, outlet)?;
    Ok(Scan::new(shared, cache.map(|_| 0), Over::default()))
}

/// A scan with its remaining directories and files.
pub(crate) struct Scan<'a> {
    pub(crate) shared: Shared<'a>,
    dirs: Vec<Job>,
    files: Vec<FileJob>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(shared: Shared<'a>, cached: Option<u32>, over: Over) -> Self {
        let (path, rules) = (TreePath::root(), Rules::default());
        let reach = Reach::Everything;
        let start = Job { number: 0, parent: None, path, cached, rules, over, reach };
        Self { shared, dirs: vec![start], files: Vec::new() }
    }

    /// Restricts the scan of a host directory to the paths that a run touched.
    pub(super) fn only_touched(&mut self, by: TouchedBy<'a>) {
        if let Flavour::Host { touched, .. } = &mut self.shared.flavour {
            *touched = Some(by);
        }
        self.dirs.iter_mut().for_each(|root| root.reach = Reach::Touched);
    }

    /// Scans, and adds the blobs to store to a batch: on this thread if the scan is small, else on all cores. `end`
    /// consumes the scan's shared state.
    pub(crate) fn store_into<'v, T: Send>(
        mut self,
        vault: &'v Vault,
        end: impl FnOnce(&Scanned, Shared<'a>) -> T,
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
    fn look_alone(mut self) -> Result<Shared<'a>> {
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
    pub(super) fn build(self) -> Result<Built<'a>> {
        self.look_everywhere()?.built()
    }

    /// Does the remaining work on all cores, or on this thread if no other can be started.
    fn look_everywhere(self) -> Result<Shared<'a>> {
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

/// A directory to scan.
pub(crate) struct Job {
    pub(crate) number: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) path: TreePath,
    pub(crate) cached: Option<u32>,
    pub(crate) rules: Rules,
    pub(crate) over: Over,
    /// How much of it is scanned.
    pub(crate) reach: Reach,
}

/// Files of one directory to read, with their indexes among its entries.
struct FileJob {
    number: u32,
    path: TreePath,
    dir: Arc<OwnedFd>,
    names: Vec<(usize, Vec<u8>)>,
}

/// The entries of a directory while it is scanned.
pub(crate) struct Listing<'j> {
    pub(crate) job: &'j Job,
    pub(crate) fd: OwnedFd,
    pub(crate) entries: Vec<ScannedEntry>,
    /// Files to read, with their indexes among the entries.
    pub(crate) pending: Vec<(usize, Vec<u8>)>,
    pub(crate) subdirs: Vec<Job>,
    pub(crate) clean: bool,
    /// No versioned name is missing from the entries.
    pub(crate) complete: bool,
    /// The latest ctime of an entry.
    pub(crate) changed_at: FileTime,
}

impl<'j> Listing<'j> {
    pub(crate) fn new(job: &'j Job, fd: OwnedFd, names: usize) -> Self {
        let (entries, clean) = (Vec::with_capacity(names), false);
        let changed_at = FileTime::default();
        Self { job, fd, entries, pending: Vec::new(), subdirs: Vec::new(), clean, complete: true, changed_at }
    }
}

/// The remaining work of a scanned directory.
struct Looked {
    subdirs: Vec<Job>,
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

impl Shared<'_> {
    fn spawn_dir<'s>(&'s self, scope: &Scope<'s>, job: Job) {
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
    fn look(&self, job: Job) -> Result<Option<Looked>> {
        let (number, parent) = (job.number, job.parent);
        let looked = self.look_at(job)?;
        if looked.is_none() {
            self.assembly.add_gone(number, parent)?;
        }
        Ok(looked)
    }

    fn look_at(&self, mut job: Job) -> Result<Option<Looked>> {
        if job.path.is_too_deep() {
            return Err(ImportError::TooDeep { path: job.path }.into());
        }
        avfs_types::pause::point("scan-dir");
        let opened = self.open_dir(&job.path);
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
        let mut stat = match &self.flavour {
            Flavour::Host { touched: Some(by), .. } if job.reach == Reach::Touched => {
                by.as_found(stat, &job.path).map_err(io("stat"))?
            }
            Flavour::Host { .. } => stat,
            Flavour::Upper(upper) => self.settle_dir_time(upper, &job, &fd, stat)?,
        };
        let (xattrs, shows) =
            self.read_xattrs(fd.as_fd(), || job.path.clone()).map_err(io("read the attributes of"))?;
        let xattrs = self.keep_xattrs(self.without_secrets(&job.path, xattrs))?;
        job.over.hides_base |= shows == Shows::Itself;
        let (names, reaches) = match self.touched_names(&job, fd.as_fd())? {
            Some(touched) => touched,
            None => {
                // A directory that was removed while it is open cannot be listed.
                let listed = beneath::names(fd.as_fd());
                let Some(names) = self.tolerate(listed, "list", || job.path.clone())? else {
                    return Ok(None);
                };
                (names, HashMap::new())
            }
        };
        let listing = match &self.flavour {
            Flavour::Host { .. } => {
                if names.binary_search_by(|listed| listed.name.as_slice().cmp(FILE_NAME)).is_ok() {
                    job.rules = self.with_ignore_file(&job.rules, &fd, &job.path)?;
                }
                self.list(&job, fd, names, vault_dir)?
            }
            Flavour::Upper(upper) => {
                job.over.holds_copies = job.over.base.is_some_and(|base| base.totals.links > 0)
                    && overlay::holds_copies(fd.as_fd());
                job.rules = self.upper_rules(upper, &job, &fd, &names)?;
                self.list_upper(upper, &job, fd, names)?
            }
        };
        let Listing { fd, mut entries, pending, mut subdirs, clean, complete, changed_at, .. } = listing;
        for stat in std::iter::once(&mut stat).chain(entries.iter_mut().map(|entry| &mut entry.stat)) {
            stat.mode = self.true_mode(stat);
        }
        for subdir in &mut subdirs {
            let reach = subdir.path.split().and_then(|(_, name)| reaches.get(name));
            subdir.reach = reach.copied().unwrap_or_default();
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
        let Job { number, parent, path, cached, over, .. } = job;
        let scanned = ScannedDir { path, parent, stat, xattrs, entries, cached, clean, complete, over };
        self.assembly.add(number, scanned, looked.files.len() + looked.subdirs.len())?;
        Ok(Some(looked))
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.next_dir.fetch_add(1, Ordering::Relaxed)
    }

    /// Scans the names of a directory and compares them with its cached entries.
    fn list<'j>(
        &self,
        job: &'j Job,
        fd: OwnedFd,
        names: Vec<Listed>,
        vault_dir: Option<HostStat>,
    ) -> Result<Listing<'j>> {
        let encoded = job.cached.and_then(|number| self.cache?.encoded(number));
        let cached = encoded.as_ref().and_then(|encoded| decode_dir(encoded).ok());
        let mut known = cached.as_ref().map_or(&[][..], |dir| &dir.entries).iter().peekable();
        let mut listing = Listing { clean: cached.is_some(), ..Listing::new(job, fd, names.len()) };
        for listed in names {
            if vault_dir.is_some_and(|dir| self.own_file.is_called(&dir, &listed.name))
                || self.is_left_out(&job.path, &job.rules, listing.fd.as_fd(), &listed)
            {
                self.leave_unversioned(|| job.path.join(&listed.name));
                continue;
            }
            while known.next_if(|entry| entry.name < listed.name.as_slice()).is_some() {
                listing.clean = false;
            }
            let known = known.next_if(|entry| entry.name == listed.name.as_slice());
            self.add(&mut listing, listed, known)?;
        }
        listing.clean &= known.next().is_none();
        Ok(listing)
    }

    /// Whether a name in the directory `path` is unversioned by its name alone.
    pub(super) fn is_left_out(
        &self,
        path: &TreePath,
        rules: &Rules,
        dir: BorrowedFd<'_>,
        listed: &Listed,
    ) -> bool {
        // Any entry with the name of avfs's own directory would be used as such, even a symlink to another place.
        let staged = listed.is_dir != Some(false) && is_staging_name(&listed.name);
        if listed.name == OWN_DIR || staged {
            return true;
        }
        if rules.is_empty() && self.exclude().is_none() {
            return false;
        }
        let is_dir = listed.is_dir.unwrap_or_else(|| {
            let looked = beneath::stat(dir, &listed.name);
            looked.is_ok_and(|stat| stat.kind == HostKind::Dir)
        });
        let path = path.join(&listed.name);
        let excluded = self.exclude().is_some_and(|rules| rules.ignores(&path, is_dir));
        excluded || rules.ignores(&path, is_dir)
    }

    /// The exclude rules of a host directory; `None` if there are no rules.
    fn exclude(&self) -> Option<&Rules> {
        match &self.flavour {
            Flavour::Host { exclude, .. } => Some(exclude).filter(|rules| !rules.is_empty()),
            Flavour::Upper(_) => None,
        }
    }

    /// Adds one name. An entry that matches the cache is taken from it.
    fn add(&self, listing: &mut Listing<'_>, listed: Listed, known: Option<&CachedEntry<'_>>) -> Result<()> {
        let path = || listing.job.path.join(&listed.name);
        let stat = if listed.is_dir == Some(true) {
            // The directory's own job reads its stat; only its kind matters here.
            stat_of_dir()
        } else {
            let looked = beneath::stat(listing.fd.as_fd(), &listed.name);
            let Some(stat) = self.tolerate(looked, "stat", path)? else {
                (listing.clean, listing.complete) = (false, false);
                return Ok(());
            };
            if self.own_file.is_file(&stat) {
                self.leave_unversioned(path);
                return Ok(());
            }
            self.note_owner(&stat);
            stat
        };
        let vouched = known.filter(|entry| entry.vouches_for(&stat)).map(|entry| entry.kind);
        let what = match (stat.kind, vouched) {
            (HostKind::Dir, _) => {
                let cached = known.and_then(|entry| match entry.kind {
                    CachedKind::Dir(number) => Some(number),
                    CachedKind::File { .. } | CachedKind::Symlink { .. } | CachedKind::Fifo => None,
                });
                let (number, cached) = self.assembly.number(cached, || self.next_number());
                listing.clean &= cached.is_some();
                let (parent, rules) = (Some(listing.job.number), listing.job.rules.clone());
                let over = Over::default();
                let reach = Reach::Everything;
                listing.subdirs.push(Job { number, parent, path: path(), cached, rules, over, reach });
                What::Dir(number)
            }
            (HostKind::File, Some(CachedKind::File { content, xattrs })) => What::File { content, xattrs },
            (HostKind::File, _) => {
                listing.pending.push((listing.entries.len(), listed.name.clone()));
                What::Pending
            }
            (HostKind::Symlink, Some(CachedKind::Symlink { target })) => {
                What::Symlink { target: target.to_vec() }
            }
            (HostKind::Symlink, _) => {
                let read = beneath::read_link(listing.fd.as_fd(), &listed.name);
                let read = self.tolerate(read, "read the link", path)?;
                read.map_or(What::Gone, |target| What::Symlink { target })
            }
            (HostKind::Fifo, _) => What::Fifo,
            (kind @ (HostKind::Whiteout | HostKind::Special(_)), _) => {
                let kind = if let HostKind::Special(kind) = kind { kind } else { "character device" };
                self.report(path(), TroubleReason::Special(kind));
                self.leave_unversioned(path);
                return Ok(());
            }
        };
        listing.clean &= vouched.is_some() || matches!(what, What::Dir(_));
        let settled = self.is_settled(&stat);
        listing.changed_at = listing.changed_at.max(stat.ctime);
        listing.entries.push(ScannedEntry { name: listed.name, stat, what, settled });
        Ok(())
    }
}

fn stat_of_dir() -> HostStat {
    let never = FileTime::default();
    HostStat {
        kind: HostKind::Dir,
        mode: 0,
        size: 0,
        mtime: never,
        ctime: never,
        atime: never,
        device: 0,
        inode: 0,
        links: 0,
        owner: 0,
        group: 0,
    }
}
