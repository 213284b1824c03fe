//! Changes as people and agents read them: a tree, lines that came and went, a unified diff. All of it bounded.
//!
//! Pure but for the content a caller's reader gives; nothing is left off without being counted.

use avfs_types::ids::BlobId;
use avfs_types::path::{Shown, TreePath};
use avfs_vault::VaultError;
use avfs_vault::backend::Reader;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::Node;

use crate::change_summary::{ChangeSummary, LineStat, TextChange, text_change};
use crate::line_diff::DiffSteps;

/// Changes that a tree or a diffstat tells at most, unless another number is asked for.
pub const CHANGES_SHOWN_MAX: usize = 1000;

/// The word and the letter for a kind of change.
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

/// The sizes of a file before and after; nothing where a side is no file.
#[must_use]
pub fn file_sizes(change: &Change) -> (Option<u64>, Option<u64>) {
    let size = |side: &Option<Side>| match side.as_ref().map(|side| &side.node) {
        Some(Node::File(file)) => Some(file.size),
        Some(Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
    };
    (size(&change.before), size(&change.after))
}

/// What a change is beside its content: where a link leads, that something is no plain file, modes, attributes, names.
#[must_use]
pub fn beside_content(change: &Change) -> Vec<String> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let mut told = Vec::new();
    let node = |side: Option<&Side>| side.map(|side| side.node.clone());
    match (node(before), node(after)) {
        (_, None) | (Some(Node::Dir(_)), Some(Node::Dir(_))) | (None, Some(Node::Dir(_))) => {}
        (Some(old), Some(new)) if old.kind() != new.kind() => {
            told.push(format!("{} -> {}", old.kind(), new.kind()));
            told.extend(leads_to(&new));
        }
        (Some(Node::Symlink(old)), Some(Node::Symlink(new))) if old.target == new.target => {}
        (_, Some(new @ Node::Symlink(_))) => told.extend(leads_to(&new)),
        (None, Some(Node::Fifo(_))) => told.push("fifo".to_owned()),
        (None, Some(Node::File(file))) if file.mode & SPECIAL_MODES != 0 => {
            told.push(format!("mode {:04o}", file.mode));
        }
        (_, Some(Node::Fifo(_) | Node::File(_) | Node::Dir(_))) => {}
    }
    if let (Some(old), Some(new)) = (before, after) {
        match (mode_of(old), mode_of(new)) {
            (Some(old), Some(new)) if old != new => told.push(format!("mode {old:04o} -> {new:04o}")),
            (Some(_) | None, _) => {}
        }
        if old.node.kind() == new.node.kind() {
            let differs = |is: bool, what: &str| is.then(|| what.to_owned());
            told.extend(differs(xattrs_of(old) != xattrs_of(new), "attributes"));
            told.extend(differs(old.node.link() != new.node.link(), "hard links"));
        }
    }
    told
}

/// Who may execute a file is a fact about it, and so is whose rights it takes on.
const SPECIAL_MODES: u32 = 0o7111;

fn leads_to(node: &Node) -> Option<String> {
    match node {
        Node::Symlink(link) => Some(format!("link to {}", Shown(&link.target))),
        Node::Dir(_) | Node::File(_) | Node::Fifo(_) => None,
    }
}

fn mode_of(side: &Side) -> Option<u32> {
    match &side.node {
        Node::File(file) => Some(file.mode),
        Node::Fifo(fifo) => Some(fifo.mode),
        Node::Dir(_) => side.dir_meta.as_ref().map(|meta| meta.mode),
        Node::Symlink(_) => None,
    }
}

fn xattrs_of(side: &Side) -> Option<BlobId> {
    match &side.node {
        Node::File(file) => file.xattrs,
        Node::Dir(_) => side.dir_meta.as_ref().and_then(|meta| meta.xattrs),
        Node::Fifo(_) | Node::Symlink(_) => None,
    }
}

