//! Edits by path: applies a set of changes to a root, touching only the directories on the way.
//!
//! Not recursive: paths in byte order put a directory before its entries, so one forward pass finds the directories
//! and one backward pass closes them.

use std::collections::BTreeMap;

use avfs_types::clock::FileTime;
use avfs_types::ids::TreeId;
use avfs_types::path::TreePath;

use super::page::{Body, DirMeta, DirRef, Node, Page};
use super::pages::{Changes, NewPages};
use super::tree::{CachedPages, Pages};
use super::{pages, tree};
use crate::{Result, VaultError};

/// A change to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Replaces the path with this entry.
    Put(Node),
    /// Removes the path and everything under it.
    Remove,
    /// Makes the path a directory with this metadata: created if it does not exist; an existing one keeps its
    /// entries.
    Dir(DirMeta),
}

/// Edits by path.
pub type Edits = BTreeMap<TreePath, Edit>;

/// The effects of edits beyond the given paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// No other effects: the edits give every directory's metadata.
    Exact,
    /// As in a file system: parents are created, and a directory that gains or loses a name gets this time.
    Natural(FileTime),
}

struct Work {
    base: (DirMeta, Body),
    meta: Option<DirMeta>,
    changes: Changes,
    touched: bool,
}

/// Applies the edits and returns the new root. New pages are added to `new`; nothing is stored.
pub fn apply(
    pages: &dyn Pages,
    root: &DirRef,
    edits: &Edits,
    manner: Manner,
    new: &mut NewPages,
) -> Result<DirRef> {
    let mut works = gather(edits);
    let paths: Vec<TreePath> = works.keys().cloned().collect();
    let looked = CachedPages::new(pages);
    for path in &paths {
        let base = base_of(&looked, root, path, &works, edits, manner)?;
        let touched = match manner {
            Manner::Exact => false,
            Manner::Natural(_) => changes_names(&looked, &base.1, &works[path].changes)?,
        };
        if let Some(work) = works.get_mut(path) {
            work.base = base;
            work.touched = touched;
        }
    }
    let mut edited = *root;
    while let Some((path, work)) = works.pop_last() {
        let mut meta = work.meta;
        if let Manner::Natural(now) = manner
            && meta.is_none()
            && work.touched
        {
            meta = Some(DirMeta { mtime: now, ..work.base.0.clone() });
        }
        let dir = pages::edit(&Taken(&looked), work.base, meta, &work.changes, new)?;
        match path.split() {
            None => edited = dir,
            Some((parent, name)) => {
                if let Some(parent) = works.get_mut(&parent) {
                    parent.changes.insert(name.to_vec(), Some(Node::Dir(dir)));
                }
            }
        }
    }
    Ok(edited)
}

/// Reuses a page that a lookup has already read, for the last time.
struct Taken<'a>(&'a CachedPages<'a>);

impl Pages for Taken<'_> {
    fn page(&self, id: &TreeId) -> Result<Page> {
        self.0.take(id)
    }
}

/// The work for each directory on the path of an edit.
fn gather(edits: &Edits) -> BTreeMap<TreePath, Work> {
    let mut works: BTreeMap<TreePath, Work> = BTreeMap::new();
    let empty = || Work {
        base: (DirMeta::default(), Body::Leaf(Vec::new())),
        meta: None,
        changes: Changes::new(),
        touched: false,
    };
    for (path, edit) in edits {
        let mut up = path.clone();
        while let Some((parent, _)) = up.split() {
            if works.contains_key(&parent) {
                break;
            }
            works.insert(parent.clone(), empty());
            up = parent;
        }
        if let Edit::Dir(meta) = edit {
            works.entry(path.clone()).or_insert_with(empty).meta = Some(meta.clone());
        }
        let Some((parent, name)) = path.split() else { continue };
        let change = match edit {
            Edit::Put(node) => Some(node.clone()),
            Edit::Remove => None,
            Edit::Dir(_) => continue,
        };
        works.entry(parent).or_insert_with(empty).changes.insert(name.to_vec(), change);
    }
    works
}

/// A directory before its changes: the existing one, the one that an edit puts there, or an empty one.
fn base_of(
    looked: &CachedPages<'_>,
    root: &DirRef,
    path: &TreePath,
    works: &BTreeMap<TreePath, Work>,
    edits: &Edits,
    manner: Manner,
) -> Result<(DirMeta, Body)> {
    let pages = looked.source();
    let Some((parent, name)) = path.split() else { return tree::top(pages, &root.tree) };
    let above = &works[&parent];
    let there = match above.changes.get(name) {
        Some(change) => change.clone(),
        None => tree::entry_in(looked, &above.base.1, name)?,
    };
    let made_dir = matches!(edits.get(path), Some(Edit::Dir(_)));
    match there {
        Some(Node::Dir(dir)) => tree::top(pages, &dir.tree),
        Some(other) if !made_dir => Err(VaultError::NotADirectory { path: path.clone(), kind: other.kind() }),
        Some(_) | None => {
            let mtime = match manner {
                Manner::Exact => FileTime::default(),
                Manner::Natural(now) => now,
            };
            Ok((DirMeta { mtime, ..DirMeta::default() }, Body::Leaf(Vec::new())))
        }
    }
}

fn changes_names(pages: &dyn Pages, body: &Body, changes: &Changes) -> Result<bool> {
    for (name, change) in changes {
        if tree::entry_in(pages, body, name)?.is_some() != change.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::*;
    use crate::page::{Entry, FifoNode};

    /// Stored pages, and how often each was read.
    #[derive(Default)]
    struct Counted {
        data: HashMap<TreeId, Vec<u8>>,
        reads: RefCell<HashMap<TreeId, usize>>,
    }

    impl Pages for Counted {
        fn page(&self, id: &TreeId) -> Result<Page> {
            *self.reads.borrow_mut().entry(*id).or_default() += 1;
            tree::check_page(id, &self.data[id])
        }
    }

    #[test]
    fn no_page_is_read_twice() {
        let mut new = NewPages::default();
        let fifo = || Node::Fifo(FifoNode { mode: 0o600, mtime: FileTime::default(), link: None });
        let dir_of = |entries: Vec<(String, Node)>, new: &mut NewPages| {
            let entries = entries.into_iter().map(|(name, node)| Entry { name: name.into_bytes(), node });
            pages::build(&DirMeta::default(), entries.collect(), new)
        };
        // Names of equal length, so that they are sorted.
        let subdirs = (100..400)
            .map(|n| (format!("{n}"), Node::Dir(dir_of(vec![(format!("in{n}"), fifo())], &mut new))))
            .collect();
        let root = dir_of(subdirs, &mut new);
        let store = Counted { data: new.pages.into_iter().collect(), ..Counted::default() };
        for manner in [Manner::Exact, Manner::Natural(FileTime::default())] {
            store.reads.borrow_mut().clear();
            let put = |path: &str| (TreePath::parse(path.as_bytes()).unwrap(), Edit::Put(fifo()));
            let edits = Edits::from([put("123/new"), put("251/new"), put("390/new")]);
            apply(&store, &root, &edits, manner, &mut NewPages::default()).unwrap();
            let reads = store.reads.borrow();
            assert!(reads.len() > 6, "the directory has only one page: {reads:?}");
            assert!(reads.values().all(|read| *read == 1), "{reads:?}");
        }
    }
}
