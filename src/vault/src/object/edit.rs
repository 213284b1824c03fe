//! Edits by path: applies a set of changes to a root, touching only the directories on the way.
//!
//! Not recursive, and one pass: paths in byte order put a directory before its entries, and a directory is closed when
//! the paths have passed it. Only directories on the way to the current path are open.

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

/// An edited directory, until the edits have passed it.
struct Work {
    base: (DirMeta, Body),
    meta: Option<DirMeta>,
    /// The edits of its entries.
    changes: Changes,
    /// Its edited subdirectories.
    edited: Changes,
}

/// Applies the edits and returns the new root. New pages are added to `new`; nothing is stored.
pub fn apply(
    pages: &dyn Pages,
    root: &DirRef,
    edits: &Edits,
    manner: Manner,
    new: &mut NewPages,
) -> Result<DirRef> {
    let mut open = OpenDirs { looked: CachedPages::new(pages), root, manner, works: BTreeMap::new() };
    for (path, edit) in edits {
        let parent = path.split();
        let is_above_open = parent.as_ref().is_none_or(|(dir, _)| open.works.contains_key(dir));
        if !is_above_open || matches!(edit, Edit::Dir(_)) {
            open.close(|dir| is_passed(dir, path), new)?;
        }
        if !is_above_open {
            let above: Vec<TreePath> = path.ancestors().collect();
            above.iter().rev().try_for_each(|dir| open.open(dir, None))?;
        }
        let change = match edit {
            Edit::Put(node) => Some(node.clone()),
            Edit::Remove => None,
            Edit::Dir(meta) => {
                open.open(path, Some(meta))?;
                continue;
            }
        };
        if let Some((dir, name)) = parent
            && let Some(work) = open.works.get_mut(&dir)
        {
            work.changes.insert(name.to_vec(), change);
        }
    }
    open.close(|_| true, new).map(|edited| edited.unwrap_or(*root))
}

/// True if no path from `path` on is in the directory.
fn is_passed(dir: &TreePath, path: &TreePath) -> bool {
    let after = [dir.as_bytes(), &[b'/' + 1]].concat();
    !dir.is_root() && path.as_bytes() >= after.as_slice()
}

struct OpenDirs<'a> {
    looked: CachedPages<'a>,
    root: &'a DirRef,
    manner: Manner,
    works: BTreeMap<TreePath, Work>,
}

impl OpenDirs<'_> {
    /// Opens a directory unless it is open. With `meta`, an edit creates it or gives it this metadata.
    fn open(&mut self, path: &TreePath, meta: Option<&DirMeta>) -> Result<()> {
        match self.works.get_mut(path) {
            Some(work) => work.meta = meta.cloned().or(work.meta.take()),
            None => {
                let base = self.base_of(path, meta.is_some())?;
                let (changes, edited) = (Changes::new(), Changes::new());
                self.works.insert(path.clone(), Work { base, meta: meta.cloned(), changes, edited });
            }
        }
        Ok(())
    }

    /// Closes these open directories, deepest first, and returns the root if it is one of them.
    fn close(&mut self, closes: impl Fn(&TreePath) -> bool, new: &mut NewPages) -> Result<Option<DirRef>> {
        let closing: Vec<TreePath> = self.works.keys().rev().filter(|dir| closes(dir)).cloned().collect();
        for path in closing {
            let Some(Work { base, mut meta, mut changes, edited }) = self.works.remove(&path) else {
                continue;
            };
            if let Manner::Natural(mtime) = self.manner
                && meta.is_none()
                && changes_names(&self.looked, &base.1, &changes)?
            {
                meta = Some(DirMeta { mtime, ..base.0.clone() });
            }
            changes.extend(edited);
            let dir = pages::edit(&Taken(&self.looked), base, meta, &changes, new)?;
            match path.split() {
                None => return Ok(Some(dir)),
                Some((parent, name)) => {
                    if let Some(parent) = self.works.get_mut(&parent) {
                        parent.edited.insert(name.to_vec(), Some(Node::Dir(dir)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// A directory before its changes: the existing one, the one that an edit puts there, or an empty one.
    fn base_of(&self, path: &TreePath, is_made: bool) -> Result<(DirMeta, Body)> {
        let pages = self.looked.source();
        let Some((parent, name)) = path.split() else { return tree::top(pages, &self.root.tree) };
        let above = &self.works[&parent];
        let there = match above.changes.get(name) {
            Some(change) => change.clone(),
            None => tree::entry_in(&self.looked, &above.base.1, name)?,
        };
        match there {
            Some(Node::Dir(dir)) => tree::top(pages, &dir.tree),
            Some(other) if !is_made => {
                Err(VaultError::NotADirectory { path: path.clone(), kind: other.kind() })
            }
            Some(_) | None => {
                let mtime = match self.manner {
                    Manner::Exact => FileTime::default(),
                    Manner::Natural(now) => now,
                };
                Ok((DirMeta { mtime, ..DirMeta::default() }, Body::Leaf(Vec::new())))
            }
        }
    }
}

/// Reuses a page that a lookup has already read, for the last time.
pub(crate) struct Taken<'a>(pub(crate) &'a CachedPages<'a>);

impl Pages for Taken<'_> {
    fn page(&self, id: &TreeId) -> Result<Page> {
        self.0.take(id)
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
