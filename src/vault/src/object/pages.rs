//! Edits of one directory: opens only the pages on the path and keeps every other page unchanged.
//!
//! The result does not depend on the order of the edits that led to it: page boundaries depend only on the names in
//! the directory.

use std::collections::BTreeMap;

use avfs_types::ids::TreeId;

use super::page::{Body, DirMeta, DirRef, Entry, Node, PageRef, Sealed, rank};
use super::tree;
use super::tree::Pages;
use crate::Result;

/// Changes to the names of a directory: a new node, or `None` to remove the name.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Node>>;

/// Pages created by an edit and not yet stored, children before parents.
#[derive(Default)]
pub struct NewPages {
    /// Encoded pages with their digests.
    pub pages: Vec<(TreeId, Vec<u8>)>,
}

impl NewPages {
    fn keep(&mut self, sealed: Sealed, first: Vec<u8>) -> PageRef {
        let page = PageRef { first, tree: sealed.tree, content: sealed.content, totals: sealed.totals };
        self.pages.push((sealed.tree, sealed.data));
        page
    }
}

/// Builds a directory from these entries, which must be sorted by name.
pub fn build(meta: &DirMeta, entries: Vec<Entry>, new: &mut NewPages) -> DirRef {
    let groups = split(entries, 1, |entry| &entry.name).into_iter().map(Body::Leaf).collect();
    raise(meta, groups, new)
}

/// The reference of a directory, given only its tree id.
pub fn reference(pages: &dyn Pages, tree: &TreeId) -> Result<DirRef> {
    let (meta, body) = tree::top(pages, tree)?;
    Ok(seal_top(&meta, body, &mut NewPages::default()))
}

/// A directory after changes; with `meta`, its own metadata changes too.
pub(crate) fn edit(
    pages: &dyn Pages,
    base: (DirMeta, Body),
    meta: Option<DirMeta>,
    changes: &Changes,
    new: &mut NewPages,
) -> Result<DirRef> {
    let (old_meta, body) = base;
    let meta = meta.unwrap_or(old_meta);
    if changes.is_empty() {
        return Ok(seal_top(&meta, body, new));
    }
    let mut open = Open::from(body);
    open.apply(pages, &changes.iter().collect::<Vec<_>>())?;
    open.drop_empty();
    let mut groups = finish(pages, open, new)?;
    // A single group may contain a single page: then the directory has lost a level.
    while let [Body::Inner { level, pages: children }] = groups.as_slice()
        && let [only] = children.as_slice()
    {
        let made = new.pages.iter().position(|(id, _)| *id == only.tree);
        let body = pages_or_new(pages, new, *level, only)?;
        if let Some(at) = made {
            new.pages.remove(at);
        }
        groups = vec![body];
    }
    Ok(raise(&meta, groups, new))
}

fn pages_or_new(pages: &dyn Pages, new: &NewPages, above: u8, page: &PageRef) -> Result<Body> {
    match new.pages.iter().find(|(id, _)| *id == page.tree) {
        Some((id, data)) => Ok(tree::check_page(id, data)?.body),
        None => tree::beneath(pages, above, page),
    }
}

/// Adds levels until one page is left, which becomes the top page.
fn raise(meta: &DirMeta, mut groups: Vec<Body>, new: &mut NewPages) -> DirRef {
    let mut level = 0_u8;
    loop {
        if groups.len() <= 1 {
            let body = groups.pop().unwrap_or(Body::Leaf(Vec::new()));
            return seal_top(meta, body, new);
        }
        level = groups.first().map_or(level, |body| body.level() + 1);
        let refs: Vec<PageRef> = groups.into_iter().map(|body| seal_page(&body, new)).collect();
        groups = split(refs, u32::from(level) + 1, |page| &page.first)
            .into_iter()
            .map(|pages| Body::Inner { level, pages })
            .collect();
    }
}

fn seal_page(body: &Body, new: &mut NewPages) -> PageRef {
    let sealed = body.seal(None);
    new.keep(sealed, body.first().to_vec())
}

