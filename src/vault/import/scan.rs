//! Looks at every directory beneath the root, in parallel, each through its own descriptor.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::Scope;

use crate::backend::BlobRecord;
use crate::clock::Timestamp;
use crate::hostfs::beneath::{self, DIR};
use crate::hostfs::cause::Cause;
use crate::hostfs::stat::{FileTime, HostKind, HostStat};
use crate::hostfs::xattr;
use crate::ids::BlobId;
use crate::vault::content;
use crate::vault::error::{Result, VaultError};
use crate::vault::ignore::{FILE_NAME, OWN_DIR, Rules};
use crate::vault::meter::Meter;
use crate::vault::page::FileContent;
use crate::vault::path::{DEPTH_MAX, TreePath};
use crate::vault::stat_cache::{CachedEntry, CachedKind, StatCache};
use crate::vault::store::Vault;

use super::files;
use super::{ImportError, ImportOptions, Keep, OnTrouble, Scanned, Trouble, TroubleReason};

/// Files read by one job.
const JOB_FILES: usize = 64;
/// The kernel stamps files with a clock that may lag behind the real one by some ticks.
const CLOCK_LAG_NANOS: i64 = 50_000_000;
/// What a file system without fractions of a second may round away.
const COARSE_NANOS: i64 = 2_000_000_000;

pub(super) struct ScannedDir {
    pub path: TreePath,
    /// The number of the directory it lies in; nothing for the root.
    pub parent: Option<u32>,
    pub stat: HostStat,
    pub xattrs: Option<BlobId>,
    pub entries: Vec<ScannedEntry>,
    /// Its number in the stat cache.
    pub cached: Option<u32>,
    /// Every entry is as the cache has it, subdirectories aside.
    pub clean: bool,
}

pub(super) struct ScannedEntry {
    pub name: Vec<u8>,
    pub stat: HostStat,
    pub what: What,
    pub settled: bool,
}

pub(super) enum What {
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
    /// Nothing: it is gone or cannot be read.
    Gone,
}

/// What reading a file gave.
pub(super) struct Facts {
    pub dir: u32,
    pub entry: usize,
    pub stat: HostStat,
    pub what: What,
}

/// Everything found, directories by number: children have higher numbers than their parents.
pub(super) struct Found {
    pub dirs: Vec<ScannedDir>,
    pub scanned: Scanned,
}

/// A file too large, or too hollow, to be read in one go.
pub(super) struct LargeFile {
    pub dir: u32,
    pub entry: usize,
    pub path: TreePath,
}

/// What all jobs of a scan share.
pub(super) struct Shared<'a> {
    pub vault: &'a Vault,
    pub root: OwnedFd,
    pub keep: Keep,
    pub on_trouble: OnTrouble,
    pub meter: &'a Meter,
    pub files_read: AtomicU64,
    pub bytes_read: AtomicU64,
    pub large: Mutex<Vec<LargeFile>>,
    pub facts: Mutex<Vec<Facts>>,
    cache: Option<&'a StatCache>,
    /// Where the vault's own file lies, if that is beneath the root.
    own_file: Option<(TreePath, Vec<u8>)>,
    began: Timestamp,
    /// A vault without blobs need not be asked whether it has one.
    vault_is_empty: bool,
    seen: Mutex<HashSet<BlobId>>,
    send: Option<SyncSender<Vec<BlobRecord>>>,
    next_dir: AtomicU32,
    dirs: Mutex<Vec<(u32, ScannedDir)>>,
    troubles: Mutex<Vec<Trouble>>,
    failure: Mutex<Option<VaultError>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    let shared = Shared {
        vault,
        root,
        keep,
        on_trouble: options.on_trouble,
        meter: options.meter,
        files_read: AtomicU64::new(0),
        bytes_read: AtomicU64::new(0),
        large: Mutex::default(),
        facts: Mutex::default(),
        cache,
        own_file: own_file(vault, dir),
        began: vault.now(),
        vault_is_empty: {
            let first = vault.read()?.objects_before(crate::backend::ObjectKind::Blob, i64::MAX, 1)?;
            first.is_empty()
        },
        seen: Mutex::default(),
        send,
        next_dir: AtomicU32::new(1),
        dirs: Mutex::default(),
        troubles: Mutex::default(),
        failure: Mutex::default(),
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| VaultError::Input(std::io::Error::other(error)))?;
    let start = Job {
        number: 0,
        parent: None,
        path: TreePath::root(),
        cached: cache.map(|_| 0),
        rules: Rules::default(),
    };
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

