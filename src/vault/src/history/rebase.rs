//! Rebases edits of one version onto another, which is possible if the two do not touch the same paths.
//!
//! Pure: it reads trees and decides; it stores nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use avfs_types::path::TreePath;

use crate::diff::{Change, ChangeKind, Side, collect};
use crate::edit::{Edit, Edits};
use crate::expansion::Expansion;
use crate::page::{DirMeta, DirRef, FileNode, Node, SymlinkNode};
use crate::tree::Pages;
use crate::{Result, tree};

/// The result of a rebase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rebase {
    /// Edits that have the same effect on the other version.
    Onto(Edits),
    /// Both sides changed these paths, or a path above or below one that the other changed.
    Clash(Vec<TreePath>),
}

/// Rebases edits of `base` onto `head`.
///
/// A directory's own metadata is merged field by field. Its time changes with every name in it, so a different time
/// alone is never a clash, and the edit's time is used. A directory that both sides created is one directory,
/// unless its mode or attributes differ.
pub(crate) fn rebase(pages: &dyn Pages, base: &DirRef, head: &DirRef, edits: &Edits) -> Result<Rebase> {
    let edited = Edited::of(pages, base, edits)?;
    let mut clashes = BTreeSet::new();
    let mut merged = edits.clone();
    let mut compare = |change: Change| match own_metadata(&change) {
        Some((old, new)) => {
            let touched = change.kind != ChangeKind::Time && edited.replaces_or_removes(&change.path);
            let wanted = edited.dirs.get(&change.path);
            let both = wanted.map(|wanted| merge(old, new, wanted));
            if touched || both == Some(None) {
                clashes.insert(change.path.clone());
            }
            if let Some(Some(meta)) = both {
                merged.insert(change.path.clone(), Edit::Dir(meta));
            }
        }
        None => match (made_dir(&change), edited.made.get(&change.path)) {
            (Some(theirs), Some(mine)) if (theirs.mode, theirs.xattrs) == (mine.mode, mine.xattrs) => {
                let mtime = theirs.mtime.max(mine.mtime);
                merged.insert(change.path.clone(), Edit::Dir(DirMeta { mtime, ..(*mine).clone() }));
            }
            _ if edited.touches(&change.path) => match agreed(&change, edits.get(&change.path)) {
                Some(Edit::Remove) => drop(merged.remove(&change.path)),
                Some(same) => drop(merged.insert(change.path.clone(), same)),
                None => drop(clashes.insert(change.path.clone())),
            },
            _ => {}
        },
    };
    collect(pages, base, head, &mut Expansion::default(), &mut compare)?;
    Ok(if clashes.is_empty() { Rebase::Onto(merged) } else { Rebase::Clash(clashes.into_iter().collect()) })
}

/// The edit with the effect of both sides, if both made the same file or link there, with the later time, or both
/// removed one.
fn agreed(change: &Change, edit: Option<&Edit>) -> Option<Edit> {
    let is_dir = |side: &Option<Side>| matches!(side, Some(Side { node: Node::Dir(_), .. }));
    if is_dir(&change.before) {
        return None;
    }
    match (change.after.as_ref().map(|side| &side.node), edit?) {
        (None, Edit::Remove) => Some(Edit::Remove),
        (Some(Node::File(theirs)), Edit::Put(Node::File(mine))) => {
            let mtime = theirs.mtime.max(mine.mtime);
            let [theirs, mine] = [theirs, mine].map(|file| FileNode { mtime, ..file.clone() });
            (theirs == mine).then_some(Edit::Put(Node::File(mine)))
        }
        (Some(Node::Symlink(theirs)), Edit::Put(Node::Symlink(mine))) => {
            let mtime = theirs.mtime.max(mine.mtime);
            let [theirs, mine] = [theirs, mine].map(|link| SymlinkNode { mtime, ..link.clone() });
            (theirs == mine).then_some(Edit::Put(Node::Symlink(mine)))
        }
        (Some(_) | None, Edit::Put(_) | Edit::Remove | Edit::Dir(_)) => None,
    }
}

