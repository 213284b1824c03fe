//! The differences between two trees; equal subtrees and equal pages are never opened.

use std::collections::HashMap;

use avfs_types::path::TreePath;

use super::expansion::{Expansion, Reserved, Stored, Version};
use super::page::{Body, DirMeta, DirRef, Entry, FileContent, Node, PageRef};
use super::tree;
use super::tree::Pages;
use crate::{Result, set_ids};

/// One path that differs. A directory's own metadata is stored next to its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path; for a rename the new one.
    pub path: TreePath,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The entry before; `None` if the path is new.
    pub before: Option<Side>,
    /// The entry after; `None` if the path was deleted.
    pub after: Option<Side>,
}

/// An entry on one side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The entry.
    pub node: Node,
    /// The metadata of the directory itself; `None` for anything else.
    pub dir_meta: Option<DirMeta>,
}

impl Change {
    /// Whether a file written to the host differs only by setuid and setgid bits that were stripped.
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        match (self.before.as_ref().map(|side| &side.node), self.after.as_ref().map(|side| &side.node)) {
            (Some(Node::File(version)), Some(Node::File(host))) => {
                let same =
                    (version.content, version.xattrs, version.link) == (host.content, host.xattrs, host.link);
                same && set_ids::has_mode(host.mode, version.mode)
            }
            (Some(_) | None, _) => false,
        }
    }
}

/// The kind of change of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was added.
    Added,
    /// It was deleted.
    Deleted,
    /// Its content differs.
    Modified,
    /// A file that was at another path before, with the same content.
    Renamed {
        /// The previous path.
        from: TreePath,
    },
    /// Mode, extended attributes or hard links changed, but not the content.
    Mode,
    /// The type changed: a file became a directory, a symlink became a file, and so on.
    Type,
    /// Only the modification time changed.
    Time,
}

/// Every change from one root to another, sorted by path.
pub fn diff(pages: &dyn Pages, before: &DirRef, after: &DirRef) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    collect(pages, before, after, &mut Expansion::default(), &mut |change| changes.push(change))?;
    Ok(in_order(changes))
}

/// Two directories of the same path that are still to be compared.
struct Pair {
    path: TreePath,
    before: Option<DirRef>,
    after: Option<DirRef>,
    reserved: Reserved,
}

/// Passes every change to `keep` in the order found. The memory for them is limited by `expansion`.
pub fn collect(
    pages: &dyn Pages,
    before: &DirRef,
    after: &DirRef,
    expansion: &mut Expansion,
    keep: &mut dyn FnMut(Change),
) -> Result<()> {
    let (before, after, reserved) = (Some(*before), Some(*after), Reserved::default());
    let mut pairs = vec![Pair { path: TreePath::root(), before, after, reserved }];
    while let Some(Pair { path, before: a, after: b, reserved }) = pairs.pop() {
        expansion.release(reserved);
        if a.map(|dir| dir.tree) == b.map(|dir| dir.tree) {
            continue;
        }
        let open = |dir: Option<DirRef>| dir.map(|dir| tree::open(pages, &dir, &path)).transpose();
        let (old, new) = (open(a)?, open(b)?);
        // The change of the directory itself was already counted with its entry.
        if let Some(change) = dir_change(&path, (a, &old), (b, &new)) {
            keep(change);
        }
        let mut cursor = |version, dir: Option<DirRef>, top: Option<(DirMeta, Body)>| {
            let mut cursor = Cursor { pages, version, items: Vec::new() };
            if let (Some(dir), Some((_, body))) = (dir, top) {
                cursor.push(body, expansion.open(version, &dir.tree));
            }
            cursor
        };
        let (old, new) = (cursor(Version::Before, a, old), cursor(Version::After, b, new));
        for Differing { old, new, stored } in differing(old, new, expansion)? {
            let Some(name) = old.as_ref().or(new.as_ref()).map(|entry| entry.name.clone()) else { continue };
            let path = path.join(&name);
            expansion.keep(&path, stored)?;
            let (old, new) = (old.map(|entry| entry.node), new.map(|entry| entry.node));
            let dir_of = |node: &Option<Node>| match node {
                Some(Node::Dir(dir)) => Some(*dir),
                Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
            };
            let (old_dir, new_dir) = (dir_of(&old), dir_of(&new));
            let other = |node: Option<Node>| node.filter(|node| !matches!(node, Node::Dir(_)));
            let (old, new) = (other(old), other(new));
            if let Some(change) = leaf_change(&path, old, new, old_dir.is_some() || new_dir.is_some()) {
                keep(change);
            }
            let reserved = match (old_dir, new_dir) {
                (None, None) => continue,
                (Some(_), Some(_)) => Reserved::default(),
                (Some(dir), None) => expansion.announce(Version::Before, &dir, &path)?,
                (None, Some(dir)) => expansion.announce(Version::After, &dir, &path)?,
            };
            pairs.push(Pair { path, before: old_dir, after: new_dir, reserved });
        }
    }
    Ok(())
}

