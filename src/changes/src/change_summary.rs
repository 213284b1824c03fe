//! The changes between two trees, in display order: counted, filtered, and as text.

use std::sync::Arc;

use avfs_types::path::TreePath;
use avfs_vault::backend::Reader;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::{DirRef, FileNode, Node};
use avfs_vault::renames::find_renames_while;
use avfs_vault::tree::Pages;
use avfs_vault::{Result, Vault, read_content};

use crate::line_diff::{DiffSteps, Replaced, compare};

/// Larger files are reported as different, without their lines.
pub const TEXT_BYTES_MAX: u64 = 8 << 20;
/// A NUL byte within this prefix makes a file binary, as in git.
const BINARY_LOOK_BYTES: usize = 8000;
const CONTEXT_LINES: usize = 3;
/// The marker in a unified diff after a last line without a newline.
const NO_NEWLINE: &[u8] = b"\n\\ No newline at end of file\n";

/// Whether to report changes of the modification time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    WithoutTimes,
    WithTimes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
    pub renamed: u64,
    pub mode: u64,
    pub type_changed: u64,
    pub time: u64,
}

impl ChangeCounts {
    fn count(&mut self, kind: &ChangeKind) {
        let counter = match kind {
            ChangeKind::Added => &mut self.added,
            ChangeKind::Deleted => &mut self.deleted,
            ChangeKind::Modified => &mut self.modified,
            ChangeKind::Renamed { .. } => &mut self.renamed,
            ChangeKind::Mode => &mut self.mode,
            ChangeKind::Type => &mut self.type_changed,
            ChangeKind::Time => &mut self.time,
        };
        *counter += 1;
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { added, modified, deleted, renamed, mode, type_changed, time } = self;
        added + modified + deleted + renamed + mode + type_changed + time
    }
}

/// The changes to report, and their number by kind.
#[derive(Clone, Debug, Default)]
pub struct ChangeSummary {
    pub changes: Arc<Changes>,
    pub counts: ChangeCounts,
}

impl ChangeSummary {
    /// Compares two roots. `paths` limits the result to changes at or beneath one of them.
    pub fn compare(
        vault: &Vault,
        pages: &dyn Pages,
        (before, after): (&DirRef, &DirRef),
        paths: &[TreePath],
        shown: Shown,
    ) -> Result<Self> {
        let wanted = |change: &Change| {
            let timed = shown == Shown::WithTimes || change.kind != ChangeKind::Time;
            timed && (paths.is_empty() || paths.iter().any(|path| path.contains(&change.path)))
        };
        // Filter before renames are detected, so that a file moved out of the requested paths is shown as deleted.
        let found = Changes::between(pages, (before, after), vault.temporary_dirs(), wanted)?;
        Self::of_while(found, &|| pages.require_going())
    }

    /// A summary of known changes.
    pub fn of(found: Changes) -> Result<Self> {
        Self::of_while(found, &|| Ok(()))
    }

    fn of_while(found: Changes, going: &dyn Fn() -> Result<()>) -> Result<Self> {
        let changes = find_renames_while(found, going)?;
        let mut counts = ChangeCounts::default();
        for change in &changes {
            going()?;
            counts.count(&change?.kind);
        }
        Ok(Self { changes: Arc::new(changes), counts })
    }
}

/// Added and deleted lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStat {
    pub added: u64,
    pub deleted: u64,
}

/// One change as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextChange {
    /// Neither side has content to compare: directories, fifos, times, modes.
    NoContent,
    Binary,
    TooLarge,
    Lines {
        stat: LineStat,
        /// The hunks of a unified diff, without file headers.
        hunks: Vec<u8>,
    },
}

/// The text of a change. `reader` must have the content of both sides. Files that take more steps than are left
/// are reported as replaced.
pub fn text_change(reader: &dyn Reader, change: &Change, steps: &mut DiffSteps) -> Result<TextChange> {
    let read = |side| side_bytes(reader, side).map_err(|error| error.in_file(&change.path));
    let (old, new) = (read(change.before.as_ref())?, read(change.after.as_ref())?);
    Ok(match (old, new) {
        (Content::TooLarge, _) | (_, Content::TooLarge) => TextChange::TooLarge,
        (Content::None, Content::None) => TextChange::NoContent,
        (Content::None | Content::Bytes(_), Content::None | Content::Bytes(_)) if same_content(change) => {
            TextChange::NoContent
        }
        (old, new) => compare_bytes(&old.into_bytes(), &new.into_bytes(), steps),
    })
}

enum Content {
    None,
    Bytes(Vec<u8>),
    TooLarge,
}

impl Content {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::None | Self::TooLarge => Vec::new(),
        }
    }
}

