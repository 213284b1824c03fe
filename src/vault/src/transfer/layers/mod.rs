//! Lower layers for the next run: a base, and layers over it with the changes of later versions.
//!
//! A *stack* for a tree is a list of directories, topmost first, that overlayfs shows as that tree. The upper of a
//! captured run becomes the top layer of the stack for the version it created, so that the next run writes no files. If
//! there is no stack, a layer with the difference from a similar base is written from the vault; if no base is similar,
//! a new base. The host's own directory can be the base too (`host_base`).
//!
//! Layers follow the rules of bases: complete or absent, used under a lease, valid only during this boot, and rebuilt
//! from the vault if they are missing. A stack is one small file that names them; it guarantees nothing, and is used
//! only if each of them can be leased.

mod difference;
mod host_base;
mod keep;
mod record;

use std::path::{Path, PathBuf};

use difference::Difference;

use avfs_hostfs::lock::FileLock;
use avfs_hostfs::{beneath, random};
use avfs_types::ids::TreeId;

use super::materialize::{BaseCache, Built, Trust};
use super::shelf::{Draft, ENTRY_BYTES, drop_draft, host, item_bytes, make_private};
use super::write_out::FreshPages;
use crate::meter::Meter;
use crate::page::{DirRef, Totals};
use crate::transfer::{Error, Result};
use crate::{Vault, VaultError, pages};
pub use host_base::{Distance, HostBase, STANDS_ON_HOST_MAX};
pub use keep::{KeptUpper, NotKept};
use record::{BaseOrigin, StackRecord};

/// Maximum number of layers over a base. With more, name lookups cost too much.
pub const LAYERS_MAX: usize = 8;
/// Bases that are compared with a tree to find a similar one.
const NEAR_BASES_MAX: usize = 4;
/// Attempts to start a layer before a concurrent sweep removes it.
const TURNS_MAX: u32 = 100;

/// The leased lower layers of a tree: they cannot be evicted until this is dropped.
#[derive(Debug)]
pub struct Stack {
    /// Topmost first; the last is a base.
    pub dirs: Vec<PathBuf>,
    /// Which part of the stack this call wrote.
    pub made: Made,
    /// The host directory that is the base, and the id of the vault that its layers are built from.
    host: Option<(PathBuf, String)>,
    /// The tree that the stack shows.
    tree: TreeId,
    base: TreeId,
    /// The names of the layers over the base, topmost first.
    layers: Vec<String>,
    leases: Vec<FileLock>,
}

/// The part of a stack that had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Nothing.
    Reused,
    /// A layer with the difference from an existing base.
    Layered,
    /// A base.
    Materialized,
    /// Only the layer that hides the unversioned files of the host directory, which is the base.
    OverHost,
}

impl Stack {
    /// A base without layers.
    fn of_base(dir: PathBuf, made: Made, tree: TreeId, lease: FileLock) -> Self {
        Self { dirs: vec![dir], made, host: None, tree, base: tree, layers: Vec::new(), leases: vec![lease] }
    }

    /// Puts a layer on top.
    fn put(&mut self, dir: PathBuf, name: String, lease: FileLock) {
        self.dirs.insert(0, dir);
        self.layers.insert(0, name);
        self.leases.push(lease);
    }

    /// The base, if it is a host directory, and the tree that it held when it was scanned.
    #[must_use]
    pub fn host_dir(&self) -> Option<(&Path, &TreeId)> {
        self.host.as_ref().map(|(dir, _)| (dir.as_path(), &self.base))
    }

    /// The record of this stack, for a layer that will be put over it.
    fn record(&self, tree: &TreeId) -> StackRecord {
        let origin = if self.host.is_some() { BaseOrigin::Host } else { BaseOrigin::Cache };
        StackRecord { tree: *tree, base: self.base, origin, layers: self.layers.clone() }
    }
}

/// The size of a layer, for the cache's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Footprint {
    fn cost(self) -> u64 {
        self.bytes.saturating_add(self.entries.saturating_mul(ENTRY_BYTES))
    }

    fn of(totals: &Totals) -> Self {
        Self { entries: totals.entries, bytes: totals.bytes }
    }
}

