//! The changes of a run, as edits of other files with the same content: times of untouched files are preserved.

use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::delta::delta;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::page::{DirRef, Node};
use avfs_vault::renames::find_renames;
use avfs_vault::tree::Pages;
use avfs_vault::{Result, tree};

/// Edits of `base` equivalent to the changes from `before` to `after`. `base` has the same content as `before`.
pub fn changes_onto(pages: &dyn Pages, before: &DirRef, after: &DirRef, base: &DirRef) -> Result<Edits> {
    let mut edits = delta(pages, before, after)?;
    if before.tree == base.tree {
        return Ok(edits);
    }
    let found = Changes::between(pages, (before, after), Vec::new(), |_| true)?;
    for change in &find_renames(found)? {
        let Change { path, kind, before: old, after: new } = change?.into_owned();
        let (Some(old), Some(new)) = (old, new) else { continue };
        // A time that the run did not set is taken from `base`.
        let kept = match &kind {
            ChangeKind::Renamed { from } if time_of(&old.node) == time_of(&new.node) => from,
            ChangeKind::Mode if same_time(&old, &new) => &path,
            ChangeKind::Renamed { .. }
            | ChangeKind::Mode
            | ChangeKind::Added
            | ChangeKind::Deleted
            | ChangeKind::Modified
            | ChangeKind::Type
            | ChangeKind::Time => continue,
        };
        let Some(time) = time_at(pages, base, kept)? else { continue };
        match edits.get_mut(&path) {
            Some(Edit::Dir(meta)) => meta.mtime = time,
            Some(Edit::Put(node)) => set_time(node, time),
            Some(Edit::Remove) | None => {}
        }
    }
    Ok(edits)
}

fn time_of(node: &Node) -> Option<FileTime> {
    match node {
        Node::File(file) => Some(file.mtime),
        Node::Symlink(link) => Some(link.mtime),
        Node::Fifo(fifo) => Some(fifo.mtime),
        Node::Dir(_) => None,
    }
}

fn same_time(old: &Side, new: &Side) -> bool {
    match (&old.dir_meta, &new.dir_meta) {
        (Some(old), Some(new)) => old.mtime == new.mtime,
        (Some(_) | None, _) => time_of(&old.node) == time_of(&new.node),
    }
}

fn time_at(pages: &dyn Pages, root: &DirRef, path: &TreePath) -> Result<Option<FileTime>> {
    Ok(match tree::lookup(pages, root, path)? {
        Some(Node::Dir(dir)) => Some(tree::top(pages, &dir.tree)?.0.mtime),
        Some(node) => time_of(&node),
        None => None,
    })
}

