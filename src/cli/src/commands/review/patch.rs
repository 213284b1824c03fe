//! Output of changes: a summary, names, a tree, line counts, or a patch.

use avfs_ops::{ChangeLine, ChangeLines, OpError};
use avfs_terminal::{Painted, Tone};
use avfs_types::show_bytes_size;
use avfs_wire::{ChangeKindName, ChangeTotals, DiffTreeLine, FileStat};

use crate::ui::Out;
use crate::view::plural;

const BAR_COLUMNS: u64 = 40;

const fn tone(kind: ChangeKindName) -> Tone {
    match kind {
        ChangeKindName::Added => Tone::Added,
        ChangeKindName::Deleted => Tone::Deleted,
        ChangeKindName::Modified | ChangeKindName::Renamed | ChangeKindName::Mode | ChangeKindName::Type => {
            Tone::Changed
        }
        ChangeKindName::Time => Tone::Dim,
    }
}

/// Prints one line for each change, then the counts.
pub fn show_summary(out: &mut Out, lines: impl Into<ChangeLines>) -> Result<(), OpError> {
    let lines = lines.into();
    for line in lines.iter() {
        let line = line?;
        let word = out.paint(tone(line.kind), format_args!("{:<8}", line.word));
        out.line(format_args!("{word}  {}{}", shown_path(&line), remarks(&line)))?;
    }
    out.line(format_args!("{}", counts_line(&lines.counts)))
}

/// Prints `M<tab>path`, for scripts that do not read JSON.
pub fn show_names(out: &mut Out, lines: &ChangeLines) -> Result<(), OpError> {
    for line in lines.iter() {
        let line = line?;
        let letter = letter(out, &line);
        let from = line.from.map(|from| format!("{from}\t")).unwrap_or_default();
        out.line(format_args!("{letter}\t{from}{}", line.path))?;
    }
    Ok(())
}

fn letter(out: &Out, line: &ChangeLine) -> Painted {
    out.paint(tone(line.kind), line.letter)
}

fn shown_path(line: &ChangeLine) -> String {
    let dir = if line.is_dir { "/" } else { "" };
    let from = line.from.as_ref().map(|from| format!("{from} => ")).unwrap_or_default();
    format!("{from}{}{dir}", line.path)
}

/// The size and other remarks: `  (12 B, mode 0755)`.
fn remarks(line: &ChangeLine) -> String {
    let size = match line.sizes {
        // A file became something else, which has no size.
        (Some(_), None) if line.kind != ChangeKindName::Deleted => None,
        (Some(before), Some(after)) if before != after => {
            Some(format!("{} -> {}", show_bytes_size(before), show_bytes_size(after)))
        }
        (None, Some(size)) | (Some(size), None) => Some(show_bytes_size(size).to_string()),
        (Some(_), Some(_)) | (None, None) => None,
    };
    let remarks: Vec<&str> = size.iter().chain(&line.remarks).map(String::as_str).collect();
    if remarks.is_empty() { String::new() } else { format!("  ({})", remarks.join(", ")) }
}

pub fn counts_line(counts: &ChangeTotals) -> String {
    let ChangeTotals { added, modified, deleted, renamed, mode, r#type: type_changed, time, total: _ } =
        *counts;
    let parts = [
        (added, "added"),
        (modified, "modified"),
        (deleted, "deleted"),
        (renamed, "renamed"),
        (mode, "changed in mode"),
        (type_changed, "changed in type"),
        (time, "changed in time"),
    ];
    let texts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if texts.is_empty() { "no changes".to_owned() } else { texts.join(", ") }
}

/// Prints changed paths as a tree, each with its letter.
pub fn show_tree(
    out: &mut Out,
    rows: &[DiffTreeLine],
    changes: &[Option<ChangeLine>],
) -> Result<(), OpError> {
    for (row, change) in rows.iter().zip(changes) {
        let indent = "  ".repeat(row.depth);
        match change {
            None => out.line(format_args!("  {indent}{}", row.name))?,
            Some(change) => {
                let letter = letter(out, change);
                let from = change.from.as_ref().map(|from| format!("  (from {from})")).unwrap_or_default();
                out.line(format_args!("{letter} {indent}{}{from}{}", row.name, remarks(change)))?;
            }
        }
    }
    Ok(())
}

/// Prints the numbers of changed lines, with bars.
pub fn show_stats(out: &mut Out, stats: &[FileStat], changes: &[Option<ChangeLine>]) -> Result<(), OpError> {
    let names: Vec<String> = changes.iter().flatten().map(shown_path).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let lines = |stat: &FileStat| stat.lines_added + stat.lines_deleted;
    let most = stats.iter().map(lines).max().unwrap_or(0);
    let scale = |lines: u64| {
        let columns = if most <= BAR_COLUMNS { lines } else { (lines * BAR_COLUMNS).div_ceil(most) };
        usize::try_from(columns).unwrap_or(0)
    };
    for (name, stat) in names.iter().zip(stats) {
        if stat.too_large {
            out.line(format_args!(" {name:<width$} | too large to compare"))?;
        } else if stat.binary {
            out.line(format_args!(" {name:<width$} | binary"))?;
        } else {
            let plus = out.paint(Tone::Added, "+".repeat(scale(stat.lines_added)));
            let minus = out.paint(Tone::Deleted, "-".repeat(scale(stat.lines_deleted)));
            out.line(format_args!(" {name:<width$} | {:>5} {plus}{minus}", lines(stat)))?;
        }
    }
    out.line(format_args!(
        " {}, {} (+), {} (-)",
        plural(names.len() as u64, "path", "paths"),
        plural(stats.iter().map(|stat| stat.lines_added).sum(), "line", "lines"),
        plural(stats.iter().map(|stat| stat.lines_deleted).sum(), "line", "lines"),
    ))
}

pub fn show_patch_line(out: &mut Out, line: &[u8]) -> Result<(), OpError> {
    let tone = match line.first() {
        Some(b'+') => Some(Tone::Added),
        Some(b'-') => Some(Tone::Deleted),
        Some(b'@') => Some(Tone::Name),
        Some(b'd') => Some(Tone::Strong),
        Some(b'#') => Some(Tone::Dim),
        Some(_) | None => None,
    };
    out.content_line(tone, line)
}
