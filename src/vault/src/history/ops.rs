//! Edits of a fork inside the vault, each creating a version: write, make directory, remove, move, copy.

use std::borrow::Cow;
use std::io::Read;

use avfs_types::clock::FileTime;
use avfs_types::ids::{DigestKind, ForkName, LinkId};
use avfs_types::path::{PathError, TreePath};

use super::version::full_root_of;
use crate::backend::{BlobRecord, Reader};
use crate::edit::{Edit, Edits, Manner};
use crate::ingest::{Ingested, ReadBlocks, VaultSink};
use crate::page::{DirMeta, DirRef, FileNode, Node};
use crate::pages::NewPages;
use crate::path_set::PathSet;
use crate::tree::Pages;
use crate::{
    Advance, Batch, Committed, Result, Transaction, Vault, VaultError, When, ingest, links, own, tree,
};

/// Whether an edit may affect a whole directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only files; a directory is an error.
    FilesOnly,
    /// Directories with everything in them.
    Recursive,
}

/// Whether missing parent directories are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parents {
    /// They must exist.
    Required,
    /// They are created as needed.
    Made,
}

/// A change to a fork that is computed from its head, under the write lock.
struct Plan<'a> {
    action: &'static str,
    message: &'a str,
}

/// The destination of a move or copy.
#[derive(Clone, Debug)]
pub struct Target {
    /// The new path, or the directory to put the source into.
    pub path: TreePath,
    /// True if the destination must be a directory, to put the source into.
    pub(crate) is_dir: bool,
}

impl Target {
    /// Parses a path as typed by the user: a trailing slash says that it is a directory.
    pub fn parse(text: &[u8]) -> std::result::Result<Self, PathError> {
        Ok(Self { path: TreePath::parse(text)?, is_dir: text.ends_with(b"/") })
    }
}

impl From<&TreePath> for Target {
    fn from(path: &TreePath) -> Self {
        Self { path: path.clone(), is_dir: false }
    }
}

impl Vault {
    /// Makes `path` a file with the content of `input`. An existing file keeps its mode.
    pub fn write_file(
        &self,
        fork: &ForkName,
        path: &TreePath,
        input: impl Read + Send,
        mode: Option<u32>,
        message: &str,
    ) -> Result<Committed> {
        if path.is_root() {
            return Err(VaultError::IsADirectory { path: path.clone() });
        }
        let _pin = self.backend().pin()?;
        let mut batch = Batch::new(self)?;
        let written = {
            let mut sink = VaultSink { vault: self, batch: &mut batch };
            ingest::ingest(&mut ReadBlocks(input), &mut sink)?
        };
        self.edit(fork, &Plan { action: "fork.write", message }, batch, |view, root, now| {
            let Ingested { content, size } = written;
            let (old_mode, xattrs, link) = match tree::lookup(&view, root, path)? {
                Some(Node::Dir(_)) => return Err(VaultError::IsADirectory { path: path.clone() }),
                Some(Node::File(file)) => (file.mode, file.xattrs, file.link),
                Some(Node::Symlink(_) | Node::Fifo(_)) | None => (0o644, None, None),
            };
            let mode = mode.unwrap_or(old_mode);
            let file = |link| Node::File(FileNode { mode, mtime: now, size, content, xattrs, link });
            // Every hard link of the file shows the new content, as on a disk.
            let mut edits = Edits::new();
            if link.is_some() {
                let names = links::members(&view, root, &TreePath::root())?;
                let mine = names.into_iter().filter(|(_, node)| node.link() == link);
                edits.extend(mine.map(|(name, _)| (name, Edit::Put(file(link)))));
            }
            edits.insert(path.clone(), Edit::Put(file(link)));
            Ok(edits)
        })
    }