/// True if what is there now, or was there, is a directory.
#[must_use]
pub fn is_dir(change: &Change) -> bool {
    let side = change.after.as_ref().or(change.before.as_ref());
    matches!(side, Some(Side { node: Node::Dir(_), .. }))
}

/// A name in a tree, and what changed there: nothing for a directory that only leads to changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine<'a> {
    pub depth: usize,
    /// Escaped, so that it cannot forge a line; directories end in a slash.
    pub name: String,
    pub change: Option<&'a Change>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeView<'a> {
    pub lines: Vec<TreeLine<'a>>,
    /// Changes that are not in it.
    pub left_off: u64,
}

/// Changed paths as a tree, the first `limit` of them.
#[must_use]
pub fn tree_view(summary: &ChangeSummary, limit: usize) -> TreeView<'_> {
    let mut changes: Vec<&Change> = summary.changes.iter().collect();
    // By names, not by bytes: `a/b` belongs right behind `a`, also where there is an `a-b`.
    changes.sort_by(|a, b| a.path.components().cmp(b.path.components()));
    let left_off = changes.len().saturating_sub(limit) as u64;
    let mut lines = Vec::new();
    let mut open: Vec<&[u8]> = Vec::new();
    for change in changes.into_iter().take(limit) {
        let names: Vec<&[u8]> = change.path.components().collect();
        let shared = open.iter().zip(&names).take_while(|(a, b)| a == b).count();
        open.truncate(shared);
        for name in names.iter().skip(shared) {
            let depth = open.len();
            open.push(name);
            let last = open.len() == names.len();
            let slash = if !last || is_dir(change) { "/" } else { "" };
            let name = format!("{}{slash}", Shown(name));
            lines.push(TreeLine { depth, name, change: last.then_some(change) });
        }
        if names.is_empty() {
            lines.push(TreeLine { depth: 0, name: "./".to_owned(), change: Some(change) });
        }
    }
    TreeView { lines, left_off }
}

/// What came and went in one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Lines(LineStat),
    Binary,
    /// Too large to be compared.
    TooLarge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatView<'a> {
    pub paths: Vec<(&'a Change, Extent)>,
    /// Lines of the paths that are told.
    pub total: LineStat,
    /// Changes that are not in it, and whose content was not read.
    pub left_off: u64,
}

/// Lines that came and went, path by path, of the first `limit` changes.
pub fn stat_view<'a>(
    reader: &dyn Reader,
    summary: &'a ChangeSummary,
    limit: usize,
) -> Result<StatView<'a>, VaultError> {
    let left_off = summary.changes.len().saturating_sub(limit) as u64;
    let mut view = StatView { left_off, ..StatView::default() };
    let mut steps = DiffSteps::default();
    for change in summary.changes.iter().take(limit) {
        let extent = match text_change(reader, change, &mut steps)? {
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

/// How much of a unified diff is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Of one path: beyond it only that it differs.
    pub file_bytes: usize,
    /// Of everything: beyond it only how many paths there are.
    pub total_bytes: usize,
}

impl PatchLimits {
    pub const DEFAULT: Self = Self { file_bytes: 1 << 20, total_bytes: 16 << 20 };

    /// One limit for each path and for all of them.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        Self { file_bytes: bytes, total_bytes: bytes }
    }
}

/// What a unified diff does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchLeftOff {
    /// Paths of which only a headline is told, because their part is too long.
    pub shortened: u64,
    /// Paths that are not in it at all.
    pub left_off: u64,
}

