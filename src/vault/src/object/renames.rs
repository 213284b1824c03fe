//! Finds renamed files in a list of changes.

use super::changes::Changes;
use super::diff::{Change, ChangeKind, Side};
use super::page::Node;
use crate::Result;

/// Maximum deleted files that are compared with added ones: 20 MB. If more are deleted, no file is shown as renamed.
pub const RENAMES_SEARCHED_MAX: usize = 1_000_000;

/// A deleted file: the start of its digest, and its index.
type Gone = ([u8; 16], u32);

/// Fails if the search is stopped; called for each change.
type Going<'a> = &'a dyn Fn() -> Result<()>;

/// Shows pairs of a deleted and an added file of the same content as one renamed file.
pub fn find_renames(changes: Changes) -> Result<Changes> {
    find_renames_while(changes, &|| Ok(()))
}

/// [`find_renames`] that can be stopped.
pub fn find_renames_while(changes: Changes, going: Going<'_>) -> Result<Changes> {
    find_renames_among(changes, RENAMES_SEARCHED_MAX, going)
}

fn find_renames_among(changes: Changes, gone_max: usize, going: Going<'_>) -> Result<Changes> {
    let moved = pairs_among(&changes, gone_max, going)?;
    if moved.is_empty() { Ok(changes) } else { rename(&changes, &moved, going) }
}

/// The indexes of added files, in order, each with the index of a deleted file of the same content; each is used once.
pub fn pairs(changes: &Changes, going: Going<'_>) -> Result<Vec<(u32, u32)>> {
    pairs_among(changes, RENAMES_SEARCHED_MAX, going)
}

fn pairs_among(changes: &Changes, gone_max: usize, going: Going<'_>) -> Result<Vec<(u32, u32)>> {
    let (mut gone, mut is_any_new) = (Vec::<Gone>::new(), false);
    for (change, place) in changes.iter().zip(0_u32..) {
        going()?;
        let change = change?;
        match (&change.kind, content(&change)) {
            (ChangeKind::Deleted, Some(_)) if gone.len() == gone_max => return Ok(Vec::new()),
            (ChangeKind::Deleted, Some(content)) => gone.push((content, place)),
            (ChangeKind::Added, Some(_)) => is_any_new = true,
            _ => {}
        }
    }
    if gone.is_empty() || !is_any_new {
        return Ok(Vec::new());
    }
    // The first deleted path of each content comes first.
    gone.sort_unstable();
    pair_up(changes, &mut gone, going)
}

fn pair_up(changes: &Changes, gone: &mut [Gone], going: Going<'_>) -> Result<Vec<(u32, u32)>> {
    // A deleted file that is taken has this index.
    const TAKEN: u32 = u32::MAX;
    let mut moved = Vec::new();
    for (change, place) in changes.iter().zip(0_u32..) {
        going()?;
        let change = change?;
        let (ChangeKind::Added, Some(content)) = (&change.kind, content(&change)) else { continue };
        let first = gone.partition_point(|(other, _)| *other < content);
        let end = gone.partition_point(|(other, _)| *other <= content);
        let same = &mut gone[first..end];
        // They are taken in order.
        let taken = same.partition_point(|(_, from)| *from == TAKEN);
        if let Some((_, from)) = same.get_mut(taken) {
            moved.push((place, std::mem::replace(from, TAKEN)));
        }
    }
    Ok(moved)
}

/// The changes with these pairs as one change each.
fn rename(changes: &Changes, moved: &[(u32, u32)], going: Going<'_>) -> Result<Changes> {
    let mut sources: Vec<u32> = moved.iter().map(|(_, from)| *from).collect();
    sources.sort_unstable();
    let (mut sources, mut moved) = (sources.into_iter().peekable(), moved.iter().peekable());
    let mut lookup = changes.lookup();
    let mut renamed = changes.empty_like();
    for (change, place) in changes.iter().zip(0_u32..) {
        going()?;
        let mut change = change?.into_owned();
        if sources.next_if_eq(&place).is_some() {
            continue;
        }
        if let Some((_, from)) = moved.next_if(|(at, _)| *at == place)
            && let Some(old) = lookup.get(*from as usize)?
        {
            change.kind = ChangeKind::Renamed { from: old.path.clone() };
            change.before.clone_from(&old.before);
        }
        renamed.push(change);
    }
    Ok(renamed)
}

