//! Changes as a patch for `git apply`: modes, empty files, renames, symlinks, binary content and arbitrary names.
//!
//! Bounded; everything omitted is counted. Changes that git cannot express are written as comments.

mod beyond;
mod binary;
mod name;
mod sha1;

use avfs_types::path::TreePath;
use avfs_vault::backend::Reader;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::Node;
use avfs_vault::{VaultError, read_content};

use self::beyond::{Implied, comments, executes, is_of_repository};
use self::name::{ended, prefixed};
use crate::change_summary::{ChangeSummary, TEXT_BYTES_MAX, TextChange, compare_bytes};
use crate::line_diff::DiffSteps;

/// Digits of an id in the index line of a text file. No program looks an object up by this id.
const SHORT_ID: usize = 10;
const NO_ID: &str = "0000000000000000000000000000000000000000";
const COMMENT: &[u8] = b"# ";

/// The purpose of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchUse {
    /// The patch will be applied, and may contain any bytes.
    Bytes,
    /// The patch will be applied, and must be text: content that is not UTF-8 is written as binary content.
    Text,
    /// The patch is for reading: for binary content it only says that the files differ.
    Reading,
}

/// The maximum size of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Limit per path. Beyond it, the patch only says that the path differs.
    pub file_bytes: usize,
    /// Limit for the whole patch. Beyond it, the remaining paths are only counted.
    pub total_bytes: usize,
}

impl PatchLimits {
    pub const DEFAULT: Self = Self { file_bytes: 1 << 20, total_bytes: 16 << 20 };

    /// The same limit for each path and for the whole patch.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        Self { file_bytes: bytes, total_bytes: bytes }
    }

    /// Larger files are not read: their section would not fit, or would take too long to compare.
    fn read_bytes_max(self) -> u64 {
        (self.file_bytes as u64).max(TEXT_BYTES_MAX)
    }
}

/// The parts omitted from a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchLeftOff {
    /// Paths with only a header, because their section is too long.
    pub shortened: u64,
    /// Paths that are omitted completely.
    pub left_off: u64,
    /// Paths with changes that git cannot express; comments describe them.
    pub beyond_git: u64,
}

impl PatchLeftOff {
    /// True if no path is omitted or shortened.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.shortened == 0 && self.left_off == 0
    }
}

/// Passes the section of each change to `each`, as lines without newlines. A path is written completely or not
/// at all, because a partial hunk cannot be applied.
pub fn patch_view<E: From<VaultError>>(
    reader: &dyn Reader,
    summary: &ChangeSummary,
    purpose: PatchUse,
    limits: PatchLimits,
    mut each: impl FnMut(Vec<Vec<u8>>) -> Result<(), E>,
) -> Result<PatchLeftOff, E> {
    let mut missing = PatchLeftOff::default();
    let mut room = limits.total_bytes;
    let implied = Implied::of(&summary.changes)?;
    let mut sections = Sections { reader, purpose, limits, steps: DiffSteps::default() };
    for (place, change) in summary.changes.iter().enumerate() {
        let change = &*change?;
        let said = comments(change, &implied);
        let mut lines: Vec<Vec<u8>> = said.iter().map(|text| commented(text.as_bytes())).collect();
        let mut written = sections.of(change)?;
        let shorten = bytes_of(&written.lines) > limits.file_bytes;
        if shorten {
            written = Section { lines: differ_only(change), is_short: true };
        }
        let is_refused = is_of_repository(change) && !written.lines.is_empty();
        if is_refused {
            written.lines = written.lines.iter().map(|line| commented(line)).collect();
        }
        lines.append(&mut written.lines);
        let Some(left) = room.checked_sub(bytes_of(&lines)) else {
            // Content is not read once the limit is reached.
            missing.left_off = (summary.changes.len() - place) as u64;
            break;
        };
        room = left;
        missing.shortened += u64::from(written.is_short);
        missing.beyond_git += u64::from(is_refused || !said.is_empty());
        if !lines.is_empty() {
            each(lines)?;
        }
    }
    Ok(missing)
}

fn commented(line: &[u8]) -> Vec<u8> {
    [COMMENT, line].concat()
}

fn bytes_of(lines: &[Vec<u8>]) -> usize {
    lines.iter().map(|line| line.len() + 1).sum()
}

/// A file or symlink on one side.
#[derive(Clone, Copy)]
struct GitFile<'a> {
    node: &'a Node,
    path: &'a TreePath,
}

impl<'a> GitFile<'a> {
    fn of(side: Option<&'a Side>, path: &'a TreePath) -> Option<Self> {
        side.map(|side| &side.node).filter(|node| beyond::in_git(node)).map(|node| Self { node, path })
    }

