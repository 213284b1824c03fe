//! Hard links of the base after a write through one of their names.
//!
//! overlayfs copies a file up only under the name used for the write, and leaves its other names in the lower layer.
//! Outside an overlay, all names are one file. A copied-up file has the atime of the original (the overlay is mounted
//! with noatime), and its directory has the `impure` xattr; a new file that replaces a name has neither. A copy with
//! the times of the original (`cp -p`) that a rename gave the name is known from the rename, and so are a new name that
//! a rename gave to the original, and the directories that were copied for a rename, which lack the xattr.
//!
//! The `origin` xattr does not distinguish them: without an index, overlayfs sets it only on copies of files with one
//! name, and an index needs CAP_DAC_READ_SEARCH outside of user namespaces. Neither does the creation time: `touch`
//! sets the atime in the same tick of the clock in which it copies the file up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use avfs_types::clock::FileTime;
use avfs_types::ids::LinkId;
use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;

use super::Times;
use super::over::Over;
use crate::edit::{Edit, Edits};
use crate::links::members;
use crate::page::{DirRef, FileNode, Node};
use crate::path_set::PathSet;
use crate::transfer::Result;
use crate::transfer::scan::{Groups, ScannedDir, ScannedEntry, What, leaf, lock};
use crate::tree::Pages;
use crate::{Vault, tree};

/// Hard links of the base that a run wrote to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenLinks {
    /// Names with the new content in the edits, but the old content in the overlay.
    pub joined: Vec<TreePath>,
    /// Names of one file that were written separately, with the same content. Outside an overlay, a write through one
    /// of them would have changed what the others were written to.
    pub repeated: Vec<TreePath>,
    /// Names of one file that were written separately, with different content: each keeps its own content.
    pub split: Vec<TreePath>,
}

/// The data that distinguishes a copied-up file from a new one.
pub(super) struct Evidence<'a> {
    /// A time before the command started.
    pub since: FileTime,
    pub times: Times,
    /// Names that are known to belong to another file, or to a copied directory.
    pub renamed: &'a RenamedNames,
}

impl Evidence<'_> {
    fn is_copy(&self, entry: &ScannedEntry, old: &FileNode, new: &FileNode) -> bool {
        let same_content = (old.content, old.size) == (new.content, new.size);
        let (mtime, atime) = (entry.stat.mtime, entry.stat.atime);
        let of_run = match self.times {
            Times::AsWritten => mtime >= self.since,
            Times::Fixed { to, .. } => mtime == to,
        };
        // An mtime from before the run that differs from the original's was set by the program that created the file,
        // such as an archiver.
        same_content || (atime < self.since && (of_run || mtime == old.mtime))
    }
}

/// The merged trees, in which the names of a written file may differ.
pub(super) struct Merged<'a> {
    pub pages: &'a dyn Pages,
    pub base: &'a DirRef,
    pub root: &'a DirRef,
    /// Paths that stay unchanged.
    pub hidden: &'a [TreePath],
}

impl Merged<'_> {
    /// True if the path has changed since the base, where it was `old`.
    fn is_changed(&self, path: &TreePath, old: &Node) -> Result<bool> {
        Ok(tree::lookup(self.pages, self.root, path)?.as_ref() != Some(old))
    }
}