/// Gives the unified diff of each change to `each`, in lines without their ends. A path is told whole or not at
/// all: half a hunk is of no use to anybody.
pub fn patch_view<E: From<VaultError>>(
    reader: &dyn Reader,
    summary: &ChangeSummary,
    limits: PatchLimits,
    mut each: impl FnMut(Vec<Vec<u8>>) -> Result<(), E>,
) -> Result<PatchLeftOff, E> {
    let mut missing = PatchLeftOff::default();
    let mut room = limits.total_bytes;
    let mut steps = DiffSteps::default();
    for change in &summary.changes {
        // Content is not read once there is no room for it.
        if missing.left_off > 0 {
            missing.left_off += 1;
            continue;
        }
        let whole = patch_lines(change, &text_change(reader, change, &mut steps)?);
        let shorten = bytes_of(&whole) > limits.file_bytes;
        let lines = if shorten { too_long(change) } else { whole };
        let Some(left) = room.checked_sub(bytes_of(&lines)) else {
            missing.left_off += 1;
            continue;
        };
        room = left;
        missing.shortened += u64::from(shorten);
        each(lines)?;
    }
    Ok(missing)
}

fn bytes_of(lines: &[Vec<u8>]) -> usize {
    lines.iter().map(|line| line.len() + 1).sum()
}

/// The names of both sides, as a header has them.
struct Names {
    headline: Vec<u8>,
    old: String,
    new: String,
}

fn names(change: &Change) -> Names {
    let side = |prefix: char, side: &Option<Side>, path: &TreePath| match side {
        Some(_) => patch_name(prefix, path),
        None => "/dev/null".to_owned(),
    };
    let old_path = match &change.kind {
        ChangeKind::Renamed { from } => from,
        ChangeKind::Added
        | ChangeKind::Deleted
        | ChangeKind::Modified
        | ChangeKind::Mode
        | ChangeKind::Type
        | ChangeKind::Time => &change.path,
    };
    let (word, _) = kind_words(&change.kind);
    Names {
        headline: format!(
            "diff --avfs {} {} ({word})",
            patch_name('a', old_path),
            patch_name('b', &change.path)
        )
        .into_bytes(),
        old: side('a', &change.before, old_path),
        new: side('b', &change.after, &change.path),
    }
}

/// A name as patch(1) and git read it: in quotes like a string of C where it could be taken for something else.
fn patch_name(prefix: char, path: &TreePath) -> String {
    let bytes = path.as_bytes();
    let is_special = |byte: u8| byte.is_ascii_control() || matches!(byte, b'"' | b'\\');
    if let Ok(text) = std::str::from_utf8(bytes)
        && !bytes.iter().copied().any(is_special)
    {
        return format!("{prefix}/{text}");
    }
    let mut quoted = format!("\"{prefix}/");
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '"' | '\\' => quoted.extend(['\\', char]),
                _ if char.is_ascii_control() => quoted.push_str(&format!("\\{:03o}", u32::from(char))),
                _ => quoted.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| quoted.push_str(&format!("\\{byte:03o}")));
    }
    quoted.push('"');
    quoted
}

fn too_long(change: &Change) -> Vec<Vec<u8>> {
    let Names { headline, old, new } = names(change);
    vec![headline, format!("files {old} and {new} differ; too much to be shown").into_bytes()]
}