    fn mode(self) -> &'static str {
        match self.node {
            Node::Symlink(_) => "120000",
            Node::File(file) if executes(file.mode) => "100755",
            Node::File(_) | Node::Dir(_) | Node::Fifo(_) => "100644",
        }
    }

    fn is_link(self) -> bool {
        matches!(self.node, Node::Symlink(_))
    }

    fn size(self) -> u64 {
        match self.node {
            Node::File(file) => file.size,
            Node::Symlink(link) => link.target.len() as u64,
            Node::Dir(_) | Node::Fifo(_) => 0,
        }
    }

    fn read(self, reader: &dyn Reader) -> Result<Vec<u8>, VaultError> {
        match self.node {
            Node::File(file) => read_content(reader, file).map_err(|error| error.in_file(self.path)),
            Node::Symlink(link) => Ok(link.target.clone()),
            Node::Dir(_) | Node::Fifo(_) => Ok(Vec::new()),
        }
    }
}

/// Both sides of a change, and whether their content is the same.
struct Sides<'a> {
    old: Option<GitFile<'a>>,
    new: Option<GitFile<'a>>,
    same_content: bool,
}

/// The sections of a change: none, one, or two if a symlink became a file or the reverse.
fn sides(change: &Change) -> Vec<Sides<'_>> {
    let (old_path, same_content) = match &change.kind {
        ChangeKind::Renamed { from } => (from, true),
        ChangeKind::Mode | ChangeKind::Time => (&change.path, true),
        ChangeKind::Added | ChangeKind::Deleted | ChangeKind::Modified | ChangeKind::Type => {
            (&change.path, false)
        }
    };
    let old = GitFile::of(change.before.as_ref(), old_path);
    let new = GitFile::of(change.after.as_ref(), &change.path);
    match (old, new) {
        (None, None) => Vec::new(),
        (Some(old), Some(new)) if old.is_link() != new.is_link() => vec![
            Sides { old: Some(old), new: None, same_content: false },
            Sides { old: None, new: Some(new), same_content: false },
        ],
        (old, new) => vec![Sides { old, new, same_content }],
    }
}

/// The section of one change.
struct Section {
    lines: Vec<Vec<u8>>,
    /// True if the section only says that the file differs.
    is_short: bool,
}

struct Sections<'a> {
    reader: &'a dyn Reader,
    purpose: PatchUse,
    limits: PatchLimits,
    steps: DiffSteps,
}

impl Sections<'_> {
    fn of(&mut self, change: &Change) -> Result<Section, VaultError> {
        let mut section = Section { lines: Vec::new(), is_short: false };
        let purpose = if is_of_repository(change) { PatchUse::Reading } else { self.purpose };
        for sides in sides(change) {
            let head = header(&sides);
            section.lines.extend(head);
            let too_large = [sides.old, sides.new]
                .iter()
                .flatten()
                .any(|file| file.size() > self.limits.read_bytes_max());
            if sides.same_content {
                continue;
            }
            if too_large {
                section.lines.push(differ(&sides));
                section.is_short = true;
                continue;
            }
            let content = self.content(&sides, purpose)?;
            section.lines.extend(content);
        }
        Ok(section)
    }

    fn content(&mut self, sides: &Sides<'_>, purpose: PatchUse) -> Result<Vec<Vec<u8>>, VaultError> {
        let read = |file: Option<GitFile<'_>>| file.map_or(Ok(Vec::new()), |file| file.read(self.reader));
        let (old, new) = (read(sides.old)?, read(sides.new)?);
        let is_long = (old.len().max(new.len()) as u64) > TEXT_BYTES_MAX;
        let is_text = |bytes: &[u8]| purpose != PatchUse::Text || std::str::from_utf8(bytes).is_ok();
        let compared = if is_long || !is_text(&old) || !is_text(&new) {
            TextChange::Binary
        } else {
            compare_bytes(&old, &new, &mut self.steps)
        };
        let ids = [(sides.old, &old), (sides.new, &new)]
            .map(|(file, bytes)| file.map_or(NO_ID.to_owned(), |_| sha1::blob_id(bytes)));
        let index = |digits: usize| {
            let mode = match (sides.old, sides.new) {
                (Some(old), Some(new)) if old.mode() == new.mode() => format!(" {}", new.mode()),
                (Some(_) | None, _) => String::new(),
            };
            format!("index {}..{}{mode}", &ids[0][..digits], &ids[1][..digits]).into_bytes()
        };
        Ok(match compared {
            TextChange::Binary if purpose == PatchUse::Reading => {
                vec![index(SHORT_ID), [b"Binary f", &differ(sides)[1..]].concat()]
            }
            TextChange::Binary => {
                // git looks up files by the full id here.
                let mut lines = vec![index(NO_ID.len())];
                lines.extend(binary::lines(&old, &new));
                lines
            }
            TextChange::Lines { hunks, .. } if !hunks.is_empty() => {
                let [old, new] = header_names(sides);
                let mut lines = vec![index(SHORT_ID)];
                lines.push(format!("--- {}", ended(&old)).into_bytes());
                lines.push(format!("+++ {}", ended(&new)).into_bytes());
                let text = hunks.strip_suffix(b"\n").unwrap_or(&hunks);
                lines.extend(text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec));
                lines
            }
            TextChange::Lines { .. } | TextChange::NoContent | TextChange::TooLarge => vec![index(SHORT_ID)],
        })
    }
}