/// The start of the digest of an added or deleted file; `None` for an empty file.
fn content(change: &Change) -> Option<[u8; 16]> {
    let side = change.before.as_ref().or(change.after.as_ref());
    match side {
        Some(Side { node: Node::File(file), .. }) if file.size > 0 => {
            file.content.id().0.first_chunk().copied()
        }
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use avfs_types::clock::FileTime;
    use avfs_types::ids::BlobId;
    use avfs_types::path::TreePath;

    use super::super::page::{FileContent, FileNode};
    use super::*;

    /// The same in memory, written for clarity: each added file takes the first deleted one that is left.
    fn simple(changes: &[Change]) -> Vec<Change> {
        let mut left: Vec<Option<Change>> = changes.iter().cloned().map(Some).collect();
        for at in 0..changes.len() {
            let is_same = |old: &Option<Change>| {
                old.as_ref().is_some_and(|old| {
                    old.kind == ChangeKind::Deleted && content(old) == content(&changes[at])
                })
            };
            if changes[at].kind != ChangeKind::Added || content(&changes[at]).is_none() {
                continue;
            }
            if let Some(from) = left.iter().position(is_same) {
                let old = left[from].take().unwrap();
                let change = left[at].as_mut().unwrap();
                change.kind = ChangeKind::Renamed { from: old.path };
                change.before = old.before;
            }
        }
        left.into_iter().flatten().collect()
    }

    fn change(number: usize, kind: &ChangeKind, content: u8) -> Change {
        let node = Node::File(FileNode {
            mode: 0o644,
            mtime: FileTime::default(),
            // Empty files are never renamed.
            size: u64::from(content),
            content: FileContent::Whole(BlobId([content; 32])),
            xattrs: None,
            link: None,
        });
        let side = Some(Side { node, dir_meta: None });
        let (before, after) = match kind {
            ChangeKind::Added => (None, side),
            ChangeKind::Deleted => (side, None),
            ChangeKind::Modified
            | ChangeKind::Renamed { .. }
            | ChangeKind::Mode
            | ChangeKind::Type
            | ChangeKind::Time => (side.clone(), side),
        };
        let path = TreePath::parse(format!("{number:05}").as_bytes()).unwrap();
        Change { path, kind: kind.clone(), before, after }
    }

    fn all(changes: &Changes) -> Vec<Change> {
        changes.iter().map(|change| change.unwrap().into_owned()).collect()
    }

    proptest! {
        #[test]
        fn renames_are_those_of_a_simple_search(
            changes in proptest::collection::vec((0..3_u8, 0..6_u8), 0..60)
        ) {
            let kinds = [ChangeKind::Added, ChangeKind::Deleted, ChangeKind::Mode];
            let changes: Vec<Change> = changes
                .iter()
                .enumerate()
                .map(|(number, (kind, content))| change(number, &kinds[usize::from(*kind)], *content))
                .collect();
            let expected = simple(&changes);
            let found = find_renames(Changes::from(changes)).unwrap();
            prop_assert_eq!(all(&found), expected);
        }
    }

    #[test]
    fn too_many_deleted_files_are_not_searched() {
        let changes =
            || (0..40).map(|n| change(n, &[ChangeKind::Added, ChangeKind::Deleted][n % 2], 1)).collect();
        let before: Vec<Change> = changes();
        let kept = find_renames_among(Changes::from(before.clone()), 19, &|| Ok(())).unwrap();
        assert_eq!(all(&kept), before);
        let found = find_renames_among(Changes::from(before), 20, &|| Ok(())).unwrap();
        assert_eq!(found.len(), 20);
    }

    /// Renames in a list that does not fit in memory, and is read in random order.
    #[test]
    fn renames_are_found_in_a_long_list() {
        let count = 3 * super::super::changes::HELD_CHANGES_MAX;
        let file = |number: usize, kind: &ChangeKind, content: usize| {
            let mut one = change(number, kind, 1);
            for side in [&mut one.before, &mut one.after].into_iter().flatten() {
                let Node::File(file) = &mut side.node else { panic!() };
                let mut id = [0; 32];
                id[..8].copy_from_slice(&content.to_le_bytes());
                file.content = FileContent::Whole(BlobId(id));
            }
            one
        };
        let gone = (0..count).map(|n| file(n, &ChangeKind::Deleted, n));
        let new = (0..count).map(|n| file(count + n, &ChangeKind::Added, n * 7919 % count));
        let found = find_renames(Changes::from(gone.chain(new).collect::<Vec<_>>())).unwrap();
        assert_eq!(found.len(), count);
        for (number, change) in found.iter().enumerate() {
            let change = change.unwrap();
            let from = TreePath::parse(format!("{:05}", number * 7919 % count).as_bytes()).unwrap();
            assert_eq!(change.kind, ChangeKind::Renamed { from });
        }
    }
}
