//! Looks at every directory beneath the root, in parallel, each through its own descriptor.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use rayon::Scope;

use crate::backend::BlobRecord;
use crate::hostfs::beneath::{self, DIR, Listed};
use crate::hostfs::cause::Cause;
use crate::hostfs::stat::{FileTime, HostKind, HostStat};
use crate::hostfs::xattr;
use crate::vault::error::{Result, VaultError};
use crate::vault::ignore::{FILE_NAME, OWN_DIR, Rules};
use crate::vault::path::{DEPTH_MAX, TreePath};
use crate::vault::stat_cache::{CachedEntry, CachedKind, StatCache};
use crate::vault::store::Vault;

use super::files;
use super::shared::{Found, ScannedDir, ScannedEntry, Shared, What, lock};
use super::{ImportError, ImportOptions, Keep, TroubleReason};

/// Files read by one job.
const JOB_FILES: usize = 64;

pub(super) fn scan(
    vault: &Vault,
    dir: &Path,
    cache: Option<&StatCache>,
    keep: Keep,
    options: &ImportOptions<'_>,
    send: Option<SyncSender<Vec<BlobRecord>>>,
) -> Result<Found> {
    let root = beneath::open_root(dir).map_err(|source| match Cause::of(&source) {
        Cause::NotFound => ImportError::NoDirectory { path: dir.to_owned() },
        Cause::NotADirectory => ImportError::NotADirectory { path: dir.to_owned() },
        Cause::NoPermission => ImportError::NoPermission { path: TreePath::root() },
        Cause::Exists | Cause::Link | Cause::ReadOnly | Cause::DiskFull | Cause::Other => {
            ImportError::Io { operation: "open", path: TreePath::root(), source }
        }
    })?;
    let shared = Shared::new(vault, dir, root, cache, keep, options, send)?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| VaultError::Input(std::io::Error::other(error)))?;
    let (path, rules) = (TreePath::root(), Rules::default());
    let start = Job { number: 0, parent: None, path, cached: cache.map(|_| 0), rules };
    pool.scope(|scope| shared.spawn_dir(scope, start));
    // One large file at a time, each on all cores: that bounds the memory.
    let large = std::mem::take(&mut *lock(&shared.large));
    for file in large {
        if shared.failed() {
            break;
        }
        let read = pool.install(|| files::read_large(&shared, &file));
        shared.check(read);
    }
    shared.finish()
}

/// A directory to be looked at.
struct Job {
    number: u32,
    parent: Option<u32>,
    path: TreePath,
    cached: Option<u32>,
    rules: Rules,
}

/// What a directory holds, as its names are gone through.
struct Listing<'j> {
    job: &'j Job,
    fd: OwnedFd,
    entries: Vec<ScannedEntry>,
    /// Files to be read, with their places among the entries.
    pending: Vec<(usize, Vec<u8>)>,
    subdirs: Vec<Job>,
    clean: bool,
}

