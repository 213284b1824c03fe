//! The differences between two trees; equal subtrees and equal pages are never opened.

use std::collections::VecDeque;

use avfs_types::path::TreePath;

use super::expansion::{Expansion, Reserved, Stored, Version};
use super::page::{Body, DirMeta, DirRef, Entry, Node, PageRef};
use super::tree;
use super::tree::Pages;
use crate::{Result, set_ids};

/// Maximum entries of a directory that are read in advance.
const LOOK_AHEAD_MAX: usize = 32;

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
    /// The change of a path from one state to another; `None` if they are equal. Entries of directories are not
    /// compared.
    #[must_use]
    pub fn between(path: TreePath, before: Option<Side>, after: Option<Side>) -> Option<Self> {
        let kind = match (&before, &after) {
            (None, None) => return None,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some(old), Some(new)) => match (&old.node, &new.node) {
                (Node::Dir(_), Node::Dir(_)) => compare_dirs(old.dir_meta.as_ref(), new.dir_meta.as_ref())?,
                (old, new) => compare(old, new)?,
            },
        };
        Some(Self { path, kind, before, after })
    }

    /// The path of the entry before the change.
    #[must_use]
    pub fn path_before(&self) -> &TreePath {
        match &self.kind {
            ChangeKind::Renamed { from } => from,
            ChangeKind::Added
            | ChangeKind::Deleted
            | ChangeKind::Modified
            | ChangeKind::Mode
            | ChangeKind::Type
            | ChangeKind::Time => &self.path,
        }
    }

    /// Whether it is a new directory, or one whose own metadata changed.
    #[must_use]
    pub fn is_of_dir(&self) -> bool {
        let is_dir = |side: &Option<Side>| matches!(side, Some(Side { node: Node::Dir(_), .. }));
        is_dir(&self.after) && (self.before.is_none() || is_dir(&self.before))
    }

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

/// Every change from one root to another, sorted by path. Holds all of them: see [`Changes`] for a list that does
/// not.
///
/// [`Changes`]: crate::changes::Changes
pub fn diff(pages: &dyn Pages, before: &DirRef, after: &DirRef) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    collect(pages, before, after, &mut Expansion::default(), &mut |change| changes.push(change))?;
    Ok(changes)
}

/// Passes every change to `keep`, sorted by path. The walk itself holds a few pages for each level of directories.
/// `expansion` limits the number of changes in shared directories.
pub fn collect(
    pages: &dyn Pages,
    before: &DirRef,
    after: &DirRef,
    expansion: &mut Expansion,
    keep: &mut dyn FnMut(Change),
) -> Result<()> {
    if before.tree == after.tree {
        return Ok(());
    }
    let root = Pair::new(Vec::new(), Some(*before), Some(*after), Reserved::default());
    let opened = root.open(pages, &TreePath::root())?;
    if let Some(change) = entry_change(TreePath::root(), (None, None), (&root, &opened)) {
        keep(change);
    }
    // The path of the last level.
    let mut at = TreePath::root();
    let mut levels = vec![Level::new(pages, root, opened, expansion)];
    while let Some(level) = levels.last_mut() {
        pages.require_going()?;
        if level.ahead.is_empty() {
            level.look_ahead(&at, expansion)?;
        }
        let next = level.ahead.front().map(|entries| entries.name.as_slice());
        if let Some(pair) = level.pending.pop_if(|pair| pair.is_before(next)) {
            at = at.join(&pair.name);
            let opened = match level.opened.take() {
                Some(opened) => opened,
                None => pair.open(pages, &at)?,
            };
            levels.push(Level::new(pages, pair, opened, expansion));
            continue;
        }
        let Some(Ahead { name, old, new, reserved }) = level.ahead.pop_front() else {
            levels.pop();
            at = at.split().map(|(above, _)| above).unwrap_or_default();
            continue;
        };
        let path = at.join(&name);
        let ((old, old_dir), (new, new_dir)) = (without_dir(old), without_dir(new));
        let pair = Pair::new(name, old_dir, new_dir, reserved);
        // The metadata of a directory is stored in the directory.
        let opened = pair.open(pages, &path)?;
        if let Some(change) = entry_change(path, (old, new), (&pair, &opened)) {
            keep(change);
        }
        if old_dir.map(|dir| dir.tree) != new_dir.map(|dir| dir.tree) {
            // The pages of pairs that wait longer are read again, so that few are held.
            level.opened = Some(opened);
            level.pending.push(pair);
        }
    }
    Ok(())
}