fn seal_top(meta: &DirMeta, body: Body, new: &mut NewPages) -> DirRef {
    let sealed = body.seal(Some(meta));
    let page = new.keep(sealed, Vec::new());
    DirRef { tree: page.tree, content: page.content, totals: page.totals }
}

/// Splits a sorted list before every item whose name has at least this rank.
fn split<T>(mut items: Vec<T>, at_rank: u32, name: impl Fn(&T) -> &Vec<u8>) -> Vec<Vec<T>> {
    if items.is_empty() {
        return Vec::new();
    }
    let cuts: Vec<usize> = (1..items.len()).filter(|at| rank(name(&items[*at])) >= at_rank).collect();
    if cuts.is_empty() {
        return vec![items];
    }
    let mut groups: Vec<Vec<T>> = cuts.into_iter().rev().map(|at| items.split_off(at)).collect();
    items.shrink_to_fit();
    groups.push(items);
    groups.reverse();
    groups
}

/// A page being changed.
enum Open {
    Leaf(Vec<Entry>),
    Inner { level: u8, slots: Vec<Slot> },
}

enum Slot {
    Kept(PageRef),
    Open(Open),
}

impl From<Body> for Open {
    fn from(body: Body) -> Self {
        match body {
            Body::Leaf(entries) => Self::Leaf(entries),
            Body::Inner { level, pages } => {
                Self::Inner { level, slots: pages.into_iter().map(Slot::Kept).collect() }
            }
        }
    }
}

impl Slot {
    fn first(&self) -> &[u8] {
        match self {
            Self::Kept(page) => &page.first,
            Self::Open(open) => open.first(),
        }
    }

    fn open(self, pages: &dyn Pages, above: u8) -> Result<Open> {
        match self {
            Self::Kept(page) => Ok(tree::beneath(pages, above, &page)?.into()),
            Self::Open(open) => Ok(open),
        }
    }
}

impl Open {
    fn first(&self) -> &[u8] {
        match self {
            Self::Leaf(entries) => entries.first().map_or(b"", |entry| &entry.name),
            Self::Inner { slots, .. } => slots.first().map_or(b"", Slot::first),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(entries) => entries.is_empty(),
            Self::Inner { slots, .. } => slots.is_empty(),
        }
    }

    /// Opens the pages affected by the changes and applies them there. `changes` is sorted by name.
    fn apply(&mut self, pages: &dyn Pages, changes: &[(&Vec<u8>, &Option<Node>)]) -> Result<()> {
        match self {
            Self::Leaf(entries) => {
                merge(entries, changes);
                Ok(())
            }
            Self::Inner { level, slots } => {
                let mut rest = changes;
                for at in 0..slots.len() {
                    let mine = match slots.get(at + 1) {
                        Some(next) => rest.partition_point(|(name, _)| name.as_slice() < next.first()),
                        None => rest.len(),
                    };
                    let (here, later) = rest.split_at(mine);
                    rest = later;
                    if here.is_empty() {
                        continue;
                    }
                    let hollow = Slot::Open(Self::Leaf(Vec::new()));
                    let mut open = std::mem::replace(&mut slots[at], hollow).open(pages, *level)?;
                    open.apply(pages, here)?;
                    slots[at] = Slot::Open(open);
                }
                Ok(())
            }
        }
    }

    fn drop_empty(&mut self) {
        if let Self::Inner { slots, .. } = self {
            slots.retain_mut(|slot| match slot {
                Slot::Kept(_) => true,
                Slot::Open(open) => {
                    open.drop_empty();
                    !open.is_empty()
                }
            });
        }
    }

    /// Appends the next page to this one.
    fn join(&mut self, next: Self) {
        match (self, next) {
            (Self::Leaf(entries), Self::Leaf(mut more)) => entries.append(&mut more),
            (Self::Inner { slots, .. }, Self::Inner { slots: mut more, .. }) => slots.append(&mut more),
            // Pages of one level are of one kind, which `beneath` and `raise` ensure.
            (this, Self::Leaf(_) | Self::Inner { .. }) => debug_assert!(this.is_empty(), "levels were mixed"),
        }
    }
}