struct Job {
    number: u32,
    parent: Option<u32>,
    path: TreePath,
    cached: Option<u32>,
    rules: Rules,
}

impl<'a> Shared<'a> {
    fn spawn_dir<'s>(&'s self, scope: &Scope<'s>, job: Job) {
        scope.spawn(move |scope| {
            if !self.failed() {
                let done = self.dir(scope, job);
                self.check(done);
            }
        });
    }

    /// True for the vault's file and what SQLite and its locks put beside it: a vault never keeps itself.
    fn is_own(&self, dir: &TreePath, name: &[u8]) -> bool {
        let Some((own_dir, own)) = &self.own_file else { return false };
        own_dir == dir
            && name
                .strip_prefix(own.as_slice())
                .is_some_and(|rest| rest.is_empty() || b"-.".contains(&rest[0]))
    }

    fn failed(&self) -> bool {
        self.meter.stopped() || lock(&self.failure).is_some()
    }

    /// Keeps the first failure; the jobs after it do nothing.
    fn check(&self, done: Result<()>) {
        if let Err(error) = done {
            lock(&self.failure).get_or_insert(error);
        }
    }

    fn dir<'s>(&'s self, scope: &Scope<'s>, job: Job) -> Result<()> {
        let Job { number, parent, path, cached, mut rules } = job;
        let depth = path.depth();
        if depth > DEPTH_MAX {
            return Err(ImportError::TooDeep { path, depth }.into());
        }
        let opened = beneath::open(self.root.as_fd(), path.as_bytes(), DIR);
        let Some(fd) = self.tolerate(opened, "open", &path)? else {
            // Its parent finds no directory under this number and leaves it out.
            return Ok(());
        };
        let io = |operation| {
            let path = path.clone();
            move |source| ImportError::Io { operation, path, source }
        };
        let stat = beneath::fstat(fd.as_fd()).map_err(io("stat"))?;
        let xattrs = self.keep_xattrs(xattr::read(fd.as_fd()).map_err(io("read the attributes of"))?)?;
        let names = beneath::names(fd.as_fd()).map_err(io("list"))?;
        if names.binary_search_by(|listed| listed.name.as_slice().cmp(FILE_NAME)).is_ok() {
            rules = self.with_ignore_file(&rules, &fd, &path)?;
        }
        let cached_dir = cached.and_then(|number| self.cache?.dir(number));
        let mut known = cached_dir.as_ref().map_or(&[][..], |dir| &dir.entries).iter().peekable();
        let mut clean = cached_dir.is_some();
        let mut entries = Vec::with_capacity(names.len());
        let (mut pending, mut subdirs) = (Vec::new(), Vec::new());
        for listed in names {
            if (listed.name == OWN_DIR && listed.is_dir != Some(false)) || self.is_own(&path, &listed.name) {
                continue;
            }
            if !rules.is_empty() {
                let is_dir = match listed.is_dir {
                    Some(is_dir) => is_dir,
                    None => matches!(
                        beneath::stat(fd.as_fd(), &listed.name),
                        Ok(HostStat { kind: HostKind::Dir, .. })
                    ),
                };
                if rules.ignores(&path.join(&listed.name), is_dir) {
                    continue;
                }
            }
            while known.next_if(|entry| entry.name < listed.name.as_slice()).is_some() {
                clean = false;
            }
            let known = known.next_if(|entry| entry.name == listed.name.as_slice());
            let stat = if listed.is_dir == Some(true) {
                // The directory's own job looks at it; only its kind matters here.
                stat_of_dir()
            } else {
                let looked = beneath::stat(fd.as_fd(), &listed.name);
                match self.tolerate(looked, "stat", &path.join(&listed.name))? {
                    Some(stat) => stat,
                    None => {
                        clean = false;
                        continue;
                    }
                }
            };
            let vouched = known.filter(|entry| stat.kind != HostKind::Dir && entry.vouches_for(&stat));
            clean &= known.is_some_and(|entry| vouched.is_some() || is_dir_entry(entry));
            let what = match stat.kind {
                HostKind::Dir => {
                    let child = self.next_dir.fetch_add(1, Ordering::Relaxed);
                    let cached = known.and_then(|entry| match entry.kind {
                        CachedKind::Dir(number) => Some(number),
                        CachedKind::File { .. } | CachedKind::Symlink { .. } | CachedKind::Fifo => None,
                    });
                    clean &= cached.is_some();
                    let path = path.join(&listed.name);
                    subdirs.push(Job {
                        number: child,
                        parent: Some(number),
                        path,
                        cached,
                        rules: rules.clone(),
                    });
                    What::Dir(child)
                }
                HostKind::File => match vouched.map(|entry| entry.kind) {
                    Some(CachedKind::File { content, xattrs }) => What::File { content, xattrs },
                    Some(CachedKind::Symlink { .. } | CachedKind::Fifo | CachedKind::Dir(_)) | None => {
                        pending.push((entries.len(), listed.name.clone()));
                        What::Pending
                    }
                },
                HostKind::Symlink => match vouched.map(|entry| entry.kind) {
                    Some(CachedKind::Symlink { target }) => What::Symlink { target: target.to_vec() },
                    Some(CachedKind::File { .. } | CachedKind::Fifo | CachedKind::Dir(_)) | None => {
                        let read = beneath::read_link(fd.as_fd(), &listed.name);
                        match self.tolerate(read, "read the link", &path.join(&listed.name))? {
                            Some(target) => What::Symlink { target },
                            None => What::Gone,
                        }
                    }
                },
                HostKind::Fifo => What::Fifo,
                HostKind::Special(kind) => {
                    let path = path.join(&listed.name);
                    lock(&self.troubles).push(Trouble { path, reason: TroubleReason::Special(kind) });
                    continue;
                }
            };
            let settled = self.is_settled(&stat);
            entries.push(ScannedEntry { name: listed.name, stat, what, settled });
        }
        clean &= known.next().is_none();
        self.meter.add(entries.len() as u64, 0);
        for job in subdirs {
            self.spawn_dir(scope, job);
        }
        let fd = Arc::new(fd);
        for chunk in pending.chunks(JOB_FILES) {
            let (job, dir) = (chunk.to_vec(), Arc::clone(&fd));
            let path = path.clone();
            scope.spawn(move |_| {
                if !self.failed() {
                    let done = files::read_small(self, number, &path, &dir, job);
                    self.check(done);
                }
            });
        }
        lock(&self.dirs).push((number, ScannedDir { path, parent, stat, xattrs, entries, cached, clean }));
        Ok(())
    }

    fn with_ignore_file(&self, rules: &Rules, dir: &OwnedFd, path: &TreePath) -> Result<Rules> {
        let file = path.join(FILE_NAME);
        let read = beneath::open(dir.as_fd(), FILE_NAME, beneath::READ).and_then(|fd| {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut text).map(|_| text)
        });
        match self.tolerate(read, "read", &file)? {
            None => Ok(rules.clone()),
            Some(text) => {
                Ok(rules.with(path, &text).map_err(|source| ImportError::BadIgnore { path: file, source })?)
            }
        }
    }

    /// Turns the troubles of a living directory into a report or a failure, as the caller wanted.
    pub fn tolerate<T>(
        &self,
        outcome: std::io::Result<T>,
        operation: &'static str,
        path: &TreePath,
    ) -> Result<Option<T>> {
        let error = match outcome {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        let path = path.clone();
        let (reason, strict) = match Cause::of(&error) {
            // It was a directory or a file a moment ago and is gone, or something else now.
            Cause::NotFound | Cause::NotADirectory | Cause::Link => {
                (TroubleReason::Vanished, ImportError::Vanished { path: path.clone() })
            }
            Cause::NoPermission => {
                (TroubleReason::NoPermission, ImportError::NoPermission { path: path.clone() })
            }
            Cause::Exists | Cause::ReadOnly | Cause::DiskFull | Cause::Other => {
                return Err(ImportError::Io { operation, path, source: error }.into());
            }
        };
        match self.on_trouble {
            OnTrouble::Fail => Err(strict.into()),
            OnTrouble::KeepGoing => {
                self.report(path, reason);
                Ok(None)
            }
        }
    }

    pub fn report(&self, path: TreePath, reason: TroubleReason) {
        lock(&self.troubles).push(Trouble { path, reason });
    }

    /// A stamp proves something only if the file could not have changed again without a new one.
    pub fn is_settled(&self, stat: &HostStat) -> bool {
        let coarse = stat.ctime.nanos == 0 && stat.mtime.nanos == 0;
        let slack = if coarse { COARSE_NANOS } else { CLOCK_LAG_NANOS };
        stat.ctime.saturating_nanos() < self.began.0.saturating_sub(slack)
    }

    /// Stores an attribute set and gives its id.
    pub fn keep_xattrs(&self, xattrs: xattr::Xattrs) -> Result<Option<BlobId>> {
        let Some(blob) = content::encode_xattrs(&xattrs) else { return Ok(None) };
        let id = blob.id;
        if self.unknown(&[id])?.contains(&id) {
            self.store(vec![blob])?;
        }
        Ok(Some(id))
    }

    /// Those of the ids that have to be stored; each is told to one caller only.
    pub fn unknown(&self, ids: &[BlobId]) -> Result<HashSet<BlobId>> {
        if self.keep == Keep::Nothing {
            return Ok(HashSet::new());
        }
        let mut unknown: HashSet<BlobId> = {
            let mut seen = lock(&self.seen);
            ids.iter().copied().filter(|id| seen.insert(*id)).collect()
        };
        if !self.vault_is_empty && !unknown.is_empty() {
            let reader = self.vault.read()?;
            let mut known = Vec::new();
            for id in &unknown {
                if reader.has_blob(id)? {
                    known.push(*id);
                }
            }
            known.iter().for_each(|id| {
                unknown.remove(id);
            });
        }
        Ok(unknown)
    }

    /// Hands blobs to the storing thread, waiting while it has enough to do.
    pub fn store(&self, blobs: Vec<BlobRecord>) -> Result<()> {
        match &self.send {
            Some(send) if !blobs.is_empty() => send.send(blobs).map_err(|_| ImportError::Interrupted.into()),
            Some(_) | None => Ok(()),
        }
    }

    fn finish(self) -> Result<Found> {
        if let Some(error) = lock(&self.failure).take() {
            return Err(error);
        }
        if self.meter.stopped() {
            return Err(ImportError::Interrupted.into());
        }
        let mut numbered = std::mem::take(&mut *lock(&self.dirs));
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
            let entry = &mut dirs[number as usize].entries[fact.entry];
            entry.settled = self.is_settled(&fact.stat);
            entry.stat = fact.stat;
            entry.what = fact.what;
        }
        let scanned = Scanned {
            files_read: self.files_read.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            troubles: {
                let mut troubles = std::mem::take(&mut *lock(&self.troubles));
                troubles.sort_by(|a, b| a.path.cmp(&b.path));
                troubles
            },
            cache_unsaved: None,
        };
        Ok(Found { dirs, scanned })
    }
}

fn own_file(vault: &Vault, root: &Path) -> Option<(TreePath, Vec<u8>)> {
    let file = vault.path()?.canonicalize().ok()?;
    let beneath = file.strip_prefix(root.canonicalize().ok()?).ok()?;
    let path = TreePath::parse(beneath.as_os_str().as_encoded_bytes()).ok()?;
    path.split().map(|(dir, name)| (dir, name.to_vec()))
}

fn is_dir_entry(entry: &CachedEntry<'_>) -> bool {
    matches!(entry.kind, CachedKind::Dir(_))
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