impl Vault {
    /// Returns the lower layers for a tree: an existing stack, else a layer over a similar base, else a new base.
    /// Concurrent callers may each build one; all of them are valid.
    pub fn stack(&self, root: &DirRef, cache: &BaseCache, meter: &Meter) -> Result<Stack> {
        self.stack_unless(root, cache, meter, || Ok(None))
    }

    /// Like [`Vault::stack`], but builds a new base only if `other` returns no stack either.
    pub fn stack_unless(
        &self,
        root: &DirRef,
        cache: &BaseCache,
        meter: &Meter,
        other: impl FnOnce() -> Result<Option<Stack>>,
    ) -> Result<Stack> {
        let pin = self.backend().pin()?;
        if let Some(stack) = cache.ready_stack(root)? {
            return Ok(stack);
        }
        if let Some(stack) = self.stack_on_near_base(root, cache, meter)? {
            return Ok(stack);
        }
        if let Some(stack) = other()? {
            return Ok(stack);
        }
        let base = self.materialize_pinned(&pin, root, cache, Trust::Seal, meter)?;
        let made = match base.built {
            Built::Reused => Made::Reused,
            Built::New | Built::Rebuilt => Made::Materialized,
        };
        Ok(Stack::of_base(base.root, made, root.tree, base.lease))
    }

    /// Writes the stack for a version that is derived from the version of `below`: a layer with the difference
    /// between the two. If `below` has [`LAYERS_MAX`] layers already, the stack has one layer for all of them.
    pub fn stack_over(&self, below: &Stack, root: &DirRef, cache: &BaseCache, meter: &Meter) -> Result<()> {
        let pin = self.backend().pin()?;
        if below.layers.len() >= LAYERS_MAX || cache.ready_stack(root)?.is_some() {
            drop(pin);
            return self.stack(root, cache, meter).map(drop);
        }
        let pages = FreshPages::stoppable(self, meter);
        let shown = pages::reference(&pages, &below.tree)?;
        let difference = Difference::between(&pages, &shown, root)?;
        self.publish_difference(&difference, below, root, cache, meter).map(drop)
    }

    /// Writes a layer over the most similar base, if that is cheaper than a new base.
    fn stack_on_near_base(&self, root: &DirRef, cache: &BaseCache, meter: &Meter) -> Result<Option<Stack>> {
        let pages = FreshPages::stoppable(self, meter);
        let mut nearest: Option<(TreeId, Difference)> = None;
        for base in cache.list()?.iter().rev().take(NEAR_BASES_MAX) {
            let tree = avfs_types::ids::from_hex(&base.tree).and_then(|bytes| TreeId::from_slice(&bytes));
            // The base belongs to another vault or to a pruned version, so its tree cannot be compared.
            let Some(tree) = tree else { continue };
            if !self.read()?.has_tree(&tree)? {
                continue;
            }
            let base = pages::reference(&pages, &tree).map_err(Error::from);
            let compared = base.and_then(|base| Difference::between(&pages, &base, root));
            let difference = match compared {
                Ok(difference) => difference,
                // The base's version may no longer be needed. Damage in `root` itself is reported later.
                Err(Error::Vault(error)) if error.is_damage() => continue,
                Err(error) => return Err(error),
            };
            let cost = difference.size.cost();
            if nearest.as_ref().is_none_or(|(_, known)| cost < known.size.cost()) {
                nearest = Some((tree, difference));
            }
        }
        let Some((base, difference)) = nearest.filter(|(_, difference)| difference.is_small_for(root)) else {
            return Ok(None);
        };
        let Some(base_lease) = cache.lease_tree(&base)? else { return Ok(None) };
        let base_dir = cache.bases.place(&base.to_hex()).join("root");
        let mut stack = Stack::of_base(base_dir, Made::Layered, base, base_lease);
        self.put_difference(&difference, &mut stack, root, cache, meter)?;
        Ok(Some(stack))
    }

    /// Writes a difference as a layer over `stack`, so that it shows `root`.
    fn put_difference(
        &self,
        difference: &Difference,
        stack: &mut Stack,
        root: &DirRef,
        cache: &BaseCache,
        meter: &Meter,
    ) -> Result<()> {
        let (name, lease) = self.publish_difference(difference, stack, root, cache, meter)?;
        stack.put(cache.layers.place(&name).join("root"), name, lease);
        stack.tree = root.tree;
        Ok(())
    }

