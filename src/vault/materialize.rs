//! Versions as read-only base directories in a cache, for anyone to use as a lower layer.
//!
//! A base is complete or absent: it is built under another name and renamed. Its users hold a lease (a
//! shared lock that the kernel gives back when they die), and nothing that is leased is evicted. The cache
//! can be deleted at any time; it is made again from the vault.
//!
//! ```text
//! CACHE/base.lock           held while a base is moved out of the way
//! CACHE/base/TREE/root/     the directory
//! CACHE/base/TREE/sealed    written last: what it is, and since which boot
//! CACHE/base/TREE/lease     locked by users; its time is that of the last use
//! ```

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::hostfs::beneath::{self, DIR};
use crate::hostfs::lock::{FileLock, Mode};
use crate::hostfs::random;
use crate::hostfs::remove::remove_tree;
use crate::hostfs::stat::{HostKind, HostStat};
use crate::hostfs::xattr;
use crate::ids::{BlobId, TreeId};

use super::error::{Result, VaultError};
use super::export::ExportError;
use super::ingest;
use super::meter::Meter;
use super::page::{DirRef, Node};
use super::path::TreePath;
use super::store::Vault;
use super::tree;
use super::write_out::{FreshPages, OverlayNames, WriteOut};

const SEAL_FORMAT: &str = "avfs-base 1";
/// How long to wait for others who move a base out of the way, each for a rename's time.
const RETIRE_PATIENCE: Duration = Duration::from_secs(60);
/// Attempts at a base that others take away at the same time.
const TURNS_MAX: u32 = 100;
/// What an entry takes on the disk beside its bytes, for the cache's account.
const ENTRY_BYTES: u64 = 4096;

/// The directory all bases live in.
#[derive(Clone, Debug)]
pub struct BaseCache {
    dir: PathBuf,
    /// Tells one boot from another: a base that was not synced is not to be trusted after a power loss.
    boot_id: String,
}

/// A base in use: it stays while this lives.
#[derive(Debug)]
pub struct Base {
    /// The directory that holds the version's files.
    pub root: PathBuf,
    pub built: Built,
    _lease: FileLock,
}

/// Whether the files had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    Reused,
    New,
    /// It was there and not what it should be.
    Rebuilt,
}

/// How closely a base that is there is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Its seal.
    Seal,
    /// Every file's metadata and content.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBase {
    pub tree: String,
    pub bytes: u64,
    pub last_used: SystemTime,
}

impl BaseCache {
    #[must_use]
    pub fn new(cache_dir: &Path, boot_id: &str) -> Self {
        Self { dir: cache_dir.join("base"), boot_id: boot_id.to_owned() }
    }

    fn place(&self, tree: &TreeId) -> PathBuf {
        self.dir.join(tree.to_hex())
    }

    fn seal_text(&self, root: &DirRef) -> String {
        let totals = root.totals;
        format!(
            "{SEAL_FORMAT}\ntree {}\nboot {}\nentries {}\nbytes {}\n",
            root.tree, self.boot_id, totals.entries, totals.bytes
        )
    }

    /// A lease on the base of a tree, if there is one with a good seal.
    fn lease(&self, root: &DirRef) -> Result<Option<FileLock>> {
        let place = self.place(&root.tree);
        let lease = place.join("lease");
        if !lease.exists() {
            return Ok(None);
        }
        let Ok(Some(lock)) = FileLock::try_acquire(&lease, Mode::Shared) else { return Ok(None) };
        // Between the look and the lock somebody may have moved the base away, or put another in its place.
        if !lock.is_at(&lease).unwrap_or(false) {
            return Ok(None);
        }
        let sealed = std::fs::read_to_string(place.join("sealed"));
        let good = sealed.is_ok_and(|text| text == self.seal_text(root));
        if !good || !place.join("root").is_dir() {
            return Ok(None);
        }
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        if let Ok(file) = File::open(&lease) {
            rustix::fs::futimens(&file, &times).map_err(|errno| host("touch", &lease)(errno.into()))?;
        }
        Ok(Some(lock))
    }

    /// Moves a base that cannot be used out of the way, if it is still there.
    ///
    /// Looking and moving are one step for all who do it: a good base that somebody has put in its place
    /// meanwhile, and uses, must stay. `damaged` is the lease of a base whose seal is good and its files not.
    fn retire(&self, root: &DirRef, damaged: Option<&FileLock>) -> Result<()> {
        let place = self.place(&root.tree);
        let turn = self.dir.with_extension("lock");
        let _turn = FileLock::acquire(&turn, Mode::Exclusive, RETIRE_PATIENCE)
            .map_err(|error| host("lock", &turn)(std::io::Error::other(error)))?;
        let still_there = match damaged {
            Some(lease) => lease.is_at(&place.join("lease")).unwrap_or(false),
            None => self.lease(root)?.is_none(),
        };
        if !still_there {
            return Ok(());
        }
        self.move_aside(&place).map(drop)
    }

