//! The source of a scan of a host directory, which other processes may use: ignore rules, the stat cache, the vault's
//! own files.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU32;

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::Listed;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::foreign::Writable;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;

use super::touched::{Reach, TouchedBy};
use super::{ImportError, ImportOptions, TroubleReason};
use crate::ignore::{FILE_NAME, OWN_DIR, Rules};
use crate::own::{OwnFile, is_staging_name};
use crate::page::DirRef;
use crate::pages::NewPages;
use crate::stat_cache::{CachedEntry, CachedKind, StatCache, decode_dir};
use crate::transfer::Result;
use crate::transfer::scan::{
    Assembly, BuiltDir, Found, Groups, Job, Listing, Outlet, Records, Scan, ScannedDir, ScannedEntry, Shared,
    Source, What, meta, node,
};
use crate::{Vault, pages};

/// A host directory.
pub(super) struct Host<'a> {
    /// Takes precedence over ignore files.
    exclude: Rules,
    /// If set, only the paths that this run touched are scanned.
    pub(super) touched: Option<TouchedBy<'a>>,
}

/// Starts the scan of a host directory.
pub(super) fn scan<'a>(
    vault: &'a Vault,
    dir: &Path,
    cache: Option<&'a StatCache>,
    options: &ImportOptions<'a>,
    outlet: Outlet,
) -> Result<Scan<'a, Host<'a>>> {
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
    let exclude = Rules::excluding(options.exclude).map_err(|source| ImportError::BadExclude { source })?;
    let records = match (&outlet, options.stat_cache) {
        (Outlet::Held(_) | Outlet::Channel(_), Some(_)) => Records::Kept,
        (Outlet::Nowhere, _) | (_, None) => Records::NotWanted,
    };
    let beside = |path: &Path| path.parent().map(Path::to_owned);
    let places = [vault.path(), options.stat_cache].into_iter().flatten().filter_map(beside);
    let assembly = Assembly::new(cache, records, &places.collect::<Vec<_>>());
    let source = Host { exclude, touched: None };
    let mut shared = Shared::new(vault, source, root, outlet, options.meter, assembly);
    shared.on_trouble = options.on_trouble;
    shared.cache = cache;
    shared.own_file = OwnFile::of(vault, dir);
    shared.writable = Writable::here();
    shared.next_dir = AtomicU32::new(cache.map_or(1, StatCache::numbers));
    Ok(Scan::new(shared, cache.map(|_| 0), Reach::Everything))
}

impl<'a> Scan<'a, Host<'a>> {
    /// Restricts the scan to the paths that a run touched.
    pub(super) fn only_touched(&mut self, by: TouchedBy<'a>) {
        self.shared.source.touched = Some(by);
        self.dirs.iter_mut().for_each(|root| root.own = Reach::Touched);
    }
}

impl Source for Host<'_> {
    type Dir = Reach;

    const IS_QUIET: bool = false;
    const SPILLS: bool = true;

    fn open_dir(&self, root: BorrowedFd<'_>, path: &TreePath) -> io::Result<OwnedFd> {
        beneath::open(root, path.as_bytes(), beneath::DIR)
    }

    fn stat_of_dir(
        shared: &Shared<'_, Self>,
        job: &Job<Reach>,
        _: &OwnedFd,
        stat: HostStat,
    ) -> Result<HostStat> {
        match &shared.source.touched {
            Some(by) if job.own == Reach::Touched => {
                let io = |source| ImportError::Io { operation: "stat", path: job.path.clone(), source };
                Ok(by.as_found(stat, &job.path).map_err(io)?)
            }
            Some(_) | None => Ok(stat),
        }
    }

    fn list<'j>(
        shared: &Shared<'_, Self>,
        job: &'j mut Job<Reach>,
        dir: OwnedFd,
        found: Found,
    ) -> Result<Option<Listing<'j, Reach>>> {
        let (names, reaches) = match shared.touched_names(job, dir.as_fd())? {
            Some(touched) => touched,
            None => match shared.names(dir.as_fd(), &job.path)? {
                Some(names) => (names, HashMap::new()),
                None => return Ok(None),
            },
        };
        if names.binary_search_by(|listed| listed.name.as_slice().cmp(FILE_NAME)).is_ok() {
            job.rules = shared.with_ignore_file(&job.rules, &dir, &job.path)?;
        }
        let mut listing = shared.list(job, dir, names, found.vault_dir)?;
        for subdir in &mut listing.subdirs {
            let reach = subdir.path.split().and_then(|(_, name)| reaches.get(name));
            subdir.own = reach.copied().unwrap_or_default();
        }
        Ok(Some(listing))
    }

    fn tree(
        &self,
        dir: &ScannedDir<Reach>,
        built: &HashMap<u32, BuiltDir>,
        groups: &Groups,
        new: &mut NewPages,
    ) -> Result<DirRef> {
        let entries = dir.entries.iter().filter_map(|entry| node(entry, built, groups));
        Ok(pages::build(&meta(dir), entries.collect(), new))
    }
}

impl Shared<'_, Host<'_>> {
    /// Scans the names of a directory and compares them with its cached entries.
    fn list<'j>(
        &self,
        job: &'j Job<Reach>,
        fd: OwnedFd,
        names: Vec<Listed>,
        vault_dir: Option<HostStat>,
    ) -> Result<Listing<'j, Reach>> {
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

    /// The exclude rules; `None` if there are no rules.
    fn exclude(&self) -> Option<&Rules> {
        Some(&self.source.exclude).filter(|rules| !rules.is_empty())
    }

    /// Adds one name. An entry that matches the cache is taken from it.
    fn add(
        &self,
        listing: &mut Listing<'_, Reach>,
        listed: Listed,
        known: Option<&CachedEntry<'_>>,
    ) -> Result<()> {
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
                let subdir = self.subdir(listing.job, path(), cached, Reach::Everything);
                listing.clean &= subdir.cached.is_some();
                let number = subdir.number;
                listing.subdirs.push(subdir);
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
