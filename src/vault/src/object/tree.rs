//! Reads trees: pages verified against their digests, lookups, listings.

use std::cell::RefCell;
use std::collections::HashMap;

use avfs_types::ids::{DigestKind, TreeId};
use avfs_types::path::TreePath;

use super::page::{Body, DirMeta, DirRef, Entry, Node, Page, PageRef};
use crate::backend::Reader;
use crate::meter::Meter;
use crate::{Result, VaultError};

/// The maximum number of entries of one version. A few pages that are shared repeatedly can represent any number of
/// paths, and every walk visits each path.
pub const ENTRIES_MAX: u64 = 1 << 25;

/// A source of pages: the store, or pages not stored yet in front of the store.
pub trait Pages {
    /// The decoded page. Fails if it is missing or does not match its digest.
    fn page(&self, id: &TreeId) -> Result<Page>;

    /// Fails if the operation that reads the pages was stopped. Walks call this for each entry.
    fn require_going(&self) -> Result<()> {
        Ok(())
    }
}

impl Pages for &dyn Reader {
    fn page(&self, id: &TreeId) -> Result<Page> {
        let data =
            self.tree(id)?.ok_or_else(|| VaultError::MissingObject { kind: "tree", id: id.short() })?;
        check_page(id, &data)
    }
}

/// Pages for walks that end when a meter is stopped.
pub struct StoppablePages<'a> {
    source: &'a dyn Pages,
    meter: &'a Meter,
}

impl<'a> StoppablePages<'a> {
    /// The same pages.
    #[must_use]
    pub fn new(source: &'a dyn Pages, meter: &'a Meter) -> Self {
        Self { source, meter }
    }
}

impl Pages for StoppablePages<'_> {
    fn page(&self, id: &TreeId) -> Result<Page> {
        self.source.page(id)
    }

    fn require_going(&self) -> Result<()> {
        self.meter.require_going()
    }
}

/// Maximum pages in a [`CachedPages`], about 20 MB.
const CACHED_PAGES_MAX: usize = 1024;

/// Keeps the pages it reads, for lookups of paths that share directories.
pub struct CachedPages<'a> {
    source: &'a dyn Pages,
    pages: RefCell<HashMap<TreeId, Page>>,
}

impl<'a> CachedPages<'a> {
    /// An empty cache in front of `source`.
    #[must_use]
    pub fn new(source: &'a dyn Pages) -> Self {
        Self { source, pages: RefCell::default() }
    }

    /// The source of the pages, for reading without keeping them.
    #[must_use]
    pub fn source(&self) -> &'a dyn Pages {
        self.source
    }

    /// Takes a page out of the cache, or reads it.
    pub(crate) fn take(&self, id: &TreeId) -> Result<Page> {
        let cached = self.pages.borrow_mut().remove(id);
        cached.map_or_else(|| self.source.page(id), Ok)
    }
}

impl Pages for CachedPages<'_> {
    fn page(&self, id: &TreeId) -> Result<Page> {
        if let Some(page) = self.pages.borrow().get(id) {
            return Ok(page.clone());
        }
        let page = self.source.page(id)?;
        if self.pages.borrow().len() >= CACHED_PAGES_MAX {
            self.pages.borrow_mut().clear();
        }
        self.pages.borrow_mut().insert(*id, page.clone());
        Ok(page)
    }

    fn require_going(&self) -> Result<()> {
        self.source.require_going()
    }
}

/// Decodes a page after verifying its digest.
pub(crate) fn check_page(id: &TreeId, data: &[u8]) -> Result<Page> {
    if DigestKind::Tree.digest(data) != id.0 {
        let detail = "its digest does not match".to_owned();
        return Err(VaultError::DamagedObject { kind: "tree", id: id.short(), detail });
    }
    Page::decode(data).map_err(|error| VaultError::damaged("tree", &id.short(), &error))
}

/// A complete directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dir {
    pub(crate) meta: DirMeta,
    /// The entries, sorted by name.
    pub entries: Vec<Entry>,
}

impl Dir {
    pub(crate) fn entry(&self, name: &[u8]) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        found.ok().map(|at| &self.entries[at])
    }
}