fn merge(entries: &mut Vec<Entry>, changes: &[(&Vec<u8>, &Option<Node>)]) {
    let merged = Vec::with_capacity(entries.len() + changes.len());
    let mut old = std::mem::replace(entries, merged).into_iter().peekable();
    for (name, node) in changes {
        while let Some(entry) = old.next_if(|entry| entry.name < **name) {
            entries.push(entry);
        }
        old.next_if(|entry| entry.name == **name);
        if let Some(node) = node {
            entries.push(Entry { name: (*name).clone(), node: node.clone() });
        }
    }
    entries.extend(old);
}

/// Closes an open page: splits it into as many pages of its level as its names require.
///
/// Pages are joined from the top down, so that two leaves that must be joined already have the same parent.
fn finish(pages: &dyn Pages, open: Open, new: &mut NewPages) -> Result<Vec<Body>> {
    match open {
        Open::Leaf(entries) => {
            Ok(split(entries, 1, |entry| &entry.name).into_iter().map(Body::Leaf).collect())
        }
        Open::Inner { level, slots } => {
            let mut refs = Vec::with_capacity(slots.len());
            for slot in join(pages, level, slots)? {
                match slot {
                    Slot::Kept(page) => refs.push(page),
                    Slot::Open(open) => {
                        let bodies = finish(pages, open, new)?;
                        refs.extend(bodies.iter().map(|body| seal_page(body, new)));
                    }
                }
            }
            let groups = split(refs, u32::from(level) + 1, |page| &page.first);
            Ok(groups.into_iter().map(|pages| Body::Inner { level, pages }).collect())
        }
    }
}

