//! The net change of several applies that are reverted: each path from its state after the newest one to its state
//! before the oldest one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::iter::Peekable;

use avfs_types::path::TreePath;
use avfs_vault::backend::Reader;
use avfs_vault::changes::{Changes, Iter};
use avfs_vault::diff::{Change, Side};
use avfs_vault::page::Node;
use avfs_vault::{VaultError, set_ids};

use crate::apply::error::Conflict;
use crate::git_index::is_refresh;

/// The net change of steps, the first of which reverts the newest apply.
pub struct Net {
    /// Sorted by path. Paths that end as they began are left out.
    pub changes: Changes,
    /// For each step after the first, its changes of paths that no step before it changes.
    pub older: Vec<Changes>,
    /// For each step, paths that were changed by others after its apply and before a newer one: they keep the state
    /// that the newer step restores.
    pub superseded: Vec<HashSet<TreePath>>,
    /// Paths of which others changed only the mode or the attributes in between: they still have applied content.
    pub conflicts: Vec<Conflict>,
}

impl Net {
    /// The changes of each step, and the names that it only links.
    pub fn of(reader: &dyn Reader, steps: &[(&Changes, &HashSet<TreePath>)]) -> Result<Self, VaultError> {
        let changes = steps.first().map_or_else(Changes::default, |(first, _)| first.empty_like());
        let older = steps.iter().skip(1).map(|(step, _)| step.empty_like()).collect();
        let superseded = vec![HashSet::new(); steps.len()];
        let mut net = Self { changes, older, superseded, conflicts: Vec::new() };
        let mut heads: Vec<_> = steps.iter().map(|(changes, _)| changes.iter().peekable()).collect();
        let linked: Vec<_> = steps.iter().map(|(_, linked)| *linked).collect();
        while let Some(path) = next_path(&mut heads)? {
            net.add(reader, path, &mut heads, &linked)?;
        }
        Ok(net)
    }

    /// Adds the next path, and takes its changes from the heads.
    fn add(
        &mut self,
        reader: &dyn Reader,
        path: TreePath,
        heads: &mut [Peekable<Iter<'_>>],
        linked: &[&HashSet<TreePath>],
    ) -> Result<(), VaultError> {
        let mut whole: Option<Change> = None;
        for (place, head) in heads.iter_mut().enumerate() {
            let is_of_path = |next: &Result<Cow<'_, Change>, VaultError>| {
                next.as_ref().is_ok_and(|change| change.path == path)
            };
            let Some(change) = head.next_if(is_of_path).transpose()? else { continue };
            if linked[place].contains(&path) {
                continue;
            }
            let Some(whole) = &mut whole else {
                if let Some(older) = place.checked_sub(1).and_then(|place| self.older.get_mut(place)) {
                    older.push(change.clone().into_owned());
                }
                whole = Some(change.into_owned());
                continue;
            };
            if are_alike(reader, &path, (&whole.after, &change.before))? {
                whole.after.clone_from(&change.after);
                continue;
            }
            if are_alike(reader, &path, (&whole.after, &change.after))? {
                continue;
            }
            if has_content_of(&whole.after, &change.before) {
                let reason = "its mode or attributes were changed between the applies";
                self.conflicts.push(Conflict { path: path.clone(), reason: reason.into() });
            } else if let Some(superseded) = self.superseded.get_mut(place) {
                superseded.insert(path.clone());
            }
        }
        let change = whole.and_then(|change| Change::between(path, change.before, change.after));
        if let Some(change) = change {
            self.changes.push(change);
        }
        Ok(())
    }
}

/// The first of the next paths.
fn next_path(heads: &mut [Peekable<Iter<'_>>]) -> Result<Option<TreePath>, VaultError> {
    let mut next: Option<TreePath> = None;
    for head in heads {
        if let Some(Err(error)) = head.next_if(Result::is_err) {
            return Err(error);
        }
        if let Some(Ok(change)) = head.peek()
            && next.as_ref().is_none_or(|next| change.path < *next)
        {
            next = Some(change.path.clone());
        }
    }
    Ok(next)
}

fn has_content_of(found: &Option<Side>, known: &Option<Side>) -> bool {
    let (Some(found), Some(known)) = (found, known) else { return false };
    match (&found.node, &known.node) {
        (Node::File(found), Node::File(known)) => found.content == known.content,
        (Node::Symlink(found), Node::Symlink(known)) => found.target == known.target,
        (Node::Fifo(_), Node::Fifo(_)) | (Node::Dir(_), Node::Dir(_)) => true,
        (Node::File(_) | Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_), _) => false,
    }
}

/// Whether an apply or unapply would accept the state `found` in the directory as the state `known`. Times and hard
/// links do not count.
fn are_alike(
    reader: &dyn Reader,
    path: &TreePath,
    (found, known): (&Option<Side>, &Option<Side>),
) -> Result<bool, VaultError> {
    let (Some(found), Some(known)) = (found, known) else { return Ok(found.is_none() && known.is_none()) };
    Ok(match (&found.node, &known.node) {
        (Node::File(found), Node::File(known)) => {
            set_ids::has_mode(found.mode, known.mode)
                && ((found.content, found.xattrs) == (known.content, known.xattrs)
                    || is_refresh(reader, path, [known, found])?)
        }
        (Node::Symlink(found), Node::Symlink(known)) => found.target == known.target,
        (Node::Fifo(found), Node::Fifo(known)) => found.mode == known.mode,
        (Node::Dir(_), Node::Dir(_)) => {
            let shown = |side: &Side| side.dir_meta.as_ref().map(|meta| (meta.mode, meta.xattrs));
            shown(found) == shown(known)
        }
        (Node::File(_) | Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_), _) => false,
    })
}