/// The top page of a directory.
pub fn top(pages: &dyn Pages, id: &TreeId) -> Result<(DirMeta, Body)> {
    let page = pages.page(id)?;
    let meta = page.meta.ok_or_else(|| VaultError::DamagedObject {
        kind: "tree",
        id: id.short(),
        detail: "expected the top page of a directory, found another page".to_owned(),
    })?;
    Ok((meta, page.body))
}

/// The top page of a directory found by a walk. No walk visits more entries than its root counts: the number of
/// entries under a directory must match its reference.
pub(crate) fn open(pages: &dyn Pages, dir: &DirRef, at: &TreePath) -> Result<(DirMeta, Body)> {
    if at.is_too_deep() {
        return Err(VaultError::TooDeep { path: at.shortened() });
    }
    let (meta, body) = top(pages, &dir.tree)?;
    if body.totals().entries == dir.totals.entries {
        return Ok((meta, body));
    }
    let detail = "its number of entries does not match its parent".to_owned();
    Err(VaultError::DamagedObject { kind: "tree", id: dir.tree.short(), detail })
}

/// The child of a page of level `above`; fails if it is not a page of the next level with the expected first name.
pub(crate) fn beneath(pages: &dyn Pages, above: u8, child: &PageRef) -> Result<Body> {
    let page = pages.page(&child.tree)?;
    let fits = page.meta.is_none()
        && page.body.level() + 1 == above
        && page.body.first() == child.first
        && page.body.totals().entries == child.totals.entries;
    if fits {
        return Ok(page.body);
    }
    let detail = "it does not match the reference in its parent page".to_owned();
    Err(VaultError::DamagedObject { kind: "tree", id: child.tree.short(), detail })
}

/// A directory with all its entries, sorted.
pub(crate) fn dir(pages: &dyn Pages, id: &TreeId) -> Result<Dir> {
    whole(pages, top(pages, id)?, &mut Err)
}

/// A directory with all its entries. Entries of unreadable pages are omitted if `tolerate` allows it.
pub fn open_whole(
    pages: &dyn Pages,
    dir: &DirRef,
    at: &TreePath,
    tolerate: &mut dyn FnMut(VaultError) -> Result<()>,
) -> Result<Dir> {
    whole(pages, open(pages, dir, at)?, tolerate)
}

/// The same for a directory whose top page is known.
pub(crate) fn whole(
    pages: &dyn Pages,
    (meta, body): (DirMeta, Body),
    tolerate: &mut dyn FnMut(VaultError) -> Result<()>,
) -> Result<Dir> {
    let mut entries = Vec::new();
    let mut waiting = vec![body];
    while let Some(body) = waiting.pop() {
        pages.require_going()?;
        match body {
            Body::Leaf(mut leaf) => entries.append(&mut leaf),
            Body::Inner { level, pages: children } => {
                for child in children.iter().rev() {
                    match beneath(pages, level, child) {
                        Ok(body) => waiting.push(body),
                        Err(error) => tolerate(error)?,
                    }
                }
            }
        }
    }
    Ok(Dir { meta, entries })
}

/// The entries of a directory, sorted, starting with a name. Reads a page when it is needed.
pub(crate) struct Entries<'a> {
    pages: &'a dyn Pages,
    leaf: std::vec::IntoIter<Entry>,
    /// The pages after the leaf, for each level, with the level above them; the nearest last.
    after: Vec<(u8, std::vec::IntoIter<PageRef>)>,
}

impl<'a> Entries<'a> {
    /// No entries.
    pub fn none(pages: &'a dyn Pages) -> Self {
        Self { pages, leaf: Vec::new().into_iter(), after: Vec::new() }
    }

    /// The entries of the directory with this top page, starting with `first`.
    pub fn from(pages: &'a dyn Pages, mut body: Body, first: &[u8]) -> Result<Self> {
        let mut entries = Self::none(pages);
        loop {
            match body {
                Body::Leaf(mut leaf) => {
                    leaf.drain(..leaf.partition_point(|entry| entry.name.as_slice() < first));
                    entries.leaf = leaf.into_iter();
                    return Ok(entries);
                }
                Body::Inner { level, pages: mut children } => {
                    let after = children.partition_point(|child| child.first.as_slice() <= first);
                    children.drain(..after.saturating_sub(1));
                    let mut children = children.into_iter();
                    let Some(child) = children.next() else { return Ok(entries) };
                    entries.after.push((level, children));
                    body = beneath(pages, level, &child)?;
                }
            }
        }
    }