    /// Adds a version of `fork` with a new directory. With [`Parents::Made`] an existing directory is left
    /// unchanged.
    pub fn make_dir(
        &self,
        fork: &ForkName,
        path: &TreePath,
        parents: Parents,
        message: &str,
    ) -> Result<Committed> {
        let plan = Plan { action: "fork.mkdir", message };
        self.edit(fork, &plan, Batch::new(self)?, |view, root, now| {
            match (tree::lookup(&view, root, path)?, parents) {
                (None, _) => {}
                (Some(Node::Dir(_)), Parents::Made) => return Ok(Edits::new()),
                (Some(_), _) => return Err(VaultError::PathExists { path: path.clone() }),
            }
            if let (Parents::Required, Some((parent, _))) = (parents, path.split()) {
                require_dir(&view, root, &parent)?;
            }
            Ok(Edits::from([(path.clone(), Edit::Dir(DirMeta { mtime: now, ..DirMeta::default() }))]))
        })
    }

    /// Adds a version of `fork` without these paths.
    pub fn remove(
        &self,
        fork: &ForkName,
        paths: &[TreePath],
        depth: Depth,
        message: &str,
    ) -> Result<Committed> {
        let plan = Plan { action: "fork.rm", message };
        self.edit(fork, &plan, Batch::new(self)?, |view, root, _| {
            let mut edits = Edits::new();
            for path in paths {
                let is_dir = matches!(tree::require(&view, root, path)?, Node::Dir(_));
                if path.is_root() || (is_dir && depth == Depth::FilesOnly) {
                    return Err(VaultError::IsADirectory { path: path.clone() });
                }
                edits.insert(path.clone(), Edit::Remove);
            }
            // A path inside another removed path is removed with it.
            let tops = PathSet::new(edits.keys());
            edits.retain(|path, _| tops.has(path));
            Ok(edits)
        })
    }

    /// Moves `from` to `to`, or into it if it is a directory.
    pub fn move_path(
        &self,
        fork: &ForkName,
        from: &TreePath,
        to: impl Into<Target>,
        message: &str,
    ) -> Result<Committed> {
        let (to, plan) = (to.into(), Plan { action: "fork.mv", message });
        self.edit(fork, &plan, Batch::new(self)?, |view, root, _| {
            let (node, target) = source_and_target(&view, root, from, &to)?;
            Ok(Edits::from([(from.clone(), Edit::Remove), (target, Edit::Put(node))]))
        })
    }

    /// Copies `from` to `to`, or into it if it is a directory.
    pub fn copy_path(
        &self,
        fork: &ForkName,
        from: &TreePath,
        to: impl Into<Target>,
        depth: Depth,
        message: &str,
    ) -> Result<Committed> {
        let (to, plan) = (to.into(), Plan { action: "fork.cp", message });
        self.edit(fork, &plan, Batch::new(self)?, |view, root, _| {
            let (node, target) = source_and_target(&view, root, from, &to)?;
            if let (Node::Dir(_), Depth::FilesOnly) = (&node, depth) {
                return Err(VaultError::IsADirectory { path: from.clone() });
            }
            let mut edits = Edits::from([(target.clone(), Edit::Put(node.clone().with_link(None)))]);
            if let Node::Dir(dir) = &node {
                // Hard links among the copied files stay hard links among the copies, but not with the originals.
                for (path, node) in links::members(&view, dir, &target)? {
                    let link = node.link().map(|id| copied_group(id, &target));
                    edits.insert(path, Edit::Put(node.with_link(link)));
                }
            }
            Ok(edits)
        })
    }

    /// Applies precomputed edits, as a capture does. Exactly one synced commit.
    pub fn commit_edits(
        &self,
        fork: &ForkName,
        edits: &Edits,
        blobs: &[BlobRecord],
        advance: &Advance<'_>,
    ) -> Result<Committed> {
        self.transact(|transaction| {
            transaction.put_blobs(blobs)?;
            transaction.commit_edits(fork, edits, advance)
        })
    }

    fn edit(
        &self,
        fork: &ForkName,
        plan: &Plan<'_>,
        batch: Batch<'_>,
        edits: impl FnOnce(&dyn Reader, &DirRef, FileTime) -> Result<Edits>,
    ) -> Result<Committed> {
        self.transact(|transaction| {
            batch.finish(transaction)?;
            let now = FileTime::from_nanos(transaction.now().0);
            let advance =
                Advance { action: plan.action, message: plan.message, run: None, when: When::Changed };
            commit(transaction, fork, &advance, Manner::Natural(now), |view, root| {
                let edits = edits(view, root, now)?;
                let mut made = edits.iter().filter(|(_, edit)| !matches!(edit, Edit::Remove));
                match made.find(|(path, _)| own::is_in_own_dir(path)) {
                    Some((path, _)) => Err(VaultError::OwnPath { path: path.clone() }),
                    None => Ok(Cow::Owned(edits)),
                }
            })
        })
    }
}