/// Sorts changes by path; a directory replaced by a file, or the reverse, becomes one change of type.
fn in_order(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes.dedup_by(|change, last| {
        let same = last.path == change.path;
        if same {
            last.kind = ChangeKind::Type;
            last.before = last.before.take().or(change.before.take());
            last.after = last.after.take().or(change.after.take());
        }
        same
    });
    changes
}

fn dir_change(
    path: &TreePath,
    (a, old): (Option<DirRef>, &Option<(DirMeta, Body)>),
    (b, new): (Option<DirRef>, &Option<(DirMeta, Body)>),
) -> Option<Change> {
    let side = |dir: Option<DirRef>, top: &Option<(DirMeta, Body)>| {
        dir.map(|dir| Side { node: Node::Dir(dir), dir_meta: top.as_ref().map(|(meta, _)| meta.clone()) })
    };
    let kind = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Deleted,
        (Some((old, _)), Some((new, _))) if (old.mode, old.xattrs) != (new.mode, new.xattrs) => {
            ChangeKind::Mode
        }
        (Some((old, _)), Some((new, _))) if old.mtime != new.mtime => ChangeKind::Time,
        (Some(_), Some(_)) => return None,
    };
    Some(Change { path: path.clone(), kind, before: side(a, old), after: side(b, new) })
}

fn leaf_change(path: &TreePath, old: Option<Node>, new: Option<Node>, with_dir: bool) -> Option<Change> {
    let kind = match (&old, &new) {
        (None, None) => return None,
        // The other half of this change is a directory, which is found when that directory is opened.
        (None, Some(_)) if with_dir => ChangeKind::Type,
        (Some(_), None) if with_dir => ChangeKind::Type,
        (None, Some(_)) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Deleted,
        (Some(old), Some(new)) => compare(old, new)?,
    };
    let side = |node: Option<Node>| node.map(|node| Side { node, dir_meta: None });
    Some(Change { path: path.clone(), kind, before: side(old), after: side(new) })
}

/// How two nodes of the same name differ.
fn compare(old: &Node, new: &Node) -> Option<ChangeKind> {
    let same_times = |same: bool| if same { None } else { Some(ChangeKind::Time) };
    match (old, new) {
        (Node::File(a), Node::File(b)) => {
            if a.content.id() != b.content.id() {
                Some(ChangeKind::Modified)
            } else if (a.mode, a.xattrs, a.link) != (b.mode, b.xattrs, b.link) {
                Some(ChangeKind::Mode)
            } else {
                same_times(a.mtime == b.mtime)
            }
        }
        (Node::Symlink(a), Node::Symlink(b)) => {
            if a.target != b.target {
                Some(ChangeKind::Modified)
            } else if a.link != b.link {
                Some(ChangeKind::Mode)
            } else {
                same_times(a.mtime == b.mtime)
            }
        }
        (Node::Fifo(a), Node::Fifo(b)) => {
            if (a.mode, a.link) != (b.mode, b.link) {
                Some(ChangeKind::Mode)
            } else {
                same_times(a.mtime == b.mtime)
            }
        }
        (Node::File(_) | Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_), _) => Some(ChangeKind::Type),
    }
}

/// A page not opened yet, or an entry.
enum Item {
    Page { level: u8, page: PageRef },
    Entry(Entry, Stored),
}

impl Item {
    fn name(&self) -> &[u8] {
        match self {
            Self::Page { page, .. } => &page.first,
            Self::Entry(entry, _) => &entry.name,
        }
    }
}

/// The rest of one side, the next item last.
struct Cursor<'a> {
    pages: &'a dyn Pages,
    version: Version,
    items: Vec<Item>,
}

impl Cursor<'_> {
    fn push(&mut self, body: Body, stored: Stored) {
        match body {
            Body::Leaf(entries) => {
                self.items.extend(entries.into_iter().rev().map(|entry| Item::Entry(entry, stored)));
            }
            Body::Inner { level, pages } => {
                let items = pages.into_iter().rev().map(|page| Item::Page { level: level - 1, page });
                self.items.extend(items);
            }
        }
    }

    /// Replaces the next page with its contents.
    fn open(&mut self, expansion: &mut Expansion) -> Result<()> {
        match self.items.pop() {
            Some(Item::Page { level, page }) => {
                let body = tree::beneath(self.pages, level + 1, &page)?;
                self.push(body, expansion.open(self.version, &page.tree));
            }
            Some(entry @ Item::Entry(..)) => self.items.push(entry),
            None => {}
        }
        Ok(())
    }

    fn take(&mut self) -> Option<(Entry, Stored)> {
        match self.items.pop() {
            Some(Item::Entry(entry, stored)) => Some((entry, stored)),
            Some(page @ Item::Page { .. }) => {
                self.items.push(page);
                None
            }
            None => None,
        }
    }
}

