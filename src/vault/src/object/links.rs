//! Hard link groups: the names of one file share an id that depends only on these names.
//!
//! An edit may remove a name from a group; `settle` gives the rest of the group the id it would have had from the
//! start, so that equal trees stay equal.

use std::collections::{BTreeMap, HashMap};

use avfs_types::ids::{DigestKind, LinkId, TreeId};
use avfs_types::path::TreePath;

use super::edit::{Edit, Edits, Manner};
use super::page::{DirRef, Node};
use super::pages::NewPages;
use super::tree::{Pages, Walk, check_page};
use super::{edit, tree};
use crate::Result;

/// The number of edits that are checked for touching a group: above it, walking all groups is as fast.
const LOOKED_AT_MAX: usize = 1000;

/// The id of the group of these paths, which must be sorted.
#[must_use]
pub(crate) fn group_id<'a>(paths: impl Iterator<Item = &'a [u8]>) -> LinkId {
    let mut hasher = DigestKind::Link.hasher();
    for path in paths {
        hasher.update(path).update(&[0]);
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    LinkId(id)
}

/// Pages of an edit that are not stored yet, in front of the stored ones.
pub struct Overlay<'a> {
    new: HashMap<TreeId, &'a [u8]>,
    under: &'a dyn Pages,
}

impl<'a> Overlay<'a> {
    /// Looks up pages in `new` first, then in `under`.
    #[must_use]
    pub fn new(new: &'a NewPages, under: &'a dyn Pages) -> Self {
        Self { new: new.pages.iter().map(|(id, data)| (*id, data.as_slice())).collect(), under }
    }
}

impl Pages for Overlay<'_> {
    fn page(&self, id: &TreeId) -> Result<super::page::Page> {
        match self.new.get(id) {
            Some(data) => check_page(id, data),
            None => self.under.page(id),
        }
    }

    fn require_going(&self) -> Result<()> {
        self.under.require_going()
    }
}

/// Every entry under a root that belongs to a group; subtrees without any are not opened.
pub fn members(pages: &dyn Pages, root: &DirRef, at: &TreePath) -> Result<Vec<(TreePath, Node)>> {
    let mut found = Vec::new();
    if root.totals.links == 0 {
        return Ok(found);
    }
    let mut walk = Walk::new(pages, root, at);
    while let Some(walked) = walk.next() {
        let walked = walked?;
        match &walked.node {
            Node::Dir(dir) if dir.totals.links == 0 => walk.skip_dir(),
            Node::Dir(_) => {}
            Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => {
                if walked.node.link().is_some() {
                    found.push((walked.path, walked.node));
                }
            }
        }
    }
    Ok(found)
}

/// False if edits of a settled root leave every member of every group unchanged: then the result is settled too. A
/// large number of edits is not checked, and counts as touching a group.
fn are_touched(pages: &dyn Pages, root: &DirRef, edits: &Edits) -> Result<bool> {
    if edits.len() > LOOKED_AT_MAX {
        return Ok(true);
    }
    for (path, edit) in edits {
        let brings = matches!(edit, Edit::Put(node) if has_members(node));
        if brings || takes_members(pages, root, path, edit)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies edits to a settled root, and settles the groups that they touch.
pub(crate) fn apply_settled(
    pages: &dyn Pages,
    root: &DirRef,
    edits: &Edits,
    manner: Manner,
    new: &mut NewPages,
) -> Result<DirRef> {
    let edited = edit::apply(pages, root, edits, manner, new)?;
    if edited.totals.links > 0 && are_touched(pages, root, edits)? {
        return settle(pages, &edited, new);
    }
    Ok(edited)
}

pub(crate) fn has_members(node: &Node) -> bool {
    match node {
        Node::Dir(dir) => dir.totals.links > 0,
        Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => node.link().is_some(),
    }
}

/// Whether an edit removes a member or a directory with members; a file in the middle of its path is removed too.
fn takes_members(pages: &dyn Pages, root: &DirRef, path: &TreePath, edit: &Edit) -> Result<bool> {
    let mut node = Node::Dir(*root);
    for name in path.components() {
        let Node::Dir(dir) = &node else { break };
        match tree::entry(pages, &dir.tree, name)? {
            Some(found) => node = found,
            None => return Ok(false),
        }
    }
    // A directory that only gets new metadata keeps its entries.
    let keeps = matches!((&node, edit), (Node::Dir(_), Edit::Dir(_)));
    Ok(!keeps && has_members(&node))
}

/// The root with every group id derived from the current paths, and groups with one member dissolved.
pub(crate) fn settle(pages: &dyn Pages, root: &DirRef, new: &mut NewPages) -> Result<DirRef> {
    let members = members(&Overlay::new(new, pages), root, &TreePath::root())?;
    let mut groups: BTreeMap<LinkId, Vec<(TreePath, Node)>> = BTreeMap::new();
    for (path, node) in members {
        if let Some(id) = node.link() {
            groups.entry(id).or_default().push((path, node));
        }
    }
    let mut edits = Edits::new();
    for (id, mut members) in groups {
        members.sort_by(|a, b| a.0.cmp(&b.0));
        let settled = (members.len() > 1).then(|| group_id(members.iter().map(|(path, _)| path.as_bytes())));
        if settled != Some(id) {
            let relinked = members.into_iter().map(|(path, node)| (path, Edit::Put(node.with_link(settled))));
            edits.extend(relinked);
        }
    }
    if edits.is_empty() {
        return Ok(*root);
    }
    let mut more = NewPages::default();
    let settled = edit::apply(&Overlay::new(new, pages), root, &edits, Manner::Exact, &mut more)?;
    new.pages.append(&mut more.pages);
    Ok(settled)
}