/// Joins each page whose first name no longer starts a page of this level to the previous page.
fn join(pages: &dyn Pages, level: u8, slots: Vec<Slot>) -> Result<Vec<Slot>> {
    let begins = |slot: &Slot| matches!(slot, Slot::Kept(_)) || rank(slot.first()) >= u32::from(level);
    if slots.iter().skip(1).all(begins) {
        return Ok(slots);
    }
    let mut joined: Vec<Slot> = Vec::with_capacity(slots.len());
    for slot in slots {
        match joined.pop() {
            Some(before) if !begins(&slot) => {
                let mut before = before.open(pages, level)?;
                before.join(slot.open(pages, level)?);
                joined.push(Slot::Open(before));
            }
            before => joined.extend(before.into_iter().chain([slot])),
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use avfs_types::clock::FileTime;

    use super::*;
    use crate::page::FifoNode;

    #[derive(Default)]
    struct Map(HashMap<TreeId, Vec<u8>>);

    impl Pages for Map {
        fn page(&self, id: &TreeId) -> Result<super::super::page::Page> {
            tree::check_page(id, &self.0[id])
        }
    }

    fn node(mode: u32) -> Node {
        Node::Fifo(FifoNode { mode, mtime: FileTime::default(), link: None })
    }

    fn build_map(names: &BTreeMap<Vec<u8>, u32>, store: &mut Map) -> DirRef {
        let mut new = NewPages::default();
        let entries = names.iter().map(|(name, mode)| Entry { name: name.clone(), node: node(*mode) });
        let built = build(&DirMeta::default(), entries.collect(), &mut new);
        store.0.extend(new.pages);
        built
    }

    fn check_edit(before: &BTreeMap<Vec<u8>, u32>, edits: &BTreeMap<Vec<u8>, Option<u32>>) -> usize {
        let mut store = Map::default();
        let base = build_map(before, &mut store);
        let changes: Changes = edits.iter().map(|(name, mode)| (name.clone(), mode.map(node))).collect();
        let mut new = NewPages::default();
        let top = tree::top(&store, &base.tree).unwrap();
        let edited = edit(&store, top, None, &changes, &mut new).unwrap();
        let written = new.pages.len();
        store.0.extend(new.pages);

        let mut after = before.clone();
        for (name, mode) in edits {
            match mode {
                Some(mode) => after.insert(name.clone(), *mode),
                None => after.remove(name),
            };
        }
        let listed: BTreeMap<Vec<u8>, Node> = tree::dir(&store, &edited.tree)
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| (entry.name, entry.node))
            .collect();
        assert_eq!(listed, after.iter().map(|(name, mode)| (name.clone(), node(*mode))).collect());
        for (name, mode) in &after {
            assert_eq!(tree::entry(&store, &edited.tree, name).unwrap(), Some(node(*mode)));
        }
        // An edit gives the same result as building the directory from scratch.
        assert_eq!(edited, build_map(&after, &mut store));
        written
    }

    fn name(n: u32) -> Vec<u8> {
        format!("file-{n:05}").into_bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn editing_equals_building_from_scratch(
            before in proptest::collection::btree_set(0..3000_u32, 0..600),
            edits in proptest::collection::btree_map(0..3000_u32, proptest::option::of(0..8_u32), 0..60),
            erase in proptest::option::of((0..3000_u32, 0..1500_u32)),
        ) {
            let before = before.into_iter().map(|n| (name(n), 1)).collect();
            let mut edits: BTreeMap<_, _> = edits.into_iter().map(|(n, mode)| (name(n), mode)).collect();
            if let Some((from, count)) = erase {
                edits.extend((from..from + count).map(|n| (name(n), None)));
            }
            check_edit(&before, &edits);
        }
    }

    #[test]
    fn a_large_directory_is_edited_in_few_pages() {
        let before = (0..8_000).map(|n| (name(n), 1)).collect();
        let written = check_edit(&before, &BTreeMap::from([(name(2_345), Some(2))]));
        assert!(written <= 5, "{written} pages were written");
        // Names that start pages are the difficult ones: removing them joins pages.
        let hard: Vec<u32> = (0..8_000).filter(|n| rank(&name(*n)) >= 2).collect();
        for n in hard.iter().take(2) {
            check_edit(&before, &BTreeMap::from([(name(*n), None)]));
        }
    }

    #[test]
    fn all_entries_can_be_removed_and_added_again() {
        let all: BTreeMap<Vec<u8>, u32> = (0..500).map(|n| (name(n), 1)).collect();
        let none = all.keys().map(|name| (name.clone(), None)).collect();
        check_edit(&all, &none);
        check_edit(&BTreeMap::new(), &all.iter().map(|(name, mode)| (name.clone(), Some(*mode))).collect());
    }

    /// Pages that all claim the same level would nest without end.
    #[test]
    fn page_of_the_wrong_level_is_reported_as_damaged() {
        let mut store = Map::default();
        let mut new = NewPages::default();
        let leaf = Body::Leaf(vec![Entry { name: b"a".to_vec(), node: node(0o644) }]);
        let mut page = seal_page(&leaf, &mut new);
        for _ in 0..3 {
            page = seal_page(&Body::Inner { level: 1, pages: vec![page] }, &mut new);
        }
        let top = seal_top(&DirMeta::default(), Body::Inner { level: 2, pages: vec![page] }, &mut new);
        store.0.extend(new.pages);
        let message = |error: crate::VaultError| error.to_string();
        let wanted = "it does not match the reference in its parent page";
        assert!(message(tree::dir(&store, &top.tree).unwrap_err()).contains(wanted));
        assert!(message(tree::entry(&store, &top.tree, b"a").unwrap_err()).contains(wanted));
        let changes = Changes::from([(b"b".to_vec(), Some(node(0o600)))]);
        let base = tree::top(&store, &top.tree).unwrap();
        let edited = edit(&store, base, None, &changes, &mut NewPages::default());
        assert!(message(edited.unwrap_err()).contains(wanted));
        let high =
            Body::Inner { level: 200, pages: vec![seal_page(&leaf, &mut NewPages::default())] }.seal(None);
        assert!(super::super::page::Page::decode(&high.data).is_err());
    }
}