/// Entries of the same name that differ.
struct Differing {
    old: Option<Entry>,
    new: Option<Entry>,
    stored: Stored,
}

impl Differing {
    fn of(old: Option<(Entry, Stored)>, new: Option<(Entry, Stored)>) -> Self {
        let is_here = |side: &Option<(Entry, Stored)>| matches!(side, Some((_, Stored::Here)));
        let stored = if is_here(&old) || is_here(&new) { Stored::Here } else { Stored::Elsewhere };
        Self { old: old.map(|side| side.0), new: new.map(|side| side.0), stored }
    }
}

/// The entries of two directories that differ, ordered by name.
fn differing(mut a: Cursor<'_>, mut b: Cursor<'_>, expansion: &mut Expansion) -> Result<Vec<Differing>> {
    let mut found = Vec::new();
    loop {
        match (a.items.last(), b.items.last()) {
            (None, None) => return Ok(found),
            (Some(Item::Page { .. }), None) => a.open(expansion)?,
            (None, Some(Item::Page { .. })) => b.open(expansion)?,
            (Some(Item::Entry(..)), None) => found.push(Differing::of(a.take(), None)),
            (None, Some(Item::Entry(..))) => found.push(Differing::of(None, b.take())),
            (Some(Item::Page { page: x, .. }), Some(Item::Page { page: y, .. })) if x.tree == y.tree => {
                a.items.pop();
                b.items.pop();
            }
            (Some(Item::Page { level: x, .. }), Some(Item::Page { level: y, .. })) if x > y => {
                a.open(expansion)?;
            }
            (Some(Item::Page { level: x, .. }), Some(Item::Page { level: y, .. })) if x < y => {
                b.open(expansion)?;
            }
            (Some(left @ Item::Page { .. }), Some(right @ Item::Page { .. })) => {
                if left.name() <= right.name() {
                    a.open(expansion)?;
                } else {
                    b.open(expansion)?;
                }
            }
            (Some(left @ Item::Page { .. }), Some(Item::Entry(entry, _))) => {
                if entry.name.as_slice() < left.name() {
                    found.push(Differing::of(None, b.take()));
                } else {
                    a.open(expansion)?;
                }
            }
            (Some(Item::Entry(entry, _)), Some(right @ Item::Page { .. })) => {
                if entry.name.as_slice() < right.name() {
                    found.push(Differing::of(a.take(), None));
                } else {
                    b.open(expansion)?;
                }
            }
            (Some(Item::Entry(x, _)), Some(Item::Entry(y, _))) => match x.name.cmp(&y.name) {
                std::cmp::Ordering::Less => found.push(Differing::of(a.take(), None)),
                std::cmp::Ordering::Greater => found.push(Differing::of(None, b.take())),
                std::cmp::Ordering::Equal => {
                    let same = x == y;
                    let pair = Differing::of(a.take(), b.take());
                    if !same {
                        found.push(pair);
                    }
                }
            },
        }
    }
}

/// Pairs deleted files with added files of the same content; each is used once.
#[must_use]
pub fn find_renames(changes: Vec<Change>) -> Vec<Change> {
    let file = |side: &Option<Side>| match side {
        Some(Side { node: Node::File(file), .. }) if file.size > 0 => Some((file.content, file.size)),
        Some(_) | None => None,
    };
    let mut gone: HashMap<(FileContent, u64), Vec<usize>> = HashMap::new();
    for (at, change) in changes.iter().enumerate().rev() {
        if change.kind == ChangeKind::Deleted
            && let Some(key) = file(&change.before)
        {
            gone.entry(key).or_default().push(at);
        }
    }
    let mut from: HashMap<usize, usize> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        if change.kind == ChangeKind::Added
            && let Some(key) = file(&change.after)
            && let Some(old) = gone.get_mut(&key).and_then(Vec::pop)
        {
            from.insert(at, old);
        }
    }
    let used: std::collections::HashSet<usize> = from.values().copied().collect();
    let mut slots: Vec<Option<Change>> = changes.into_iter().map(Some).collect();
    let mut found = Vec::with_capacity(slots.len());
    for at in 0..slots.len() {
        if used.contains(&at) {
            continue;
        }
        let old = from.get(&at).and_then(|old| slots[*old].take());
        let Some(mut change) = slots[at].take() else { continue };
        if let Some(old) = old {
            change.kind = ChangeKind::Renamed { from: old.path };
            change.before = old.before;
        }
        found.push(change);
    }
    found
}
