//! Materializes versions as read-only base directories in a cache, for use as lower layers.
//!
//! A base is complete or absent: it is built under another name and renamed. Its users hold a lease (a shared lock that
//! the kernel releases when they die), and a leased base is never evicted. The cache can be deleted at any time; it is
//! rebuilt from the vault.
//!
//! ```text
//! CACHE/base.lock    held while a base is moved aside
//! CACHE/base/TREE    a base, see shelf
//! CACHE/layer/ID     a layer over a base, see layers
//! CACHE/stack/TREE   the base and the layers that show a tree
//! CACHE/account      the bytes written since the cache was last measured, see account
//! CACHE/unfinished   builds in progress, see unfinished
//! ```

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use avfs_hostfs::lock::FileLock;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::walk::Walk;
use avfs_hostfs::{beneath, xattr};
use avfs_types::ids::{BlobId, TreeId};
use avfs_types::path::TreePath;

use super::account::Account;
use super::shelf::{Item, Shelf, drop_draft, host, item_bytes, make_private};
use super::write_out::{FreshPages, WriteOut};
use crate::backend::Guard;
use crate::meter::Meter;
use crate::page::{DirRef, Node};
use crate::transfer::Result;
use crate::{Vault, VaultError, ingest, tree};

const SEAL_FORMAT: &str = "avfs-base 1";
/// Attempts to build a base that other processes keep removing.
const TURNS_MAX: u32 = 100;

/// The cache directory of all bases and the layers over them.
#[derive(Clone, Debug)]
pub struct BaseCache {
    pub(crate) bases: Shelf,
    pub(crate) layers: Shelf,
    pub(crate) stacks: PathBuf,
    pub(crate) account: Account,
    /// Identifies the current boot: files of an earlier boot may not have been synced before a power loss.
    pub(crate) boot_id: String,
}

/// A leased base: it cannot be evicted until this is dropped.
#[derive(Debug)]
pub struct Base {
    /// The directory that holds the version's files.
    pub root: PathBuf,
    /// Whether this call wrote the files.
    pub built: Built,
    pub(crate) lease: FileLock,
}

/// Whether the files of a base had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    /// An earlier call had written them.
    Reused,
    /// This call wrote them.
    New,
    /// This call replaced an unusable base.
    Rebuilt,
}

/// How thoroughly an existing base is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Check only its seal.
    Seal,
    /// Compare the metadata and content of every file.
    Nothing,
}

/// A materialized version in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBase {
    /// The digest of its tree, in hex digits.
    pub tree: String,
    /// Size of its files in bytes.
    pub bytes: u64,
    pub(crate) last_used: SystemTime,
}

impl BaseCache {
    /// The cache in `cache_dir`. Only items sealed during the boot `boot_id` are reused.
    #[must_use]
    pub fn new(cache_dir: &Path, boot_id: &str) -> Self {
        Self {
            bases: Shelf { dir: cache_dir.join("base") },
            layers: Shelf { dir: cache_dir.join("layer") },
            stacks: cache_dir.join("stack"),
            account: Account::new(cache_dir),
            boot_id: boot_id.to_owned(),
        }
    }

    /// The account of bytes written to the cache.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The line of a base's seal that identifies this boot.
    pub(crate) fn boot_line(&self) -> String {
        format!("boot {}\n", self.boot_id)
    }

    fn seal_head(&self, tree: &TreeId) -> String {
        format!("{SEAL_FORMAT}\ntree {tree}\n{}", self.boot_line())
    }

    fn seal_text(&self, root: &DirRef) -> String {
        let totals = root.totals;
        format!("{}entries {}\nbytes {}\n", self.seal_head(&root.tree), totals.entries, totals.bytes)
    }

    /// Leases the base of a tree. `None` if there is no base with a valid seal.
    pub(crate) fn lease(&self, root: &DirRef) -> Result<Option<FileLock>> {
        let good = self.seal_text(root);
        self.bases.lease(&root.tree.to_hex(), |sealed| sealed == good)
    }

    /// Like [`BaseCache::lease`], for a tree whose totals are not known.
    pub(crate) fn lease_tree(&self, tree: &TreeId) -> Result<Option<FileLock>> {
        let head = self.seal_head(tree);
        self.bases.lease(&tree.to_hex(), |sealed| sealed.starts_with(&head))
    }

    /// Moves an unusable base aside, if it is still there.
    ///
    /// The check and the move are one step under a lock: a valid base that another process has put in its place in the
    /// meantime, and uses, must stay. `damaged` is the lease of a base with a valid seal and damaged files.
    fn retire(&self, root: &DirRef, damaged: Option<&FileLock>) -> Result<()> {
        let place = self.bases.place(&root.tree.to_hex());
        avfs_types::pause::point("retire");
        let _turn = self.bases.turn()?;
        let still_there = match damaged {
            Some(lease) => lease.is_at(&place.join("lease")).unwrap_or(false),
            None => self.lease(root)?.is_none(),
        };
        if !still_there {
            return Ok(());
        }
        self.bases.move_aside(&place).map(drop)
    }

    /// The complete bases, least recently used first.
    pub fn list(&self) -> Result<Vec<CachedBase>> {
        let item = |item: Item| CachedBase { tree: item.name, bytes: item.bytes, last_used: item.last_used };
        let whole = self.bases.items()?.into_iter().filter(|item| !item.sealed.is_empty());
        let mut bases: Vec<CachedBase> = whole.map(item).collect();
        bases.sort_by_key(|base| base.last_used);
        Ok(bases)
    }
}