    /// Gives a base a name that nobody looks for; nothing if somebody else was faster.
    fn move_aside(&self, place: &Path) -> Result<Option<PathBuf>> {
        let aside = self.dir.join(format!(".old-{}", random::suffix().map_err(VaultError::Output)?));
        match std::fs::rename(place, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(host("move away", place)(error)),
        }
    }

    /// The bases that are whole, least recently used first.
    pub fn list(&self) -> Result<Vec<CachedBase>> {
        let mut bases = Vec::new();
        for (name, path) in self.entries()?.into_iter().filter(|(name, _)| !name.starts_with('.')) {
            let Ok(sealed) = std::fs::read_to_string(path.join("sealed")) else { continue };
            let number = |key: &str| -> u64 {
                let line = sealed.lines().find_map(|line| line.strip_prefix(key));
                line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
            };
            let bytes = number("bytes ") + number("entries ") * ENTRY_BYTES;
            let used = std::fs::metadata(path.join("lease")).and_then(|meta| meta.modified());
            bases.push(CachedBase { tree: name, bytes, last_used: used.unwrap_or(SystemTime::UNIX_EPOCH) });
        }
        bases.sort_by_key(|base| base.last_used);
        Ok(bases)
    }

    fn entries(&self) -> Result<Vec<(String, PathBuf)>> {
        let listing = match std::fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(host("list", &self.dir)(error)),
        };
        let named =
            listing.flatten().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        Ok(named.collect())
    }

    /// Removes what is left of dead builders, and bases nobody uses until the rest is within `bytes_max`.
    pub fn evict(&self, bytes_max: u64) -> Result<u64> {
        let mut freed = 0;
        for (_, path) in self.entries()?.into_iter().filter(|(name, _)| name.starts_with('.')) {
            remove_unleased(&path)?;
        }
        let bases = self.list()?;
        let mut total: u64 = bases.iter().map(|base| base.bytes).sum();
        for base in bases {
            if total <= bytes_max {
                break;
            }
            let path = self.dir.join(&base.tree);
            let Ok(Some(_alone)) = FileLock::try_acquire(&path.join("lease"), Mode::Exclusive) else {
                continue;
            };
            // Moved first: nobody finds a base that is half removed.
            if let Some(aside) = self.move_aside(&path)? {
                remove_tree(&aside).map_err(host("remove", &aside))?;
            }
            total -= base.bytes;
            freed += base.bytes;
        }
        Ok(freed)
    }
}

fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| ExportError::Host { operation, path, source }.into()
}

/// Removes a directory unless its builder lives or somebody has a lease on it.
fn remove_unleased(path: &Path) -> Result<()> {
    let Ok(Some(_abandoned)) = FileLock::try_dir(path, Mode::Exclusive) else { return Ok(()) };
    let lease = path.join("lease");
    let _alone = if lease.exists() {
        let Ok(Some(alone)) = FileLock::try_acquire(&lease, Mode::Exclusive) else { return Ok(()) };
        Some(alone)
    } else {
        None
    };
    remove_tree(path).map_err(host("remove", path))
}

impl Vault {
    /// The base of a tree, built if it is not there. Concurrent callers share one.
    pub fn materialize(&self, root: &DirRef, cache: &BaseCache, trust: Trust, meter: &Meter) -> Result<Base> {
        let _pin = self.backend().pin()?;
        let place = cache.place(&root.tree);
        let root_dir = place.join("root");
        let was_there = place.exists();
        // Others may build, retire and evict the same base at any time; each turn ends with a lease or finds
        // that one of them did something.
        for _ in 0..TURNS_MAX {
            let lease = cache.lease(root)?;
            match lease {
                Some(lease) if trust == Trust::Seal || self.is_intact(root, &root_dir)? => {
                    return Ok(Base { root: root_dir, built: Built::Reused, _lease: lease });
                }
                Some(damaged) => cache.retire(root, Some(&damaged))?,
                None if place.exists() => cache.retire(root, None)?,
                None => {}
            }
            if let Some(lease) = self.build_base(root, cache, meter)? {
                let built = if was_there { Built::Rebuilt } else { Built::New };
                return Ok(Base { root: root_dir, built, _lease: lease });
            }
        }
        let detail = "others keep taking it away".to_owned();
        Err(VaultError::DamagedObject { kind: "base", id: root.tree.short(), detail })
    }

