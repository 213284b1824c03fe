//! Edits that were made of one version, put onto another: possible where the two do not touch the same paths.
//!
//! Pure: it reads trees and decides; nothing is stored.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use avfs_types::path::TreePath;

use crate::diff::{Change, ChangeKind, Side, diff};
use crate::edit::{Edit, Edits};
use crate::page::{DirMeta, DirRef, Node};
use crate::tree::Pages;
use crate::{Result, tree};

/// Whether edits can be had on another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rebase {
    /// These do there what the edits did where they were made.
    Onto(Edits),
    /// Both sides changed these paths, or something above or beneath what the other changed.
    Clash(Vec<TreePath>),
}

/// Puts edits of `base` onto `head`.
///
/// A directory's own metadata is merged field by field: its time changes with every name in it, so that alone
/// is never a clash, and the edit's is taken. A directory that both sides made is one directory, unless its mode or
/// attributes differ.
pub(crate) fn rebase(pages: &dyn Pages, base: &DirRef, head: &DirRef, edits: &Edits) -> Result<Rebase> {
    let changes = diff(pages, base, head)?;
    let edited = Edited::of(pages, base, edits)?;
    let mut clashes = BTreeSet::new();
    let mut merged = edits.clone();
    for change in &changes {
        match own_metadata(change) {
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
            None => match (made_dir(change), edited.made.get(&change.path)) {
                (Some(theirs), Some(mine)) if (theirs.mode, theirs.xattrs) == (mine.mode, mine.xattrs) => {
                    let mtime = theirs.mtime.max(mine.mtime);
                    merged.insert(change.path.clone(), Edit::Dir(DirMeta { mtime, ..(*mine).clone() }));
                }
                _ if edited.touches(&change.path) => {
                    clashes.insert(change.path.clone());
                }
                _ => {}
            },
        }
    }
    Ok(if clashes.is_empty() { Rebase::Onto(merged) } else { Rebase::Clash(clashes.into_iter().collect()) })
}

/// The two sides of a change that is only of a directory itself, not of what is in it.
fn own_metadata(change: &Change) -> Option<(&DirMeta, &DirMeta)> {
    match (&change.before, &change.after) {
        (
            Some(Side { node: Node::Dir(_), dir_meta: Some(old) }),
            Some(Side { node: Node::Dir(_), dir_meta: Some(new) }),
        ) => Some((old, new)),
        (Some(_) | None, _) => None,
    }
}

/// The metadata of a directory that is new, where nothing was before.
fn made_dir(change: &Change) -> Option<&DirMeta> {
    match (&change.before, &change.after) {
        (None, Some(Side { node: Node::Dir(_), dir_meta })) => dir_meta.as_ref(),
        (Some(_) | None, _) => None,
    }
}

/// What the edits have to do with a path.
struct Edited<'e> {
    /// Paths that get something else, or nothing.
    replaced: HashSet<&'e TreePath>,
    /// Directories that were there and only get metadata.
    dirs: BTreeMap<&'e TreePath, &'e DirMeta>,
    /// Directories that are made where nothing was.
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

    /// True if an edit equals, contains or lies beneath the path. New metadata of a directory does not touch
    /// what is in it, nor does a new directory that the other side made too.
    fn touches(&self, path: &TreePath) -> bool {
        let is_dir = self.dirs.contains_key(path) || self.made.contains_key(path);
        is_dir || self.above.contains(path) || self.replaces_or_removes(path)
    }
}

/// The metadata of a directory that both sides changed; nothing if they want different things.
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
        // Each side's own change is kept, and the time is the edit's.
        assert_eq!(merge(&old, &meta(0o700, 2), &meta(0o755, 3)), Some(meta(0o700, 3)));
        assert_eq!(merge(&old, &meta(0o755, 2), &meta(0o700, 3)), Some(meta(0o700, 3)));
        assert_eq!(merge(&old, &meta(0o700, 2), &meta(0o700, 3)), Some(meta(0o700, 3)));
        assert_eq!(merge(&old, &meta(0o700, 2), &meta(0o711, 3)), None);
    }
}
