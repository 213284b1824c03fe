//! Changes for people and agents: a tree, and the number of lines added and deleted. All of it bounded.
//!
//! Pure except for the content read through the caller's reader. Everything omitted is counted.

use avfs_types::ids::BlobId;
use avfs_types::path::Shown;
use avfs_vault::VaultError;
use avfs_vault::backend::Reader;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::Node;

use crate::change_summary::{ChangeSummary, LineStat, TextChange, text_change};
use crate::line_diff::DiffSteps;

/// Default maximum number of changes in a tree or a diffstat.
pub const CHANGES_SHOWN_MAX: usize = 1000;

/// The word and the letter that stand for a kind of change.
#[must_use]
pub const fn kind_words(kind: &ChangeKind) -> (&'static str, char) {
    match kind {
        ChangeKind::Added => ("added", 'A'),
        ChangeKind::Deleted => ("deleted", 'D'),
        ChangeKind::Modified => ("modified", 'M'),
        ChangeKind::Renamed { .. } => ("renamed", 'R'),
        ChangeKind::Mode => ("mode", 'm'),
        ChangeKind::Type => ("type", 'T'),
        ChangeKind::Time => ("time", 't'),
    }
}

/// The sizes of a file before and after; `None` for a side that is not a file.
#[must_use]
pub fn file_sizes(change: &Change) -> (Option<u64>, Option<u64>) {
    let size = |side: &Option<Side>| match side.as_ref().map(|side| &side.node) {
        Some(Node::File(file)) => Some(file.size),
        Some(Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
    };
    (size(&change.before), size(&change.after))
}

/// The parts of a change other than content: link target, file type, mode, attributes, hard links.
#[must_use]
pub fn beside_content(change: &Change) -> Vec<String> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let mut parts = Vec::new();
    let node = |side: Option<&Side>| side.map(|side| side.node.clone());
    match (node(before), node(after)) {
        (_, None) | (Some(Node::Dir(_)), Some(Node::Dir(_))) | (None, Some(Node::Dir(_))) => {}
        (Some(old), Some(new)) if old.kind() != new.kind() => {
            parts.push(format!("{} -> {}", old.kind(), new.kind()));
            parts.extend(leads_to(&new));
        }
        (Some(Node::Symlink(old)), Some(Node::Symlink(new))) if old.target == new.target => {}
        (_, Some(new @ Node::Symlink(_))) => parts.extend(leads_to(&new)),
        (None, Some(Node::Fifo(_))) => parts.push("fifo".to_owned()),
        (None, Some(Node::File(file))) if file.mode & SPECIAL_MODES != 0 => {
            parts.push(format!("mode {:04o}", file.mode));
        }
        (_, Some(Node::Fifo(_) | Node::File(_) | Node::Dir(_))) => {}
    }
    if let (Some(old), Some(new)) = (before, after) {
        match (mode_of(old), mode_of(new)) {
            (Some(old), Some(new)) if old != new => parts.push(format!("mode {old:04o} -> {new:04o}")),
            (Some(_) | None, _) => {}
        }
        if old.node.kind() == new.node.kind() {
            let differs = |is: bool, what: &str| is.then(|| what.to_owned());
            parts.extend(differs(xattrs_of(old) != xattrs_of(new), "attributes"));
            parts.extend(differs(old.node.link() != new.node.link(), "hard links"));
        }
    }
    parts
}

/// Mode bits worth reporting for a new file: execute permission, setuid, setgid and sticky.
const SPECIAL_MODES: u32 = 0o7111;

fn leads_to(node: &Node) -> Option<String> {
    match node {
        Node::Symlink(link) => Some(format!("link to {}", Shown(&link.target))),
        Node::Dir(_) | Node::File(_) | Node::Fifo(_) => None,
    }
}

pub(crate) fn mode_of(side: &Side) -> Option<u32> {
    match &side.node {
        Node::File(file) => Some(file.mode),
        Node::Fifo(fifo) => Some(fifo.mode),
        Node::Dir(_) => side.dir_meta.as_ref().map(|meta| meta.mode),
        Node::Symlink(_) => None,
    }
}

pub(crate) fn xattrs_of(side: &Side) -> Option<BlobId> {
    match &side.node {
        Node::File(file) => file.xattrs,
        Node::Dir(_) => side.dir_meta.as_ref().and_then(|meta| meta.xattrs),
        Node::Fifo(_) | Node::Symlink(_) => None,
    }
}

/// True if the entry is, or was, a directory.
#[must_use]
pub fn is_dir(change: &Change) -> bool {
    let side = change.after.as_ref().or(change.before.as_ref());
    matches!(side, Some(Side { node: Node::Dir(_), .. }))
}

/// A name in a tree with its change; no change for a directory that only leads to changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine {
    pub depth: usize,
    /// Escaped, so that it cannot fake a line. Directories end in a slash.
    pub name: String,
    pub change: Option<Change>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeView {
    pub lines: Vec<TreeLine>,
    /// Number of changes omitted from the tree.
    pub left_off: u64,
}

/// The first `limit` changed paths as a tree.
pub fn tree_view(summary: &ChangeSummary, limit: usize) -> Result<TreeView, VaultError> {
    let changes = first_of_tree(summary, limit)?;
    let left_off = (summary.changes.len() - changes.len()) as u64;
    let mut lines = Vec::new();
    let mut open: Vec<Vec<u8>> = Vec::new();
    for change in changes {
        let names: Vec<&[u8]> = change.path.components().collect();
        let shared = open.iter().zip(&names).take_while(|(a, b)| a == *b).count();
        open.truncate(shared);
        for name in names.iter().skip(shared) {
            let depth = open.len();
            open.push(name.to_vec());
            let last = open.len() == names.len();
            let slash = if !last || is_dir(&change) { "/" } else { "" };
            let name = format!("{}{slash}", Shown(name));
            lines.push(TreeLine { depth, name, change: last.then(|| change.clone()) });
        }
        if names.is_empty() {
            lines.push(TreeLine { depth: 0, name: "./".to_owned(), change: Some(change) });
        }
    }
    Ok(TreeView { lines, left_off })
}