type Opened = [Option<(DirMeta, Body)>; 2];

/// Two directories of the same name whose entries are still to be compared.
struct Pair {
    name: Vec<u8>,
    before: Option<DirRef>,
    after: Option<DirRef>,
    reserved: Reserved,
}

impl Pair {
    const fn new(name: Vec<u8>, before: Option<DirRef>, after: Option<DirRef>, reserved: Reserved) -> Self {
        Self { name, before, after, reserved }
    }

    fn open(&self, pages: &dyn Pages, path: &TreePath) -> Result<Opened> {
        let open = |dir: Option<DirRef>| dir.map(|dir| tree::open(pages, &dir, path)).transpose();
        if self.before.map(|dir| dir.tree) == self.after.map(|dir| dir.tree) {
            return Ok([None, None]);
        }
        Ok([open(self.before)?, open(self.after)?])
    }

    /// True if the paths in the directories sort before the entry `next` beside them: `a/x` sorts after `a-b`.
    fn is_before(&self, next: Option<&[u8]>) -> bool {
        let Some(rest) = next.and_then(|next| next.strip_prefix(self.name.as_slice())) else { return true };
        rest.first().is_none_or(|byte| *byte > b'/')
    }
}

/// Entries of the same name that differ.
struct Ahead {
    name: Vec<u8>,
    old: Option<Node>,
    new: Option<Node>,
    reserved: Reserved,
}

/// One level of directories on the way to the current path.
struct Level<'p> {
    old: Cursor<'p>,
    new: Cursor<'p>,
    /// The next entries that differ.
    ahead: VecDeque<Ahead>,
    /// Directories whose entries come later. Each name starts with the one before it, so the last comes first.
    pending: Vec<Pair>,
    /// The top pages of the last pair.
    opened: Option<Opened>,
}

impl<'p> Level<'p> {
    fn new(pages: &'p dyn Pages, pair: Pair, opened: Opened, expansion: &mut Expansion) -> Self {
        expansion.release(pair.reserved);
        let mut cursor = |version, dir: Option<DirRef>, top: Option<(DirMeta, Body)>| {
            let mut cursor = Cursor { pages, version, items: Vec::new() };
            if let (Some(dir), Some((_, body))) = (dir, top) {
                cursor.push(body, expansion.open(version, &dir.tree));
            }
            cursor
        };
        let [old, new] = opened;
        let (old, new) = (cursor(Version::Before, pair.before, old), cursor(Version::After, pair.after, new));
        Self { old, new, ahead: VecDeque::new(), pending: Vec::new(), opened: None }
    }

    /// Reads some entries in advance, so that a directory that is shared too often is found before the changes in
    /// it are passed on.
    fn look_ahead(&mut self, at: &TreePath, expansion: &mut Expansion) -> Result<()> {
        while self.ahead.len() < LOOK_AHEAD_MAX
            && let Some(Differing { old, new, stored }) = differing(&mut self.old, &mut self.new, expansion)?
        {
            let Some(name) = old.as_ref().or(new.as_ref()).map(|entry| entry.name.clone()) else { continue };
            let path = at.join(&name);
            expansion.keep(&path, stored)?;
            let (old, new) = (old.map(|entry| entry.node), new.map(|entry| entry.node));
            let reserved = match (&old, &new) {
                (Some(Node::Dir(_)), Some(Node::Dir(_))) => Reserved::default(),
                (Some(Node::Dir(dir)), _) => expansion.announce(Version::Before, dir, &path)?,
                (_, Some(Node::Dir(dir))) => expansion.announce(Version::After, dir, &path)?,
                (_, _) => Reserved::default(),
            };
            self.ahead.push_back(Ahead { name, old, new, reserved });
        }
        Ok(())
    }
}

