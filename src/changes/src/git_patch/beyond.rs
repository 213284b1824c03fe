//! The parts of a change that a git patch cannot express. They are written as comments, which git and patch(1) skip.

use std::collections::HashSet;

use avfs_types::path::TreePath;
use avfs_vault::Result;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::Node;

use super::name::{is_refused, prefixed};
use crate::change_view::{mode_of, xattrs_of};

const SET_ID_AND_STICKY: u32 = 0o7000;
const OWNER_EXECUTES: u32 = 0o100;
const ANYBODY_EXECUTES: u32 = 0o111;

/// Directories that are created or removed implicitly, with the files in them.
pub struct Implied {
    before: HashSet<TreePath>,
    after: HashSet<TreePath>,
}

impl Implied {
    pub fn of(changes: &Changes) -> Result<Self> {
        let is_file = |side: &Option<Side>| matches!(side, Some(Side { node, .. }) if in_git(node));
        let above = |path: &TreePath| path.ancestors().collect::<Vec<_>>();
        let mut implied = Self { before: HashSet::new(), after: HashSet::new() };
        for change in changes {
            let change = &*change?;
            if is_file(&change.before) {
                implied.before.extend(above(change.path_before()));
            }
            if is_file(&change.after) {
                implied.after.extend(above(&change.path));
            }
        }
        Ok(implied)
    }
}

/// Whether git can store an entry of this kind.
pub const fn in_git(node: &Node) -> bool {
    match node {
        Node::File(_) | Node::Symlink(_) => true,
        Node::Dir(_) | Node::Fifo(_) => false,
    }
}

/// Whether git refuses a patch of this path: then the whole section is written as a comment.
pub fn is_of_repository(change: &Change) -> bool {
    let is_link = |side: &Option<Side>| matches!(side, Some(Side { node: Node::Symlink(_), .. }));
    let is_link = is_link(&change.before) || is_link(&change.after);
    is_refused(&change.path, is_link) || is_refused(change.path_before(), is_link)
}

/// The comments of a change, without the comment marker.
pub fn comments(change: &Change, implied: &Implied) -> Vec<String> {
    let details = details(change, implied);
    if details.is_empty() {
        return Vec::new();
    }
    let prefix = if change.after.is_some() { "b/" } else { "a/" };
    vec![format!("{}: {}", prefixed(prefix, &change.path), details.join(", "))]
}

fn details(change: &Change, implied: &Implied) -> Vec<String> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let mut details = Vec::new();
    let mut add_if = |is: bool, text: &str| {
        if is {
            details.push(text.to_owned());
        }
    };
    let node = |side: Option<&Side>| side.map(|side| side.node.clone());
    let is_dir = |side: Option<&Side>| matches!(node(side), Some(Node::Dir(_)));
    let is_fifo = |side: Option<&Side>| matches!(node(side), Some(Node::Fifo(_)));
    let (is_new_dir, was_dir) = (is_dir(after) && !is_dir(before), is_dir(before) && !is_dir(after));
    add_if(is_new_dir && !implied.after.contains(&change.path), "new empty directory");
    add_if(was_dir && !implied.before.contains(&change.path), "empty directory deleted");
    add_if(is_fifo(after) && !is_fifo(before), "new fifo");
    add_if(is_fifo(before) && !is_fifo(after), "fifo deleted");
    add_if(change.kind == ChangeKind::Time, "modification time");
    let mode = |side: Option<&Side>| side.and_then(mode_of);
    match (mode(before), mode(after)) {
        (Some(old), Some(new)) if old != new && !is_new_dir && !was_dir => {
            let exact = is_plain(old) && is_plain(new) && !is_dir(after);
            add_if(!exact, &format!("mode {old:04o} -> {new:04o}"));
        }
        (None, Some(new)) if !is_dir(after) => {
            let odd = new & SET_ID_AND_STICKY != 0 || new & ANYBODY_EXECUTES != 0 && !executes(new);
            add_if(odd, &format!("mode {new:04o}"));
        }
        (Some(_) | None, _) => {}
    }
    let xattrs = |side: Option<&Side>| side.and_then(xattrs_of);
    let link = |side: Option<&Side>| side.and_then(|side| side.node.link());
    if after.is_some() {
        add_if(xattrs(before) != xattrs(after), "attributes");
        add_if(link(before) != link(after), "hard links");
    }
    details
}

/// Whether git marks the file as executable.
pub const fn executes(mode: u32) -> bool {
    mode & OWNER_EXECUTES != 0
}

/// One of the two modes that git can restore.
const fn is_plain(mode: u32) -> bool {
    matches!(mode, 0o644 | 0o755)
}