/// Both names for the lines that start with `---` and `+++`.
fn header_names(sides: &Sides<'_>) -> [String; 2] {
    [("a/", sides.old), ("b/", sides.new)]
        .map(|(prefix, side)| side.map_or("/dev/null".to_owned(), |file| prefixed(prefix, file.path)))
}

/// The lines of a section before its content.
fn header(sides: &Sides<'_>) -> Vec<Vec<u8>> {
    let Some(any) = sides.old.or(sides.new) else { return Vec::new() };
    let (old_path, new_path) = (any.path, sides.new.map_or(any.path, |new| new.path));
    let mut lines = vec![format!("diff --git {} {}", prefixed("a/", old_path), prefixed("b/", new_path))];
    match (sides.old, sides.new) {
        (Some(old), Some(new)) => {
            if old.mode() != new.mode() {
                lines.push(format!("old mode {}", old.mode()));
                lines.push(format!("new mode {}", new.mode()));
            }
            if old.path != new.path {
                lines.push("similarity index 100%".to_owned());
                lines.push(format!("rename from {}", prefixed("", old.path)));
                lines.push(format!("rename to {}", prefixed("", new.path)));
            } else if sides.same_content && old.mode() == new.mode() {
                // No difference that git tracks.
                return Vec::new();
            }
        }
        (None, Some(new)) => lines.push(format!("new file mode {}", new.mode())),
        (Some(old), None) => lines.push(format!("deleted file mode {}", old.mode())),
        (None, None) => {}
    }
    lines.into_iter().map(String::into_bytes).collect()
}

/// The line that git and diff(1) print for files whose content is not in the patch. `git apply` rejects such a patch.
fn differ(sides: &Sides<'_>) -> Vec<u8> {
    let [old, new] = header_names(sides);
    format!("Files {old} and {new} differ").into_bytes()
}

fn differ_only(change: &Change) -> Vec<Vec<u8>> {
    let sections = sides(change);
    sections.iter().flat_map(|sides| [header(sides), vec![differ(sides)]].concat()).collect()
}

#[cfg(test)]
mod tests {
    use avfs_vault::backend::Backend;

    use super::*;
    use crate::change_view::tests::summary;

    #[test]
    fn patch_is_cut_between_files_and_counts_omitted_paths() {
        let long = "x\n".repeat(500);
        let (summary, store) = summary(&[("a", "1\n"), ("b", &long), ("c", "3\n"), ("d", "4\n")]);
        let reader = store.read().unwrap();
        let written = |limits| {
            let mut text = Vec::new();
            let missing = patch_view(&*reader, &summary, PatchUse::Bytes, limits, |lines| {
                lines.iter().for_each(|line| text.extend([line.as_slice(), b"\n"].concat()));
                Ok::<(), VaultError>(())
            });
            (String::from_utf8(text).unwrap(), missing.unwrap())
        };
        let (whole, missing) = written(PatchLimits::DEFAULT);
        assert_eq!(missing, PatchLeftOff::default());
        let first = "diff --git a/a b/a\nnew file mode 100644\nindex 0000000000..d00491fd7e\n\
             --- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+1\n";
        assert!(whole.starts_with(first), "{whole}");
        let (text, missing) = written(PatchLimits { file_bytes: 200, total_bytes: 1 << 20 });
        assert_eq!(missing, PatchLeftOff { shortened: 1, left_off: 0, beyond_git: 0 });
        assert!(text.contains("Files /dev/null and b/b differ\n"), "{text}");
        assert!(text.ends_with("+4\n"), "{text}");
        let (text, missing) = written(PatchLimits { file_bytes: 2000, total_bytes: 300 });
        assert_eq!(missing, PatchLeftOff { shortened: 0, left_off: 3, beyond_git: 0 });
        assert!(text.len() <= 300 && text.ends_with("+1\n"), "{text}");
        // Omitted paths do not count as shortened.
        let (text, missing) = written(PatchLimits { file_bytes: 200, total_bytes: 130 });
        assert_eq!(missing, PatchLeftOff { shortened: 0, left_off: 3, beyond_git: 0 }, "{text}");
        assert!(!missing.is_complete());
    }
}