    /// Writes a difference as a layer over `below`, with the record of a stack that shows `root`.
    fn publish_difference(
        &self,
        difference: &Difference,
        below: &Stack,
        root: &DirRef,
        cache: &BaseCache,
        meter: &Meter,
    ) -> Result<(String, FileLock)> {
        let note = cache.layers.note()?;
        let draft = cache.begin_layer()?;
        if let Err(error) = self.fill_layer(root, difference, &draft, meter) {
            drop_draft(&draft, note);
            return Err(error);
        }
        cache.publish_layer(draft, below, &root.tree, difference.size)
    }

    fn fill_layer(&self, root: &DirRef, difference: &Difference, at: &Draft, meter: &Meter) -> Result<()> {
        let dir = at.path.join("root");
        make_private(&dir)?;
        let fd = beneath::open_root(&dir).map_err(host("open", &dir))?;
        meter.expect(difference.size.entries, difference.size.bytes);
        difference.write(self, root, std::os::fd::AsFd::as_fd(&fd), meter)
    }
}

impl BaseCache {
    /// The existing stack for a tree. `None` if a part of it is missing.
    fn ready_stack(&self, root: &DirRef) -> Result<Option<Stack>> {
        let base_dir = |tree: &TreeId| self.bases.place(&tree.to_hex()).join("root");
        if let Some(lease) = self.lease(root)? {
            return Ok(Some(Stack::of_base(base_dir(&root.tree), Made::Reused, root.tree, lease)));
        }
        let Some(record) = self.read_stack(&root.tree)? else { return Ok(None) };
        let Some(base_lease) = self.lease_tree(&record.base)? else {
            return match record.origin {
                BaseOrigin::Host => Ok(None),
                BaseOrigin::Cache => self.forget_stack(&root.tree).map(|()| None),
            };
        };
        let stack = Stack::of_base(base_dir(&record.base), Made::Reused, record.base, base_lease);
        self.with_layers(stack, record)
    }

    /// Puts the layers of a record over its base. If a layer is missing, deletes the record and returns `None`.
    fn with_layers(&self, mut stack: Stack, record: StackRecord) -> Result<Option<Stack>> {
        let head = self.layer_head();
        for name in record.layers.into_iter().rev() {
            let Some(lease) = self.layers.lease(&name, |sealed| sealed.starts_with(&head))? else {
                return self.forget_stack(&record.tree).map(|()| None);
            };
            stack.put(self.layers.place(&name).join("root"), name, lease);
        }
        stack.tree = record.tree;
        Ok(Some(stack))
    }

    fn begin_layer(&self) -> Result<Draft> {
        for _ in 0..TURNS_MAX {
            if let Some(draft) = self.layers.begin()? {
                return Ok(draft);
            }
        }
        let busy = std::io::Error::from(std::io::ErrorKind::ResourceBusy);
        Err(host("create a layer in", &self.layers.dir)(busy))
    }

    /// Seals a complete layer, publishes it, and writes the record of the stack it tops: over `below` it shows `tree`.
    fn publish_layer(
        &self,
        draft: Draft,
        below: &Stack,
        tree: &TreeId,
        size: Footprint,
    ) -> Result<(String, FileLock)> {
        let name = random::suffix().map_err(VaultError::Output)?;
        let mut record = below.record(tree);
        record.layers.insert(0, name.clone());
        let write = |file: &str, text: String| {
            let path = draft.path.join(file);
            std::fs::write(&path, text).map_err(host("write", &path))
        };
        let Footprint { entries, bytes } = size;
        write("sealed", format!("{}entries {entries}\nbytes {bytes}\n", self.layer_head()))?;
        if let Some((_, vault)) = &below.host {
            // There is no base in the cache that names the vault.
            write("vault", vault.clone())?;
        }
        // Written inside the layer's directory and moved from there, so that a killed process leaves no stray file.
        write("stack", self.stack_text(&record))?;
        let Some(lease) = self.layers.publish(draft, &name)? else {
            let taken = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(host("move to", &self.layers.place(&name))(taken));
        };
        self.account.add(item_bytes(entries, bytes));
        make_private(&self.stacks)?;
        let place = self.stack_place(&record.tree);
        avfs_types::pause::point("stack");
        std::fs::rename(self.layers.place(&name).join("stack"), &place).map_err(host("write", &place))?;
        Ok((name, lease))
    }
}