/// Splits a node into one that is not a directory, and a directory.
fn without_dir(node: Option<Node>) -> (Option<Node>, Option<DirRef>) {
    match node {
        Some(Node::Dir(dir)) => (None, Some(dir)),
        Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => (node, None),
    }
}

/// The change of an entry itself. A directory replaced by a file, or the reverse, is one change of type.
fn entry_change(
    path: TreePath,
    (old, new): (Option<Node>, Option<Node>),
    (pair, [old_top, new_top]): (&Pair, &Opened),
) -> Option<Change> {
    let side = |leaf: Option<Node>, dir: Option<DirRef>, top: &Option<(DirMeta, Body)>| match leaf {
        Some(node) => Some(Side { node, dir_meta: None }),
        None => {
            dir.map(|dir| Side { node: Node::Dir(dir), dir_meta: top.as_ref().map(|(meta, _)| meta.clone()) })
        }
    };
    Change::between(path, side(old, pair.before, old_top), side(new, pair.after, new_top))
}

/// How the metadata of a directory differs.
fn compare_dirs(old: Option<&DirMeta>, new: Option<&DirMeta>) -> Option<ChangeKind> {
    let shown = |meta: Option<&DirMeta>| meta.map(|meta| (meta.mode, meta.xattrs));
    let mtime = |meta: Option<&DirMeta>| meta.map(|meta| meta.mtime);
    if shown(old) != shown(new) {
        Some(ChangeKind::Mode)
    } else if mtime(old) != mtime(new) {
        Some(ChangeKind::Time)
    } else {
        None
    }
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

/// The next entries of two directories that differ, in the order of their names.
fn differing(a: &mut Cursor<'_>, b: &mut Cursor<'_>, expansion: &mut Expansion) -> Result<Option<Differing>> {
    loop {
        match (a.items.last(), b.items.last()) {
            (None, None) => return Ok(None),
            (Some(Item::Page { .. }), None) => a.open(expansion)?,
            (None, Some(Item::Page { .. })) => b.open(expansion)?,
            (Some(Item::Entry(..)), None) => return Ok(Some(Differing::of(a.take(), None))),
            (None, Some(Item::Entry(..))) => return Ok(Some(Differing::of(None, b.take()))),
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
                    return Ok(Some(Differing::of(None, b.take())));
                } else {
                    a.open(expansion)?;
                }
            }
            (Some(Item::Entry(entry, _)), Some(right @ Item::Page { .. })) => {
                if entry.name.as_slice() < right.name() {
                    return Ok(Some(Differing::of(a.take(), None)));
                } else {
                    b.open(expansion)?;
                }
            }
            (Some(Item::Entry(x, _)), Some(Item::Entry(y, _))) => match x.name.cmp(&y.name) {
                std::cmp::Ordering::Less => return Ok(Some(Differing::of(a.take(), None))),
                std::cmp::Ordering::Greater => return Ok(Some(Differing::of(None, b.take()))),
                std::cmp::Ordering::Equal => {
                    let same = x == y;
                    let pair = Differing::of(a.take(), b.take());
                    if !same {
                        return Ok(Some(pair));
                    }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use avfs_types::clock::FileTime;
    use avfs_types::ids::TreeId;

    use super::super::page::{FifoNode, Page, SymlinkNode};
    use super::super::pages::{NewPages, build};
    use super::*;

    struct Map(HashMap<TreeId, Vec<u8>>);

    impl Pages for Map {
        fn page(&self, id: &TreeId) -> Result<Page> {
            tree::check_page(id, &self.0[id])
        }
    }

    /// What a tree has at each path, with a number that decides about metadata. `None` for a directory.
    type Paths = BTreeMap<TreePath, (Option<bool>, u8)>;

    /// Paths whose names sort around a slash, each a directory, a symlink or a fifo.
    fn paths() -> impl Strategy<Value = Paths> {
        let name = prop::sample::select(vec!["a", "a-", "a--", "a-b", "a.", "a0", "b", "b b", "c"]);
        let path = proptest::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
        let what = (proptest::option::of(any::<bool>()), 0..4_u8);
        proptest::collection::vec((path, what), 0..40).prop_map(|found| {
            let mut paths = Paths::from([(TreePath::root(), (None, 0))]);
            for (path, what) in found {
                let path = TreePath::parse(path.as_bytes()).unwrap();
                // A leaf has nothing beneath it, and everything above a path is a directory.
                let is_leaf = |above: &TreePath| paths.get(above).is_some_and(|found| found.0.is_some());
                if path.ancestors().any(|above| is_leaf(&above)) {
                    continue;
                }
                let has_beneath = paths.keys().any(|other| *other != path && path.contains(other));
                for above in path.ancestors() {
                    paths.entry(above).or_insert((None, what.1));
                }
                paths.insert(path, if has_beneath { (None, what.1) } else { what });
            }
            paths
        })
    }

    fn meta(number: u8) -> DirMeta {
        let mtime = FileTime { seconds: i64::from(number % 2), nanos: 0 };
        DirMeta { mode: u32::from(number / 2), mtime, ..DirMeta::default() }
    }

    /// Builds a directory, and adds the sides of all paths in it to `sides`.
    fn dir(at: &TreePath, paths: &Paths, new: &mut NewPages, sides: &mut BTreeMap<TreePath, Side>) -> DirRef {
        let children = paths.iter().filter(|(path, _)| path.split().is_some_and(|(above, _)| above == *at));
        let mut entries = Vec::new();
        for (path, (leaf, number)) in children {
            let DirMeta { mode, mtime, .. } = meta(*number);
            let node = match leaf {
                None => Node::Dir(dir(path, paths, new, sides)),
                Some(true) => Node::Fifo(FifoNode { mode, mtime, link: None }),
                Some(false) => Node::Symlink(SymlinkNode { mtime, target: vec![b'0' + number], link: None }),
            };
            if leaf.is_some() {
                sides.insert(path.clone(), Side { node: node.clone(), dir_meta: None });
            }
            let name = path.components().last().unwrap().to_vec();
            entries.push(Entry { name, node });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let own = meta(paths[at].1);
        let built = build(&own, entries, new);
        sides.insert(at.clone(), Side { node: Node::Dir(built), dir_meta: Some(own) });
        built
    }

    /// The same from complete lists, without a walk.
    fn simple(before: &BTreeMap<TreePath, Side>, after: &BTreeMap<TreePath, Side>) -> Vec<Change> {
        let paths: std::collections::BTreeSet<&TreePath> = before.keys().chain(after.keys()).collect();
        let change = |path: &TreePath| {
            let kind = match (before.get(path), after.get(path)) {
                (None, None) => None,
                (None, Some(_)) => Some(ChangeKind::Added),
                (Some(_), None) => Some(ChangeKind::Deleted),
                (Some(old), Some(new)) => match (&old.dir_meta, &new.dir_meta) {
                    (Some(old), Some(new)) if old.mode != new.mode => Some(ChangeKind::Mode),
                    (Some(old), Some(new)) => (old != new).then_some(ChangeKind::Time),
                    (None, None) => compare(&old.node, &new.node),
                    (Some(_), None) | (None, Some(_)) => Some(ChangeKind::Type),
                },
            };
            let (before, after) = (before.get(path).cloned(), after.get(path).cloned());
            kind.map(|kind| Change { path: path.clone(), kind, before, after })
        };
        paths.into_iter().filter_map(change).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn walk_finds_the_changes_of_complete_lists_in_order(before in paths(), after in paths()) {
            let mut new = NewPages::default();
            let (mut old_sides, mut new_sides) = (BTreeMap::new(), BTreeMap::new());
            let old = dir(&TreePath::root(), &before, &mut new, &mut old_sides);
            let now = dir(&TreePath::root(), &after, &mut new, &mut new_sides);
            let pages = Map(new.pages.into_iter().collect());
            let found = diff(&pages, &old, &now).unwrap();
            prop_assert!(found.is_sorted_by(|a, b| a.path < b.path));
            prop_assert_eq!(found, simple(&old_sides, &new_sides));
        }
    }
}