impl Vault {
    /// Returns the base of a tree, building it if necessary. Concurrent callers share one base.
    pub fn materialize(&self, root: &DirRef, cache: &BaseCache, trust: Trust, meter: &Meter) -> Result<Base> {
        self.materialize_pinned(&self.backend().pin()?, root, cache, trust, meter)
    }

    /// Like [`Vault::materialize`], for callers that already hold a pin: taking a second pin could deadlock with a
    /// sweep that waits for the first.
    pub(crate) fn materialize_pinned(
        &self,
        _pin: &Guard,
        root: &DirRef,
        cache: &BaseCache,
        trust: Trust,
        meter: &Meter,
    ) -> Result<Base> {
        let place = cache.bases.place(&root.tree.to_hex());
        let root_dir = place.join("root");
        let was_there = place.exists();
        // Other processes may build, retire and evict the same base at any time. An iteration without a lease means
        // that another process made progress.
        for _ in 0..TURNS_MAX {
            let lease = cache.lease(root)?;
            match lease {
                Some(lease) if trust == Trust::Seal || self.is_intact(root, &root_dir, meter)? => {
                    return Ok(Base { root: root_dir, built: Built::Reused, lease });
                }
                Some(damaged) => cache.retire(root, Some(&damaged))?,
                None if place.exists() => cache.retire(root, None)?,
                None => {}
            }
            if let Some(lease) = self.build_base(root, cache, meter)? {
                let built = if was_there { Built::Rebuilt } else { Built::New };
                return Ok(Base { root: root_dir, built, lease });
            }
        }
        let detail = "other processes keep removing it".to_owned();
        Err(VaultError::DamagedObject { kind: "base", id: root.tree.short(), detail }.into())
    }

    /// Builds a base and returns the lease on it. `None` if another process built it first.
    fn build_base(&self, root: &DirRef, cache: &BaseCache, meter: &Meter) -> Result<Option<FileLock>> {
        let note = cache.bases.note()?;
        let Some(draft) = cache.bases.begin()? else { return Ok(None) };
        if let Err(error) = self.fill_base(root, cache, &draft.path, meter) {
            drop_draft(&draft, note);
            return Err(error);
        }
        // If the name is taken, another process was faster; its base is equivalent.
        let published = cache.bases.publish(draft, &root.tree.to_hex())?;
        if published.is_some() {
            cache.account.add(item_bytes(root.totals.entries, root.totals.bytes));
        }
        Ok(published)
    }

    fn fill_base(&self, root: &DirRef, cache: &BaseCache, at: &Path, meter: &Meter) -> Result<()> {
        let dir = at.join("root");
        make_private(&dir)?;
        let fd = beneath::open_root(&dir).map_err(host("open", &dir))?;
        meter.expect(root.totals.entries, root.totals.bytes);
        let out = WriteOut::for_overlay(self, meter);
        let unfinished = out.write(root, fd.as_fd(), &|_, _| true)?.unfinished;
        out.finish_staged(fd.as_fd(), &unfinished)?;
        let vault = at.join("vault");
        std::fs::write(&vault, self.id()?).map_err(host("write", &vault))?;
        let sealed = at.join("sealed");
        std::fs::write(&sealed, cache.seal_text(root)).map_err(host("write", &sealed))
    }

    /// Compares every file of a base with the tree: kind, mode, mtime, attributes, size, content.
    fn is_intact(&self, root: &DirRef, dir: &Path, meter: &Meter) -> Result<bool> {
        let top = beneath::open_root(dir).map_err(host("open", dir))?;
        let pages = FreshPages::stoppable(self, meter);
        let out = WriteOut::for_overlay(self, meter);
        let mut way = Walk::default();
        let same_xattrs = |fd: BorrowedFd<'_>, wanted: Option<&BlobId>| -> Result<bool> {
            let found = xattr::read(fd).map_err(VaultError::Input)?;
            Ok(if found.is_empty() { wanted.is_none() } else { found == out.wanted_xattrs(wanted)? })
        };
        let mut waiting = vec![(TreePath::root(), *root)];
        while let Some((path, dir)) = waiting.pop() {
            let wanted = tree::open_whole(&pages, &dir, &path, &mut Err)?;
            let fd = match way.open(top.as_fd(), path.as_bytes()) {
                Ok(fd) => fd,
                Err(error) if is_closed(&error, wanted.meta.mode, 0o500) => continue,
                Err(_) => return Ok(false),
            };
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
                meter.require_going()?;
                let stat = beneath::stat(fd.as_fd(), &entry.name).map_err(VaultError::Input)?;
                if let Node::File(file) = &entry.node {
                    match beneath::open(fd.as_fd(), &entry.name, beneath::READ) {
                        Ok(opened) if same_xattrs(opened.as_fd(), file.xattrs.as_ref())? => {}
                        Err(error) if is_closed(&error, file.mode, 0o400) => {}
                        Ok(_) | Err(_) => return Ok(false),
                    }
                }
                match &entry.node {
                    Node::Dir(sub) => waiting.push((path.join(&entry.name), *sub)),
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

/// True if the version's own mode denies access to the owner: then the file cannot be compared, which is not damage.
fn is_closed(error: &std::io::Error, mode: u32, needs: u32) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied && mode & needs != needs
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
            match beneath::open(dir, name, beneath::READ) {
                Ok(fd) => ingest::identify(&mut ingest::ReadBlocks(File::from(fd)))?.content == file.content,
                Err(error) => is_closed(&error, file.mode, 0o400),
            }
        }
        Node::Dir(_) => stat.kind == HostKind::Dir,
    })
}
