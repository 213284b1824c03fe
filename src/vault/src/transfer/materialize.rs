//! Versions as read-only base directories in a cache, for anyone to use as a lower layer.
//!
//! A base is complete or absent: it is built under another name and renamed. Its users hold a lease (a
//! shared lock that the kernel gives back when they die), and nothing that is leased is evicted. The cache
//! can be deleted at any time; it is made again from the vault.
//!
//! ```text
//! CACHE/base.lock    held while a base is moved out of the way
//! CACHE/base/TREE    a base, as shelf.rs has it
//! CACHE/layer/ID     a layer that lies over a base, see layers
//! CACHE/stack/TREE   which base and which layers show a tree
//! CACHE/account      how much was written since the cache was last measured, see account
//! CACHE/unfinished   who builds something, see unfinished
//! ```

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::lock::FileLock;
use avfs_hostfs::remove::remove_tree;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::{beneath, xattr};
use avfs_types::ids::{BlobId, TreeId};
use avfs_types::path::TreePath;

use super::account::Account;
use super::shelf::{Item, Shelf, host, item_bytes, make_private};
use super::write_out::{FreshPages, WriteOut};
use crate::backend::Guard;
use crate::meter::Meter;
use crate::page::{DirRef, Node};
use crate::{Result, Vault, VaultError, ingest, tree};

const SEAL_FORMAT: &str = "avfs-base 1";
/// Attempts at a base that others take away at the same time.
const TURNS_MAX: u32 = 100;

/// The directory all bases, and the layers over them, live in.
#[derive(Clone, Debug)]
pub struct BaseCache {
    pub(crate) bases: Shelf,
    pub(crate) layers: Shelf,
    pub(crate) stacks: PathBuf,
    pub(crate) account: Account,
    /// Tells one boot from another: what was not synced is not to be trusted after a power loss.
    pub(crate) boot_id: String,
}

/// A base in use: it stays while this lives.
#[derive(Debug)]
pub struct Base {
    /// The directory that holds the version's files.
    pub root: PathBuf,
    /// Whether the files were written for this call.
    pub built: Built,
    pub(crate) lease: FileLock,
}

/// Whether the files had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    /// An earlier call had written them.
    Reused,
    /// They were written now.
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

/// A materialized version in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBase {
    /// The digest of its tree, in hex digits.
    pub tree: String,
    /// Bytes of its files.
    pub bytes: u64,
    pub(crate) last_used: SystemTime,
}

impl BaseCache {
    /// The cache in `cache_dir`. What was not sealed since the boot `boot_id` is checked before it is reused.
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

    /// Counts what is written to the cache.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// How the seal of every base of this boot goes on after its tree.
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

    /// A lease on the base of a tree, if there is one with a good seal.
    pub(crate) fn lease(&self, root: &DirRef) -> Result<Option<FileLock>> {
        let good = self.seal_text(root);
        self.bases.lease(&root.tree.to_hex(), |sealed| sealed == good)
    }

    /// As [`BaseCache::lease`], for a tree of which only the name is known.
    pub(crate) fn lease_tree(&self, tree: &TreeId) -> Result<Option<FileLock>> {
        let head = self.seal_head(tree);
        self.bases.lease(&tree.to_hex(), |sealed| sealed.starts_with(&head))
    }

    /// Moves a base that cannot be used out of the way, if it is still there.
    ///
    /// Looking and moving are one step for all who do it: a good base that somebody has put in its place
    /// meanwhile, and uses, must stay. `damaged` is the lease of a base whose seal is good and its files not.
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

    /// The bases that are whole, least recently used first.
    pub fn list(&self) -> Result<Vec<CachedBase>> {
        let item = |item: Item| CachedBase { tree: item.name, bytes: item.bytes, last_used: item.last_used };
        let whole = self.bases.items()?.into_iter().filter(|item| !item.sealed.is_empty());
        let mut bases: Vec<CachedBase> = whole.map(item).collect();
        bases.sort_by_key(|base| base.last_used);
        Ok(bases)
    }
}

impl Vault {
    /// The base of a tree, built if it is not there. Concurrent callers share one.
    pub fn materialize(&self, root: &DirRef, cache: &BaseCache, trust: Trust, meter: &Meter) -> Result<Base> {
        self.materialize_pinned(&self.backend().pin()?, root, cache, trust, meter)
    }

    /// As [`Vault::materialize`], for who has a pin: a second one would wait for a sweep that waits for the first.
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
        // Others may build, retire and evict the same base at any time; each turn ends with a lease or finds
        // that one of them did something.
        for _ in 0..TURNS_MAX {
            let lease = cache.lease(root)?;
            match lease {
                Some(lease) if trust == Trust::Seal || self.is_intact(root, &root_dir)? => {
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
        let detail = "others keep taking it away".to_owned();
        Err(VaultError::DamagedObject { kind: "base", id: root.tree.short(), detail })
    }

    /// Builds a base and gives the lease on it; nothing if somebody else came first.
    fn build_base(&self, root: &DirRef, cache: &BaseCache, meter: &Meter) -> Result<Option<FileLock>> {
        let _note = cache.bases.note()?;
        let Some(draft) = cache.bases.begin()? else { return Ok(None) };
        if let Err(error) = self.fill_base(root, cache, &draft.path, meter) {
            // What cannot be removed now is removed by the next eviction.
            let _ = remove_tree(&draft.path);
            return Err(error);
        }
        // If the name is taken somebody else was faster; theirs is as good.
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
        out.finish(fd.as_fd(), &unfinished)?;
        let vault = at.join("vault");
        std::fs::write(&vault, self.id()?).map_err(host("write", &vault))?;
        let sealed = at.join("sealed");
        std::fs::write(&sealed, cache.seal_text(root)).map_err(host("write", &sealed))
    }

    /// Compares every file of a base with the tree: kind, mode, time, attributes, size, content.
    fn is_intact(&self, root: &DirRef, dir: &Path) -> Result<bool> {
        let top = beneath::open_root(dir).map_err(host("open", dir))?;
        let pages = FreshPages::new(self);
        let meter = Meter::default();
        let out = WriteOut::for_overlay(self, &meter);
        let same_xattrs = |fd: BorrowedFd<'_>, wanted: Option<&BlobId>| -> Result<bool> {
            let found = xattr::read(fd).map_err(VaultError::Input)?;
            Ok(if found.is_empty() { wanted.is_none() } else { found == out.wanted_xattrs(wanted)? })
        };
        let mut waiting = vec![(TreePath::root(), *root)];
        while let Some((path, dir)) = waiting.pop() {
            let wanted = tree::open_whole(&pages, &dir, &path, &mut Err)?;
            let fd = match beneath::open(top.as_fd(), path.as_bytes(), DIR) {
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

/// True if it is the version that closes it to its owner: then it cannot be compared, and that is no damage.
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