/// The unified diff of one change: header and hunks, one line after the other.
fn patch_lines(change: &Change, text: &TextChange) -> Vec<Vec<u8>> {
    let Names { headline, old, new } = names(change);
    let mut lines = vec![headline];
    lines.extend(beside_content(change).into_iter().map(String::into_bytes));
    match text {
        TextChange::NoContent => {}
        TextChange::Binary => lines.push(format!("binary files {old} and {new} differ").into_bytes()),
        TextChange::TooLarge => {
            lines.push(format!("files {old} and {new} differ; too large to be shown").into_bytes());
        }
        TextChange::Lines { hunks, .. } if hunks.is_empty() => {}
        TextChange::Lines { hunks, .. } => {
            // A tab ends a name that has a space in it, as patch(1) wants it, unless quotes do.
            let ended = |name: &str| if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
            lines.push(format!("--- {old}{}", ended(&old)).into_bytes());
            lines.push(format!("+++ {new}{}", ended(&new)).into_bytes());
            let text = hunks.strip_suffix(b"\n").unwrap_or(hunks);
            lines.extend(text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use avfs_types::clock::FileTime;
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

    /// Changes that add these files, and a store that has their content.
    fn summary(files: &[(&str, &str)]) -> (ChangeSummary, MemoryBackend) {
        let store = MemoryBackend::default();
        let mut writer = store.write().unwrap();
        for (_, text) in files {
            let blob = content::encode(content::id_of(text.as_bytes()), text.as_bytes().to_vec());
            writer.put_blobs(&[blob]).unwrap();
        }
        writer.commit(Durability::Synced).unwrap();
        (ChangeSummary::of(files.iter().map(|(path, text)| added(path, text)).collect()), store)
    }

    #[test]
    fn a_tree_keeps_directories_together_and_counts_what_it_leaves_off() {
        let (summary, _) = summary(&[("a-b/x", "1"), ("a/deep/x", "2"), ("a/y", "3"), ("z\n", "4")]);
        let shown = |limit| {
            let view = tree_view(&summary, limit);
            let lines = view.lines.iter().map(|line| {
                let mark = line.change.map_or(' ', |change| kind_words(&change.kind).1);
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
    fn a_stat_counts_lines_of_what_it_tells() {
        let (summary, store) = summary(&[("a", "1\n2\n"), ("b", "\0"), ("c", "3\n")]);
        let reader = store.read().unwrap();
        let view = stat_view(&*reader, &summary, 2).unwrap();
        let extents: Vec<Extent> = view.paths.iter().map(|(_, extent)| *extent).collect();
        assert_eq!(extents, [Extent::Lines(LineStat { added: 2, deleted: 0 }), Extent::Binary]);
        assert_eq!((view.total, view.left_off), (LineStat { added: 2, deleted: 0 }, 1));
    }

    #[test]
    fn names_that_a_patch_cannot_have_as_they_are_stand_in_quotes() {
        let name = |bytes: &[u8]| patch_name('b', &TreePath::parse(bytes).unwrap());
        assert_eq!(name(b"a b/\xc3\xa4'"), "b/a b/\u{e4}'");
        assert_eq!(name(b"a\tb\n\"\\\x01"), r#""b/a\tb\n\"\\\001""#);
        assert_eq!(name(b"\xc3\xa4\xff"), "\"b/\u{e4}\\377\"");
    }

    #[test]
    fn a_patch_is_cut_between_files_and_says_so() {
        let long = "x\n".repeat(500);
        let (summary, store) = summary(&[("a", "1\n"), ("b", &long), ("c", "3\n"), ("d", "4\n")]);
        let reader = store.read().unwrap();
        let told = |limits| {
            let mut text = Vec::new();
            let missing = patch_view(&*reader, &summary, limits, |lines| {
                lines.iter().for_each(|line| text.extend([line.as_slice(), b"\n"].concat()));
                Ok::<(), VaultError>(())
            });
            (String::from_utf8(text).unwrap(), missing.unwrap())
        };
        let (whole, missing) = told(PatchLimits::DEFAULT);
        assert_eq!(missing, PatchLeftOff::default());
        assert!(
            whole.starts_with("diff --avfs a/a b/a (added)\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+1\n")
        );
        let (text, missing) = told(PatchLimits { file_bytes: 200, total_bytes: 1 << 20 });
        assert_eq!(missing, PatchLeftOff { shortened: 1, left_off: 0 });
        assert!(text.contains("files /dev/null and b/b differ; too much to be shown\n"), "{text}");
        assert!(text.ends_with("+4\n"), "{text}");
        let (text, missing) = told(PatchLimits { file_bytes: 2000, total_bytes: 300 });
        assert_eq!(missing, PatchLeftOff { shortened: 0, left_off: 3 });
        assert!(text.len() <= 300 && text.ends_with("+1\n"), "{text}");
        // What is not even named is not shortened.
        let (text, missing) = told(PatchLimits { file_bytes: 200, total_bytes: 100 });
        assert_eq!(missing, PatchLeftOff { shortened: 0, left_off: 3 }, "{text}");
    }
}