/// The edits that apply a write through one name of a file to all its names.
pub(super) fn join(merged: &Merged<'_>, search: &CopySearch<'_>) -> Result<(Edits, WrittenLinks)> {
    let (mut edits, mut written) = (Edits::new(), WrittenLinks::default());
    let copies = search.copies(merged)?;
    if copies.is_empty() {
        return Ok((edits, written));
    }
    let hidden = PathSet::new(merged.hidden.iter());
    let mut names: BTreeMap<LinkId, Vec<(TreePath, Node)>> = BTreeMap::new();
    for (path, node) in members(merged.pages, merged.base, &TreePath::root())? {
        if let Some(link) = node.link().filter(|link| copies.contains_key(link)) {
            names.entry(link).or_default().push((path, node));
        }
    }
    let mut groups = HashMap::new();
    for (link, copies) in copies {
        let mut changed = copies.iter().filter(|copy| copy.changed());
        let last = changed.clone().max_by_key(|copy| copy.new.mtime).or(copies.first());
        let Some(last) = last else { continue };
        if changed.any(|copy| (copy.new.content, copy.new.mode) != (last.new.content, last.new.mode)) {
            written.split.extend(copies.into_iter().map(|copy| copy.path));
            continue;
        }
        let rewritten = |copy: &&Copied| copy.new.content != copy.old.content;
        if copies.iter().filter(rewritten).count() > 1 {
            written.repeated.extend(copies.iter().filter(rewritten).map(|copy| copy.path.clone()));
        }
        let node = Node::File(FileNode { link: Some(link), ..last.new.clone() });
        for (path, old) in names.remove(&link).unwrap_or_default() {
            let is_copied = copies.iter().any(|copy| copy.path == path);
            if is_copied || old == node || hidden.covers(&path) || merged.is_changed(&path, &old)? {
                continue;
            }
            edits.insert(path.clone(), Edit::Put(node.clone()));
            written.joined.push(path);
        }
        // New names of a copy are a separate link group: all names are merged into one group.
        groups.extend(copies.iter().filter_map(|copy| Some((copy.new.link?, node.clone()))));
        edits.extend(copies.into_iter().map(|copy| (copy.path, Edit::Put(node.clone()))));
    }
    if !groups.is_empty() {
        for (path, node) in members(merged.pages, merged.root, &TreePath::root())? {
            if let Some(of_group) = node.link().and_then(|link| groups.get(&link)) {
                edits.insert(path, Edit::Put(of_group.clone()));
            }
        }
    }
    Ok((edits, written))
}

/// A copied-up name of a file of the base.
struct Copied {
    path: TreePath,
    old: FileNode,
    new: FileNode,
}

impl Copied {
    fn changed(&self) -> bool {
        let FileNode { mode, mtime, size, content, xattrs, link: _ } = &self.new;
        let old = &self.old;
        (mode, mtime, size, content, xattrs) != (&old.mode, &old.mtime, &old.size, &old.content, &old.xattrs)
    }
}

/// Searches the directories of an upper for copied-up names of hard links.
pub(crate) struct CopySearch<'a> {
    base: DirRef,
    evidence: Evidence<'a>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    copies: Vec<(LinkId, Copied)>,
    /// Each with the name in the base.
    moved: Vec<(TreePath, LinkId, Copied)>,
}

impl<'a> CopySearch<'a> {
    pub(super) fn new(base: DirRef, evidence: Evidence<'a>) -> Self {
        Self { base, evidence, found: Mutex::default() }
    }

    pub(super) fn search(&self, vault: &Vault, dir: &ScannedDir<Over>, groups: &Groups) -> Result<()> {
        let same = dir.own.base.filter(|base| dir.own.holds_copies && base.totals.links > 0);
        if same.is_none() && self.evidence.renamed.is_empty() {
            return Ok(());
        }
        let reader = vault.read()?;
        let pages = &&*reader;
        for entry in dir.entries.iter().filter(|entry| matches!(entry.what, What::File { .. })) {
            let path = dir.path.join(&entry.name);
            let Some(origin) = self.evidence.renamed.origin(&path) else { continue };
            let is_moved = origin != path;
            let old = match same {
                _ if self.evidence.renamed.covers(&path) => tree::lookup(pages, &self.base, &origin)?,
                Some(base) => tree::entry(pages, &base.tree, &entry.name)?,
                None => None,
            };
            let (Some(Node::File(old)), Some(Node::File(new))) = (old, leaf(entry, groups)) else {
                continue;
            };
            let Some(link) = old.link.filter(|_| self.evidence.is_copy(entry, &old, &new)) else { continue };
            let copy = Copied { path, old, new };
            let mut found = lock(&self.found);
            if is_moved {
                found.moved.push((origin, link, copy));
            } else {
                found.copies.push((link, copy));
            }
        }
        Ok(())
    }

    /// The copies of each file, sorted by path.
    fn copies(&self, merged: &Merged<'_>) -> Result<BTreeMap<LinkId, Vec<Copied>>> {
        let Found { mut copies, moved } = std::mem::take(&mut *lock(&self.found));
        // A rename may have failed: then the file still has its old name.
        let standing: BTreeSet<_> = copies.iter().map(|(_, copy)| copy.path.clone()).collect();
        for (origin, link, copy) in moved {
            let Some(old) = tree::lookup(merged.pages, merged.base, &origin)? else { continue };
            if !standing.contains(&origin) && merged.is_changed(&origin, &old)? {
                copies.push((link, copy));
            }
        }
        copies.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        let mut by_file: BTreeMap<LinkId, Vec<Copied>> = BTreeMap::new();
        for (link, copy) in copies {
            by_file.entry(link).or_default().push(copy);
        }
        Ok(by_file)
    }
}