    /// Builds a base and gives the lease on it; nothing if somebody else came first.
    fn build_base(&self, root: &DirRef, cache: &BaseCache, meter: &Meter) -> Result<Option<FileLock>> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&cache.dir)
            .map_err(host("create", &cache.dir))?;
        let unfinished = cache.dir.join(format!(".new-{}", random::suffix().map_err(VaultError::Output)?));
        let lease = match self.fill_base(root, cache, &unfinished, meter) {
            Ok(Some(lease)) => lease,
            Ok(None) => return Ok(None),
            Err(error) => {
                // What cannot be removed now is removed by the next eviction.
                let _ = remove_tree(&unfinished);
                return Err(error);
            }
        };
        let place = cache.place(&root.tree);
        match std::fs::rename(&unfinished, &place) {
            Ok(()) => Ok(Some(lease)),
            // Somebody else was faster; theirs is as good.
            Err(error) => {
                remove_tree(&unfinished).map_err(host("remove", &unfinished))?;
                let taken = [ErrorKind::DirectoryNotEmpty, ErrorKind::AlreadyExists].contains(&error.kind());
                if taken { Ok(None) } else { Err(host("move to", &place)(error)) }
            }
        }
    }

    /// Nothing if an eviction found the directory before it was locked, and took it for abandoned.
    fn fill_base(
        &self,
        root: &DirRef,
        cache: &BaseCache,
        at: &Path,
        meter: &Meter,
    ) -> Result<Option<FileLock>> {
        let private = |path: &Path| std::fs::DirBuilder::new().mode(0o700).create(path);
        private(at).map_err(host("create", at))?;
        let Some(_building) = FileLock::try_dir(at, Mode::Shared).map_err(host("lock", at))? else {
            return Ok(None);
        };
        let lease_path = at.join("lease");
        let lease = FileLock::try_acquire(&lease_path, Mode::Shared)
            .map_err(|error| host("lock", &lease_path)(std::io::Error::other(error)))?;
        let dir = at.join("root");
        private(&dir).map_err(host("create", &dir))?;
        let fd = beneath::open_root(&dir).map_err(host("open", &dir))?;
        meter.expect(root.totals.entries, root.totals.bytes);
        let out = WriteOut { vault: self, overlay_names: OverlayNames::Escaped, meter };
        let unfinished = out.write(&root.tree, fd.as_fd(), &|_, _| true)?;
        out.finish(fd.as_fd(), &unfinished)?;
        let sealed = at.join("sealed");
        std::fs::write(&sealed, cache.seal_text(root)).map_err(host("write", &sealed))?;
        Ok(lease)
    }

    /// Compares every file of a base with the tree: kind, mode, time, attributes, size, content.
    fn is_intact(&self, root: &DirRef, dir: &Path) -> Result<bool> {
        let top = beneath::open_root(dir).map_err(host("open", dir))?;
        let pages = FreshPages::new(self);
        let out = WriteOut { vault: self, overlay_names: OverlayNames::Escaped, meter: &Meter::default() };
        let same_xattrs = |fd: BorrowedFd<'_>, wanted: Option<&BlobId>| -> Result<bool> {
            let found = xattr::read(fd).map_err(VaultError::Input)?;
            Ok(if found.is_empty() { wanted.is_none() } else { found == out.wanted_xattrs(wanted)? })
        };
        let mut waiting = vec![(TreePath::root(), root.tree)];
        while let Some((path, id)) = waiting.pop() {
            let wanted = tree::dir(&pages, &id)?;
            let Ok(fd) = beneath::open(top.as_fd(), path.as_bytes(), DIR) else { return Ok(false) };
            let stat = beneath::fstat(fd.as_fd()).map_err(VaultError::Input)?;
            let same_meta = stat.mode == wanted.meta.mode && stat.mtime == wanted.meta.mtime;
            if !same_meta || !same_xattrs(fd.as_fd(), wanted.meta.xattrs.as_ref())? {
                return Ok(false);
            }
            let names = beneath::names(fd.as_fd()).map_err(VaultError::Input)?;
            if !names.iter().map(|listed| &listed.name).eq(wanted.entries.iter().map(|entry| &entry.name)) {
                return Ok(false);
            }
            for entry in wanted.entries {
                let stat = beneath::stat(fd.as_fd(), &entry.name).map_err(VaultError::Input)?;
                if let Node::File(file) = &entry.node {
                    let Ok(opened) = beneath::open(fd.as_fd(), &entry.name, beneath::READ) else {
                        return Ok(false);
                    };
                    if !same_xattrs(opened.as_fd(), file.xattrs.as_ref())? {
                        return Ok(false);
                    }
                }
                match &entry.node {
                    Node::Dir(sub) => waiting.push((path.join(&entry.name), sub.tree)),
                    Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => {
                        if !same_file(fd.as_fd(), &entry.name, &entry.node, &stat)? {
                            return Ok(false);
                        }
                    }
                }
            }
        }
        Ok(true)
    }
}

fn same_file(dir: BorrowedFd<'_>, name: &[u8], node: &Node, stat: &HostStat) -> Result<bool> {
    Ok(match node {
        Node::Symlink(link) => {
            stat.kind == HostKind::Symlink
                && stat.mtime == link.mtime
                && beneath::read_link(dir, name).is_ok_and(|target| target == link.target)
        }
        Node::Fifo(fifo) => stat.kind == HostKind::Fifo && stat.mode == fifo.mode && stat.mtime == fifo.mtime,
        Node::File(file) => {
            let meta = (stat.kind, stat.mode, stat.mtime, stat.size);
            if meta != (HostKind::File, file.mode, file.mtime, file.size) {
                return Ok(false);
            }
            let Ok(fd) = beneath::open(dir, name, beneath::READ) else { return Ok(false) };
            ingest::identify(&mut ingest::ReadBlocks(File::from(fd)))?.content == file.content
        }
        Node::Dir(_) => stat.kind == HostKind::Dir,
    })
}
