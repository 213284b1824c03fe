//! The edits that make one tree out of another.

use avfs_types::path::TreePath;

use super::diff::{Change, diff};
use super::edit::{Edit, Edits};
use super::page::{DirRef, Node};
use super::tree::Pages;
use crate::Result;

/// What has to be done to `before` so that it is `after`, in every bit. Each path of a directory that is new is
/// named, so that others may have made the same one.
pub fn delta(pages: &dyn Pages, before: &DirRef, after: &DirRef) -> Result<Edits> {
    let mut edits = Edits::new();
    for Change { path, after, .. } in diff(pages, before, after)? {
        let edit = match after {
            // It went with what it was in.
            None if lies_in_gone(&edits, &path) => continue,
            None => Edit::Remove,
            Some(side) => match (side.node, side.dir_meta) {
                (Node::Dir(_), Some(meta)) => Edit::Dir(meta),
                (node, _) => Edit::Put(node),
            },
        };
        edits.insert(path, edit);
    }
    Ok(edits)
}

fn lies_in_gone(edits: &Edits, path: &TreePath) -> bool {
    let mut path = path.clone();
    while let Some((parent, _)) = path.split() {
        if matches!(edits.get(&parent), Some(Edit::Remove | Edit::Put(_))) {
            return true;
        }
        path = parent;
    }
    false
}