    /// The next entry, which is not consumed.
    pub fn peek(&mut self) -> Result<Option<&Entry>> {
        while self.leaf.as_slice().is_empty()
            && let Some((level, children)) = self.after.last_mut()
        {
            let level = *level;
            match children.next() {
                None => drop(self.after.pop()),
                Some(child) => match beneath(self.pages, level, &child)? {
                    Body::Leaf(leaf) => self.leaf = leaf.into_iter(),
                    Body::Inner { level, pages } => self.after.push((level, pages.into_iter())),
                },
            }
        }
        Ok(self.leaf.as_slice().first())
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.peek() {
            Ok(_) => self.leaf.next().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}

/// One entry of a directory.
pub fn entry(pages: &dyn Pages, dir: &TreeId, name: &[u8]) -> Result<Option<Node>> {
    entry_in(pages, &top(pages, dir)?.1, name)
}

/// Like [`entry`], for a directory whose top page is already read.
pub(crate) fn entry_in(pages: &dyn Pages, body: &Body, name: &[u8]) -> Result<Option<Node>> {
    match body {
        Body::Leaf(entries) => {
            let found = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
            Ok(found.ok().map(|at| entries[at].node.clone()))
        }
        Body::Inner { level, pages: children } => {
            let after = children.partition_point(|child| child.first.as_slice() <= name);
            match after.checked_sub(1) {
                None => Ok(None),
                // The recursion is shallow: a directory has only a few levels of pages.
                Some(at) => entry_in(pages, &beneath(pages, *level, &children[at])?, name),
            }
        }
    }
}

/// The entry at a path under a root directory; symlinks are not followed.
pub fn lookup(pages: &dyn Pages, root: &DirRef, path: &TreePath) -> Result<Option<Node>> {
    let mut node = Node::Dir(*root);
    for name in path.components() {
        let Node::Dir(dir) = &node else { return Ok(None) };
        match entry(pages, &dir.tree, name)? {
            Some(found) => node = found,
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}

/// Like [`lookup`], but fails if the path does not exist.
pub fn require(pages: &dyn Pages, root: &DirRef, path: &TreePath) -> Result<Node> {
    lookup(pages, root, path)?.ok_or_else(|| VaultError::NoPath { path: path.clone() })
}

/// Everything under a directory, parents before children, ordered by name. Not recursive, so the depth of the tree
/// is not limited by the stack.
pub struct Walk<'a> {
    pages: &'a dyn Pages,
    open: Vec<(TreePath, Entries<'a>)>,
    descend: Option<(TreePath, DirRef)>,
}

/// An entry visited by a walk.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The path from the root of the version.
    pub path: TreePath,
    /// The entry.
    pub node: Node,
}

impl<'a> Walk<'a> {
    /// Walks everything under `root`, depth first and by name. Paths begin with `at`.
    #[must_use]
    pub fn new(pages: &'a dyn Pages, root: &DirRef, at: &TreePath) -> Self {
        Self { pages, open: Vec::new(), descend: Some((at.clone(), *root)) }
    }

    /// Skips the contents of the last directory returned.
    pub fn skip_dir(&mut self) {
        self.descend = None;
    }

    fn step(&mut self) -> Result<Option<Walked>> {
        self.pages.require_going()?;
        if let Some((path, dir)) = self.descend.take() {
            let (_, body) = open(self.pages, &dir, &path)?;
            self.open.push((path, Entries::from(self.pages, body, b"")?));
        }
        while let Some((path, entries)) = self.open.last_mut() {
            if let Some(entry) = entries.next().transpose()? {
                let path = path.join(&entry.name);
                if let Node::Dir(dir) = &entry.node {
                    self.descend = Some((path.clone(), *dir));
                }
                return Ok(Some(Walked { path, node: entry.node }));
            }
            self.open.pop();
        }
        Ok(None)
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Walked>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