fn side_bytes(reader: &dyn Reader, side: Option<&Side>) -> Result<Content> {
    Ok(match side.map(|side| &side.node) {
        Some(Node::File(FileNode { size, .. })) if *size > TEXT_BYTES_MAX => Content::TooLarge,
        Some(Node::File(file)) => Content::Bytes(read_content(reader, file)?),
        Some(Node::Symlink(link)) => Content::Bytes(link.target.clone()),
        Some(Node::Fifo(_) | Node::Dir(_)) | None => Content::None,
    })
}

fn same_content(change: &Change) -> bool {
    match &change.kind {
        ChangeKind::Mode | ChangeKind::Time | ChangeKind::Renamed { .. } => true,
        ChangeKind::Added | ChangeKind::Deleted | ChangeKind::Modified | ChangeKind::Type => false,
    }
}

#[must_use]
pub fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, &bytes[..bytes.len().min(BINARY_LOOK_BYTES)]).is_some()
}

pub(crate) fn compare_bytes(old: &[u8], new: &[u8], steps: &mut DiffSteps) -> TextChange {
    if is_binary(old) || is_binary(new) {
        return TextChange::Binary;
    }
    let (old, new) = (lines(old), lines(new));
    let replaced = compare(&old, &new, steps);
    let mut stat = LineStat::default();
    for one in &replaced {
        stat.added += one.new.len() as u64;
        stat.deleted += one.old.len() as u64;
    }
    let close = |a: &Replaced, b: &Replaced| b.old.start - a.old.end <= 2 * CONTEXT_LINES;
    let mut hunks = Vec::new();
    for hunk in replaced.chunk_by(close) {
        write_hunk(&mut hunks, &old, &new, hunk);
    }
    TextChange::Lines { stat, hunks }
}

/// One hunk of a unified diff: adjacent changes with their context lines.
fn write_hunk(out: &mut Vec<u8>, old: &[&[u8]], new: &[&[u8]], hunk: &[Replaced]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let above = first.old.start.min(CONTEXT_LINES);
    let below = (old.len() - last.old.end).min(CONTEXT_LINES);
    let begun = first.old.start - above;
    let span = |start: usize, end: usize| match end - start {
        // An empty range names the line before it.
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    };
    let (old_span, new_span) =
        (span(begun, last.old.end + below), span(first.new.start - above, last.new.end + below));
    out.extend_from_slice(format!("@@ -{old_span} +{new_span} @@\n").as_bytes());
    let mut write = |sign: u8, lines: &[&[u8]]| {
        for line in lines {
            out.push(sign);
            out.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                out.extend_from_slice(NO_NEWLINE);
            }
        }
    };
    let mut at = begun;
    for one in hunk {
        write(b' ', &old[at..one.old.start]);
        write(b'-', &old[one.old.clone()]);
        write(b'+', &new[one.new.clone()]);
        at = one.old.end;
    }
    write(b' ', &old[at..at + below]);
}

/// The lines of a text, including their newlines. Only a newline ends a line, as in git and patch(1).
#[must_use]
pub fn lines(text: &[u8]) -> Vec<&[u8]> {
    each_line(text).collect()
}

/// Like [`lines`], as an iterator.
pub fn each_line(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(old: &[u8], new: &[u8]) -> TextChange {
        compare_bytes(old, new, &mut DiffSteps::default())
    }

    #[test]
    fn text_is_compared_line_by_line_and_binary_is_not() {
        let TextChange::Lines { stat, hunks } = text_of(b"a\nb\n", b"a\nc\nd\n") else { panic!() };
        assert_eq!(stat, LineStat { added: 2, deleted: 1 });
        assert_eq!(String::from_utf8(hunks).unwrap(), "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n");
        assert_eq!(text_of(b"a\0", b"b"), TextChange::Binary);
        let TextChange::Lines { hunks, .. } = text_of(b"caf\xe9\nend", b"caf\xe8\nend") else { panic!() };
        let wanted = b"@@ -1,2 +1,2 @@\n-caf\xe9\n+caf\xe8\n end\n\\ No newline at end of file\n";
        assert_eq!(hunks, wanted);
    }

    #[test]
    fn lines_end_at_newlines_only() {
        let diffed = |old: &[u8], new: &[u8]| {
            let TextChange::Lines { stat, hunks } = text_of(old, new) else { panic!() };
            (stat.added, stat.deleted, String::from_utf8(hunks).unwrap())
        };
        let text = "@@ -1 +1 @@\n-\r\n\\ No newline at end of file\n+hello\n";
        assert_eq!(diffed(b"\r", b"hello\n"), (1, 1, text.to_owned()));
        let text = "@@ -1,2 +1,2 @@\n-a\rb\n+a\rc\n same\r\n";
        assert_eq!(diffed(b"a\rb\nsame\r\n", b"a\rc\nsame\r\n"), (1, 1, text.to_owned()));
        let text = "@@ -1 +1 @@\n-x\r\n+x\r\n\\ No newline at end of file\n";
        assert_eq!(diffed(b"x\r\n", b"x\r"), (1, 1, text.to_owned()));
        assert_eq!(diffed(b"", b"a"), (1, 0, "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n".to_owned()));
    }
}