impl Transaction<'_> {
    /// Makes exactly these edits on the head of a fork and moves it; their blobs must already be in the vault.
    pub(crate) fn commit_edits(
        &mut self,
        fork: &ForkName,
        edits: &Edits,
        advance: &Advance<'_>,
    ) -> Result<Committed> {
        commit(self, fork, advance, Manner::Exact, |_, _| Ok(Cow::Borrowed(edits)))
    }
}

/// Computes edits from the head of a fork, makes them, and moves the head.
fn commit<'e>(
    transaction: &mut Transaction<'_>,
    fork: &ForkName,
    advance: &Advance<'_>,
    manner: Manner,
    edits: impl FnOnce(&dyn Reader, &DirRef) -> Result<Cow<'e, Edits>>,
) -> Result<Committed> {
    let record = transaction.fork(fork)?;
    let head = crate::require_version(transaction.view(), &record.head)?;
    let root = full_root_of(transaction.view(), &head)?;
    let edits = edits(transaction.view(), &root)?;
    let edited = apply_edits(transaction, &root, &edits, manner)?;
    let advance = Advance { ..*advance };
    transaction.advance(&record, &edited, advance)
}

/// Applies edits to the root, storing its new pages.
pub(crate) fn apply_edits(
    transaction: &mut Transaction<'_>,
    root: &DirRef,
    edits: &Edits,
    manner: Manner,
) -> Result<DirRef> {
    let mut new = NewPages::default();
    let edited = links::apply_settled(&transaction.view() as &dyn Pages, root, edits, manner, &mut new)?;
    if edited.tree != root.tree {
        transaction.put_pages(&new)?;
    }
    Ok(edited)
}

fn require_dir(pages: &dyn Pages, root: &DirRef, path: &TreePath) -> Result<DirRef> {
    let node = tree::require(pages, root, path)?;
    let Node::Dir(dir) = node else {
        return Err(VaultError::NotADirectory { path: path.clone(), kind: node.kind() });
    };
    Ok(dir)
}

/// The node to move or copy, and its new path.
fn source_and_target(
    pages: &dyn Pages,
    root: &DirRef,
    from: &TreePath,
    Target { path: to, is_dir }: &Target,
) -> Result<(Node, TreePath)> {
    let node = tree::require(pages, root, from)?;
    if *is_dir && !matches!(node, Node::Dir(_)) {
        require_dir(pages, root, to)?;
    }
    let Some((_, name)) = from.split() else {
        return Err(VaultError::PathCycle { from: from.clone(), to: to.clone() });
    };
    let target = match tree::lookup(pages, root, to)? {
        Some(Node::Dir(_)) => to.join(name),
        Some(_) | None => to.clone(),
    };
    if from.contains(&target) {
        return Err(VaultError::PathCycle { from: from.clone(), to: target });
    }
    match tree::lookup(pages, root, &target)? {
        Some(Node::Dir(_)) => return Err(VaultError::PathExists { path: target }),
        Some(_) if matches!(node, Node::Dir(_)) => return Err(VaultError::PathExists { path: target }),
        Some(_) => {}
        None => {
            if let Some((parent, _)) = target.split() {
                require_dir(pages, root, &parent)?;
            }
        }
    }
    Ok((node, target))
}

/// A group id for copies, which [`links::settle`] replaces with the final id derived from their paths.
fn copied_group(id: LinkId, target: &TreePath) -> LinkId {
    let digest = DigestKind::Link.digest(&[&id.0[..], target.as_bytes()].concat());
    let mut copied = [0; 16];
    copied.copy_from_slice(&digest[..16]);
    LinkId(copied)
}
