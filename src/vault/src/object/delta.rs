//! The edits that turn one tree into another.

use avfs_types::path::TreePath;

use super::diff::{Change, collect};
use super::edit::{Edit, Edits};
use super::expansion::Expansion;
use super::page::{DirRef, Node};
use super::tree::Pages;
use crate::Result;

/// The edits that turn `before` into exactly `after`. Every path in a new directory has its own edit, so that
/// another side may have created the same directory.
pub fn delta(pages: &dyn Pages, before: &DirRef, after: &DirRef) -> Result<Edits> {
    let mut edits = Edits::new();
    let mut add = |Change { path, after, .. }: Change| {
        let edit = match after {
            // It was removed with a parent directory.
            None if is_in_deleted(&edits, &path) => return,
            None => Edit::Remove,
            Some(side) => match (side.node, side.dir_meta) {
                (Node::Dir(_), Some(meta)) => Edit::Dir(meta),
                (node, _) => Edit::Put(node),
            },
        };
        edits.insert(path, edit);
    };
    collect(pages, before, after, &mut Expansion::default(), &mut add)?;
    Ok(edits)
}

fn is_in_deleted(edits: &Edits, path: &TreePath) -> bool {
    let mut path = path.clone();
    while let Some((parent, _)) = path.split() {
        if matches!(edits.get(&parent), Some(Edit::Remove | Edit::Put(_))) {
            return true;
        }
        path = parent;
    }
    false
}