fn set_time(node: &mut Node, time: FileTime) {
    match node {
        Node::File(file) => file.mtime = time,
        Node::Symlink(link) => link.mtime = time,
        Node::Fifo(fifo) => fifo.mtime = time,
        Node::Dir(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use avfs_types::clock::{SteppingClock, Timestamp};
    use avfs_types::ids::ForkName;
    use avfs_types::reference::Reference;
    use avfs_vault::backend::memory::MemoryBackend;
    use avfs_vault::backend::{BlobRecord, Life};
    use avfs_vault::page::{DirMeta, FileContent, FileNode, SymlinkNode};
    use avfs_vault::version::full_root_of;
    use avfs_vault::{Advance, Context, Vault, When, content};

    use super::*;

    /// Paths that contain each other, and one that sorts between a directory and its entries.
    const PATHS: [&str; 8] = ["a", "a-b", "a/x", "a/y/z", "b", "c/x", "c/y", "d"];

    /// A file: its content, mode and time; or a symlink.
    type Files = BTreeMap<&'static str, (u8, u8, u8)>;

    fn files() -> impl Strategy<Value = Files> {
        let file = (0..PATHS.len(), (0..4_u8, 0..3_u8, 0..3_u8));
        proptest::collection::vec(file, 0..8).prop_map(|list| {
            let mut files: Files = list.into_iter().map(|(at, file)| (PATHS[at], file)).collect();
            let all: Vec<&str> = files.keys().copied().collect();
            // A file in place of a directory removes the entries of the directory.
            files.retain(|path, _| !all.iter().any(|above| path.starts_with(&format!("{above}/"))));
            files
        })
    }

    fn time(seconds: u8) -> FileTime {
        FileTime { seconds: i64::from(seconds), nanos: 0 }
    }

    fn edits_of(files: &Files, shift: u8) -> (Edits, Vec<BlobRecord>) {
        let (mut edits, mut blobs) = (Edits::new(), Vec::new());
        for (path, (text, mode, at)) in files {
            let path = TreePath::parse(path.as_bytes()).unwrap();
            let mut parent = path.split().map(|(parent, _)| parent);
            while let Some(dir) = parent {
                parent = dir.split().map(|(parent, _)| parent);
                let meta = DirMeta { mode: 0o755, mtime: time(at.wrapping_add(shift)), xattrs: None };
                edits.entry(dir).or_insert(Edit::Dir(meta));
            }
            let mtime = time(at.wrapping_add(shift));
            let node = if *mode == 2 {
                Node::Symlink(SymlinkNode { mtime, target: vec![b'a' + text], link: None })
            } else {
                let bytes = vec![*text; usize::from(*text)];
                let blob = content::encode(content::id_of(&bytes), bytes);
                let (id, size) = (blob.id, blob.size);
                blobs.push(blob);
                let mode = 0o644 + u32::from(*mode) * 0o111;
                Node::File(FileNode {
                    mode,
                    mtime,
                    size,
                    content: FileContent::Whole(id),
                    xattrs: None,
                    link: None,
                })
            };
            edits.insert(path, Edit::Put(node));
        }
        (edits, blobs)
    }

    /// Commits edits on a new fork of `from`; returns its root.
    fn commit(vault: &Vault, name: &str, from: &str, edits: &Edits, blobs: &[BlobRecord]) -> DirRef {
        let fork = ForkName::parse(name).unwrap();
        vault.create_fork(&fork, &Reference::parse(from).unwrap(), Life::Persistent).unwrap();
        let advance = Advance { action: "test", message: "", run: None, when: When::Changed };
        let made = vault.commit_edits(&fork, edits, blobs, &advance).unwrap();
        full_root_of(&*vault.read().unwrap(), &made.version).unwrap()
    }

    proptest! {
        #[test]
        fn changes_of_a_run_give_the_same_content_on_the_same_content(before in files(), after in files()) {
            let clock = Arc::new(SteppingClock::starting_at(Timestamp(0)));
            let context = Context { clock, actor: "tester".to_owned() };
            let vault = Vault::over(Box::new(MemoryBackend::default()), context).unwrap();
            let make = |name: &str, files: &Files, shift| {
                let (edits, blobs) = edits_of(files, shift);
                commit(&vault, name, "main", &edits, &blobs)
            };
            let (old, new) = (make("old", &before, 0), make("new", &after, 0));
            let other = make("other", &before, 100);
            prop_assert_eq!(old.content, other.content);
            let onto = |base: &DirRef| changes_onto(&&*vault.read().unwrap(), &old, &new, base).unwrap();
            // On identical files they give identical files, including times.
            let again = commit(&vault, "again", "old", &onto(&old), &[]);
            prop_assert_eq!(again.tree, new.tree);
            let elsewhere = commit(&vault, "elsewhere", "other", &onto(&other), &[]);
            prop_assert_eq!(elsewhere.content, new.content);
            // Files that did not change keep their times.
            let reader = vault.read().unwrap();
            for (path, file) in before.iter().filter(|(path, file)| after.get(*path) == Some(*file)) {
                let path = TreePath::parse(path.as_bytes()).unwrap();
                let found = time_at(&&*reader, &elsewhere, &path).unwrap();
                prop_assert_eq!(found, Some(time(file.2 + 100)));
            }
        }
    }
}