/// The first `limit` changes in the order of a tree: by components, not bytes, so that `a/b` comes right after `a`,
/// even if there is an `a-b`. Holds at most twice as many.
fn first_of_tree(summary: &ChangeSummary, limit: usize) -> Result<Vec<Change>, VaultError> {
    let shorten = |found: &mut Vec<Change>| {
        found.sort_by(|a, b| a.path.components().cmp(b.path.components()));
        found.truncate(limit);
    };
    let mut found = Vec::new();
    for change in summary.changes.iter() {
        found.push(change?.into_owned());
        if found.len() > limit.saturating_mul(2) {
            shorten(&mut found);
        }
    }
    shorten(&mut found);
    Ok(found)
}

/// The extent of the change to one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Lines(LineStat),
    Binary,
    /// Too large to compare.
    TooLarge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatView {
    pub paths: Vec<(Change, Extent)>,
    /// Line counts of the listed paths.
    pub total: LineStat,
    /// Number of changes that are omitted and whose content was not read.
    pub left_off: u64,
}

/// Added and deleted lines of the first `limit` changes, by path.
pub fn stat_view(reader: &dyn Reader, summary: &ChangeSummary, limit: usize) -> Result<StatView, VaultError> {
    let left_off = summary.changes.len().saturating_sub(limit) as u64;
    let mut view = StatView { left_off, ..StatView::default() };
    let mut steps = DiffSteps::default();
    for change in summary.changes.iter().take(limit) {
        let change = change?.into_owned();
        let extent = match text_change(reader, &change, &mut steps)? {
            TextChange::Lines { stat, .. } => Extent::Lines(stat),
            TextChange::NoContent => Extent::Lines(LineStat::default()),
            TextChange::Binary => Extent::Binary,
            TextChange::TooLarge => Extent::TooLarge,
        };
        if let Extent::Lines(stat) = extent {
            view.total.added += stat.added;
            view.total.deleted += stat.deleted;
        }
        view.paths.push((change, extent));
    }
    Ok(view)
}

#[cfg(test)]
pub(crate) mod tests {
    use avfs_types::clock::FileTime;
    use avfs_types::path::TreePath;
    use avfs_vault::backend::memory::MemoryBackend;
    use avfs_vault::backend::{Backend, Durability};
    use avfs_vault::content;
    use avfs_vault::page::{FileContent, FileNode};

    use super::*;

    fn added(path: &str, text: &str) -> Change {
        let node = Node::File(FileNode {
            mode: 0o644,
            mtime: FileTime { seconds: 0, nanos: 0 },
            size: text.len() as u64,
            content: FileContent::Whole(content::id_of(text.as_bytes())),
            xattrs: None,
            link: None,
        });
        let after = Some(Side { node, dir_meta: None });
        let path = TreePath::parse(path.as_bytes()).unwrap();
        Change { path, kind: ChangeKind::Added, before: None, after }
    }

    /// Changes that add these files, and a store with their content.
    pub(crate) fn summary(files: &[(&str, &str)]) -> (ChangeSummary, MemoryBackend) {
        let store = MemoryBackend::default();
        let mut writer = store.write().unwrap();
        for (_, text) in files {
            let blob = content::encode(content::id_of(text.as_bytes()), text.as_bytes().to_vec());
            writer.put_blobs(&[blob]).unwrap();
        }
        writer.commit(Durability::Synced).unwrap();
        let changes: Vec<Change> = files.iter().map(|(path, text)| added(path, text)).collect();
        (ChangeSummary::of(changes.into()).unwrap(), store)
    }

    #[test]
    fn tree_keeps_directories_together_and_counts_omitted_changes() {
        let (summary, _) = summary(&[("a-b/x", "1"), ("a/deep/x", "2"), ("a/y", "3"), ("z\n", "4")]);
        let shown = |limit| {
            let view = tree_view(&summary, limit).unwrap();
            let lines = view.lines.iter().map(|line| {
                let mark = line.change.as_ref().map_or(' ', |change| kind_words(&change.kind).1);
                format!("{mark}{}{}", " ".repeat(line.depth), line.name)
            });
            (lines.collect::<Vec<_>>(), view.left_off)
        };
        let all = [" a/", "  deep/", "A  x", "A y", " a-b/", "A x", "Az\\n"];
        assert_eq!(shown(4), (all.map(str::to_owned).to_vec(), 0));
        assert_eq!(shown(2), (all[..4].iter().map(|line| (*line).to_owned()).collect(), 2));
        assert_eq!(shown(0), (Vec::new(), 4));
    }

    #[test]
    fn stat_counts_lines_of_listed_paths() {
        let (summary, store) = summary(&[("a", "1\n2\n"), ("b", "\0"), ("c", "3\n")]);
        let reader = store.read().unwrap();
        let view = stat_view(&*reader, &summary, 2).unwrap();
        let extents: Vec<Extent> = view.paths.iter().map(|(_, extent)| *extent).collect();
        assert_eq!(extents, [Extent::Lines(LineStat { added: 2, deleted: 0 }), Extent::Binary]);
        assert_eq!((view.total, view.left_off), (LineStat { added: 2, deleted: 0 }, 1));
    }
}