/// The two sides of a change to a directory's own metadata, not to its entries.
fn own_metadata(change: &Change) -> Option<(&DirMeta, &DirMeta)> {
    match (&change.before, &change.after) {
        (
            Some(Side { node: Node::Dir(_), dir_meta: Some(old) }),
            Some(Side { node: Node::Dir(_), dir_meta: Some(new) }),
        ) => Some((old, new)),
        (Some(_) | None, _) => None,
    }
}

/// The metadata of a directory created at a path that did not exist.
fn made_dir(change: &Change) -> Option<&DirMeta> {
    match (&change.before, &change.after) {
        (None, Some(Side { node: Node::Dir(_), dir_meta })) => dir_meta.as_ref(),
        (Some(_) | None, _) => None,
    }
}

/// The paths affected by the edits.
struct Edited<'e> {
    /// Paths that are replaced or removed.
    replaced: HashSet<&'e TreePath>,
    /// Existing directories that only get new metadata.
    dirs: BTreeMap<&'e TreePath, &'e DirMeta>,
    /// Directories created at a path that did not exist.
    made: BTreeMap<&'e TreePath, &'e DirMeta>,
    /// Every directory above an edit.
    above: HashSet<TreePath>,
}

impl<'e> Edited<'e> {
    fn of(pages: &dyn Pages, base: &DirRef, edits: &'e Edits) -> Result<Self> {
        let (dirs, made) = (BTreeMap::new(), BTreeMap::new());
        let mut edited = Self { replaced: HashSet::new(), dirs, made, above: HashSet::new() };
        for (path, edit) in edits {
            match edit {
                Edit::Dir(meta) => match tree::lookup(pages, base, path)? {
                    Some(Node::Dir(_)) => drop(edited.dirs.insert(path, meta)),
                    None => drop(edited.made.insert(path, meta)),
                    Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) => {
                        edited.replaced.insert(path);
                    }
                },
                Edit::Put(_) | Edit::Remove => {
                    edited.replaced.insert(path);
                }
            }
            edited.above.extend(path.ancestors());
        }
        Ok(edited)
    }

    fn replaces_or_removes(&self, path: &TreePath) -> bool {
        self.replaced.contains(path) || path.ancestors().any(|above| self.replaced.contains(&above))
    }

    /// True if an edit is at, above or below the path. New metadata of a directory does not touch its entries, nor
    /// does a new directory that the other side created too.
    fn touches(&self, path: &TreePath) -> bool {
        let is_dir = self.dirs.contains_key(path) || self.made.contains_key(path);
        is_dir || self.above.contains(path) || self.replaces_or_removes(path)
    }
}

/// The metadata of a directory that both sides changed; `None` if their changes conflict.
fn merge(old: &DirMeta, new: &DirMeta, wanted: &DirMeta) -> Option<DirMeta> {
    Some(DirMeta {
        mode: pick(old.mode, new.mode, wanted.mode)?,
        xattrs: pick(old.xattrs, new.xattrs, wanted.xattrs)?,
        mtime: wanted.mtime,
    })
}

fn pick<T: PartialEq>(old: T, new: T, wanted: T) -> Option<T> {
    if wanted == old {
        return Some(new);
    }
    (new == old || new == wanted).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_merged_field_by_field() {
        let meta = |mode, seconds| DirMeta {
            mode,
            mtime: avfs_types::clock::FileTime { seconds, nanos: 0 },
            xattrs: None,
        };
        let old = meta(0o755, 1);
        // Each side's change is kept, and the time is that of the edit.
        assert_eq!(merge(&old, &meta(0o700, 2), &meta(0o755, 3)), Some(meta(0o700, 3)));
        assert_eq!(merge(&old, &meta(0o755, 2), &meta(0o700, 3)), Some(meta(0o700, 3)));
        assert_eq!(merge(&old, &meta(0o700, 2), &meta(0o700, 3)), Some(meta(0o700, 3)));
        assert_eq!(merge(&old, &meta(0o700, 2), &meta(0o711, 3)), None);
    }
}