impl Shared<'_> {
    fn spawn_dir<'s>(&'s self, scope: &Scope<'s>, job: Job) {
        scope.spawn(move |scope| {
            if !self.failed() {
                let done = self.dir(scope, job);
                self.check(done);
            }
        });
    }

    fn dir<'s>(&'s self, scope: &Scope<'s>, mut job: Job) -> Result<()> {
        let depth = job.path.depth();
        if depth > DEPTH_MAX {
            return Err(ImportError::TooDeep { path: job.path, depth }.into());
        }
        let opened = beneath::open(self.root.as_fd(), job.path.as_bytes(), DIR);
        let Some(fd) = self.tolerate(opened, "open", || job.path.clone())? else {
            // Its parent finds no directory under this number and leaves it out.
            return Ok(());
        };
        let io = |operation| {
            let path = job.path.clone();
            move |source| ImportError::Io { operation, path, source }
        };
        let stat = beneath::fstat(fd.as_fd()).map_err(io("stat"))?;
        let xattrs = self.keep_xattrs(xattr::read(fd.as_fd()).map_err(io("read the attributes of"))?)?;
        // A directory that is removed while it is open can no longer be listed.
        let listed = beneath::names(fd.as_fd());
        let Some(names) = self.tolerate(listed, "list", || job.path.clone())? else { return Ok(()) };
        if names.binary_search_by(|listed| listed.name.as_slice().cmp(FILE_NAME)).is_ok() {
            job.rules = self.with_ignore_file(&job.rules, &fd, &job.path)?;
        }
        let listing = self.list(&job, fd, names)?;
        let Listing { fd, entries, pending, subdirs, clean, .. } = listing;
        self.meter.add(entries.len() as u64, 0);
        for subdir in subdirs {
            self.spawn_dir(scope, subdir);
        }
        self.spawn_files(scope, &job, fd, &pending);
        let Job { number, parent, path, cached, .. } = job;
        lock(&self.dirs).push((number, ScannedDir { path, parent, stat, xattrs, entries, cached, clean }));
        Ok(())
    }

    /// Goes through the names of a directory beside those the cache has of it.
    fn list<'j>(&self, job: &'j Job, fd: OwnedFd, names: Vec<Listed>) -> Result<Listing<'j>> {
        let cached = job.cached.and_then(|number| self.cache?.dir(number));
        let mut known = cached.as_ref().map_or(&[][..], |dir| &dir.entries).iter().peekable();
        let entries = Vec::with_capacity(names.len());
        let clean = cached.is_some();
        let mut listing = Listing { job, fd, entries, pending: Vec::new(), subdirs: Vec::new(), clean };
        for listed in names {
            if self.is_left_out(&listing, &listed) {
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

    fn is_left_out(&self, listing: &Listing<'_>, listed: &Listed) -> bool {
        let path = &listing.job.path;
        if (listed.name == OWN_DIR && listed.is_dir != Some(false)) || self.is_own(path, &listed.name) {
            return true;
        }
        if listing.job.rules.is_empty() {
            return false;
        }
        let is_dir = listed.is_dir.unwrap_or_else(|| {
            let looked = beneath::stat(listing.fd.as_fd(), &listed.name);
            looked.is_ok_and(|stat| stat.kind == HostKind::Dir)
        });
        listing.job.rules.ignores(&path.join(&listed.name), is_dir)
    }

    /// Adds one name; what the cache vouches for is taken from there.
    fn add(&self, listing: &mut Listing<'_>, listed: Listed, known: Option<&CachedEntry<'_>>) -> Result<()> {
        let path = || listing.job.path.join(&listed.name);
        let stat = if listed.is_dir == Some(true) {
            // The directory's own job looks at it; only its kind matters here.
            stat_of_dir()
        } else {
            let looked = beneath::stat(listing.fd.as_fd(), &listed.name);
            let Some(stat) = self.tolerate(looked, "stat", path)? else {
                listing.clean = false;
                return Ok(());
            };
            stat
        };
        let vouched = known.filter(|entry| entry.vouches_for(&stat)).map(|entry| entry.kind);
        let what = match (stat.kind, vouched) {
            (HostKind::Dir, _) => {
                let number = self.next_dir.fetch_add(1, Ordering::Relaxed);
                let cached = known.and_then(|entry| match entry.kind {
                    CachedKind::Dir(number) => Some(number),
                    CachedKind::File { .. } | CachedKind::Symlink { .. } | CachedKind::Fifo => None,
                });
                listing.clean &= cached.is_some();
                let (parent, rules) = (Some(listing.job.number), listing.job.rules.clone());
                listing.subdirs.push(Job { number, parent, path: path(), cached, rules });
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
            (HostKind::Special(kind), _) => {
                self.report(path(), TroubleReason::Special(kind));
                return Ok(());
            }
        };
        listing.clean &= vouched.is_some() || matches!(what, What::Dir(_));
        let settled = self.is_settled(&stat);
        listing.entries.push(ScannedEntry { name: listed.name, stat, what, settled });
        Ok(())
    }

    fn spawn_files<'s>(&'s self, scope: &Scope<'s>, job: &Job, fd: OwnedFd, pending: &[(usize, Vec<u8>)]) {
        let fd = Arc::new(fd);
        for chunk in pending.chunks(JOB_FILES) {
            let (files, dir) = (chunk.to_vec(), Arc::clone(&fd));
            let (number, path) = (job.number, job.path.clone());
            scope.spawn(move |_| {
                if !self.failed() {
                    let done = files::read_small(self, number, &path, &dir, files);
                    self.check(done);
                }
            });
        }
    }

    fn with_ignore_file(&self, rules: &Rules, dir: &OwnedFd, path: &TreePath) -> Result<Rules> {
        let file = path.join(FILE_NAME);
        // A link or a directory of that name is an entry like any other, as it is to git.
        let looked = beneath::stat(dir.as_fd(), FILE_NAME);
        let looked = self.tolerate(looked, "stat", || file.clone())?;
        if looked.is_none_or(|stat| stat.kind != HostKind::File) {
            return Ok(rules.clone());
        }
        let read = beneath::open(dir.as_fd(), FILE_NAME, beneath::READ).and_then(|fd| {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut text).map(|_| text)
        });
        match self.tolerate(read, "read", || file.clone())? {
            None => Ok(rules.clone()),
            Some(text) => {
                Ok(rules.with(path, &text).map_err(|source| ImportError::BadIgnore { path: file, source })?)
            }
        }
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
        device: 0,
        inode: 0,
        links: 0,
    }
}
