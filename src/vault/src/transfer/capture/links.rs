//! Hard links of the base after a write through one of their names.
//!
//! overlayfs copies a file up only under the name used for the write, and leaves its other names in the lower layer.
//! Outside an overlay, all names are one file. A copied-up file has the atime of the original (the overlay is mounted
//! with noatime), and its directory has the `impure` xattr; a new file that replaces a name has neither. A copy with
//! the times of the original (`cp -p`) that a rename gave the name is known from the rename, and so is a new name that
//! a rename gave to the original.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use avfs_types::clock::FileTime;
use avfs_types::ids::LinkId;
use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;

use super::Times;
use crate::edit::{Edit, Edits};
use crate::import::build;
use crate::import::shared::{ScannedEntry, ScannedTree, What};
use crate::links::members;
use crate::page::{DirRef, FileNode, Node};
use crate::path_set::PathSet;
use crate::tree::Pages;
use crate::{Result, tree};

/// Hard links of the base that a run wrote to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenLinks {
    /// Names with the new content in the edits, but the old content in the overlay.
    pub joined: Vec<TreePath>,
    /// Names of one file that were written separately, with different content: each keeps its own content.
    pub split: Vec<TreePath>,
}

/// The data that distinguishes a copied-up file from a new one.
pub(super) struct Evidence<'a> {
    /// A time before the command started.
    pub since: FileTime,
    pub times: Times,
    /// Names that are known to belong to another file.
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

/// Applies a write through one name of a file to all its names. `hidden` paths stay unchanged.
pub(super) fn join(
    pages: &dyn Pages,
    base: &DirRef,
    found: &ScannedTree,
    hidden: &[TreePath],
    evidence: &Evidence<'_>,
    edits: &mut Edits,
) -> Result<WrittenLinks> {
    let mut written = WrittenLinks::default();
    if base.totals.links == 0 {
        return Ok(written);
    }
    let copies = copies(pages, base, found, evidence, edits)?;
    if copies.is_empty() {
        return Ok(written);
    }
    let hidden = PathSet::new(hidden.iter());
    let mut names: BTreeMap<LinkId, Vec<(TreePath, Node)>> = BTreeMap::new();
    for (path, node) in members(pages, base, &TreePath::root())? {
        if let Some(link) = node.link().filter(|link| copies.contains_key(link)) {
            names.entry(link).or_default().push((path, node));
        }
    }
    let mut merged = HashMap::new();
    for (link, copies) in copies {
        let names = names.remove(&link).unwrap_or_default();
        let untouched: Vec<_> = names
            .into_iter()
            .filter(|(path, _)| !copies.iter().any(|copy| copy.path == *path))
            .filter(|(path, _)| !is_edited(edits, path) && !hidden.covers(path))
            .collect();
        let mut changed = copies.iter().filter(|copy| copy.changed());
        let last = changed.clone().max_by_key(|copy| copy.new.mtime).or(copies.first());
        let Some(last) = last else { continue };
        if changed.any(|copy| (copy.new.content, copy.new.mode) != (last.new.content, last.new.mode)) {
            written.split.extend(copies.into_iter().map(|copy| copy.path));
            continue;
        }
        let node = Node::File(FileNode { link: Some(link), ..last.new.clone() });
        // New names of a copy are a separate link group: all names are merged into one group.
        merged.extend(copies.iter().filter_map(|copy| Some((copy.new.link?, node.clone()))));
        for copy in &copies {
            if !copy.is_moved && Node::File(copy.old.clone()) == node {
                edits.remove(&copy.path);
            } else {
                edits.insert(copy.path.clone(), Edit::Put(node.clone()));
            }
        }
        for (path, _) in untouched.into_iter().filter(|(_, old)| *old != node) {
            edits.insert(path.clone(), Edit::Put(node.clone()));
            written.joined.push(path);
        }
    }
    if !merged.is_empty() {
        for edit in edits.values_mut() {
            let Edit::Put(node) = edit else { continue };
            if let Some(of_group) = node.link().and_then(|link| merged.get(&link)) {
                *node = of_group.clone();
            }
        }
    }
    Ok(written)
}

/// A copied-up name of a file of the base.
struct Copied {
    path: TreePath,
    /// The base has the file under another name.
    is_moved: bool,
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

fn copies(
    pages: &dyn Pages,
    base: &DirRef,
    found: &ScannedTree,
    evidence: &Evidence<'_>,
    edits: &Edits,
) -> Result<BTreeMap<LinkId, Vec<Copied>>> {
    let groups = build::link_groups(&found.dirs);
    let mut copies: BTreeMap<LinkId, Vec<Copied>> = BTreeMap::new();
    let mut moved = Vec::new();
    for dir in &found.dirs {
        let same = dir.over.base.filter(|base| dir.over.holds_copies && base.totals.links > 0);
        if same.is_none() && evidence.renamed.is_empty() {
            continue;
        }
        for entry in dir.entries.iter().filter(|entry| matches!(entry.what, What::File { .. })) {
            let path = dir.path.join(&entry.name);
            let Some(origin) = evidence.renamed.origin(&path) else { continue };
            let is_moved = origin != path;
            let old = match same {
                _ if is_moved => tree::lookup(pages, base, &origin)?,
                Some(base) => tree::entry(pages, &base.tree, &entry.name)?,
                None => None,
            };
            let (Some(Node::File(old)), Some(Node::File(new))) = (old, build::leaf(entry, &groups)) else {
                continue;
            };
            let Some(link) = old.link.filter(|_| evidence.is_copy(entry, &old, &new)) else { continue };
            let copy = Copied { path, is_moved, old, new };
            if is_moved {
                moved.push((origin, link, copy));
            } else {
                copies.entry(link).or_default().push(copy);
            }
        }
    }
    // A rename may have failed: then the file still has its old name.
    let standing: BTreeSet<_> = copies.values().flatten().map(|copy| copy.path.clone()).collect();
    for (origin, link, copy) in moved {
        if is_edited(edits, &origin) && !standing.contains(&origin) {
            copies.entry(link).or_default().push(copy);
        }
    }
    Ok(copies)
}

/// True if the path has an edit, or a directory above it is replaced or removed.
fn is_edited(edits: &Edits, path: &TreePath) -> bool {
    edits.contains_key(path)
        || path.ancestors().any(|above| matches!(edits.get(&above), Some(Edit::Remove | Edit::Put(_))))
}
