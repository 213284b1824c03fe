//! Output of changes: a summary, names, a tree, line counts, or a patch.

use avfs_changes::{
    ChangeCounts, ChangeSummary, Extent, StatView, TreeView, beside_content, file_sizes, is_dir, kind_words,
};
use avfs_ops::OpError;
use avfs_terminal::Tone;
use avfs_types::show_bytes_size;
use avfs_vault::diff::{Change, ChangeKind};

use crate::ui::Out;
use crate::view::plural;

const BAR_COLUMNS: u64 = 40;

const fn tone(kind: &ChangeKind) -> Tone {
    match kind {
        ChangeKind::Added => Tone::Added,
        ChangeKind::Deleted => Tone::Deleted,
        ChangeKind::Modified | ChangeKind::Renamed { .. } | ChangeKind::Mode | ChangeKind::Type => {
            Tone::Changed
        }
        ChangeKind::Time => Tone::Dim,
    }
}

/// Prints one line for each change, then the counts.
pub fn show_summary(out: &mut Out, summary: &ChangeSummary) -> std::result::Result<(), OpError> {
    for change in summary.changes.iter() {
        let change = &*change?;
        let (name, _) = kind_words(&change.kind);
        let name = out.paint(tone(&change.kind), format_args!("{name:<8}"));
        out.line(format_args!("{name}  {}{}", shown_path(change), remarks(change)))?;
    }
    out.line(format_args!("{}", counts_line(&summary.counts)))
}

/// Prints `M<tab>path`, for scripts that do not read JSON.
pub fn show_names(out: &mut Out, summary: &ChangeSummary) -> std::result::Result<(), OpError> {
    for change in summary.changes.iter() {
        let change = &*change?;
        let (_, letter) = kind_words(&change.kind);
        let letter = out.paint(tone(&change.kind), letter);
        match &change.kind {
            ChangeKind::Renamed { from } => out.line(format_args!("{letter}\t{from}\t{}", change.path))?,
            ChangeKind::Added
            | ChangeKind::Deleted
            | ChangeKind::Modified
            | ChangeKind::Mode
            | ChangeKind::Type
            | ChangeKind::Time => out.line(format_args!("{letter}\t{}", change.path))?,
        }
    }
    Ok(())
}

fn shown_path(change: &Change) -> String {
    let dir = if is_dir(change) { "/" } else { "" };
    match &change.kind {
        ChangeKind::Renamed { from } => format!("{from} => {}{dir}", change.path),
        ChangeKind::Added
        | ChangeKind::Deleted
        | ChangeKind::Modified
        | ChangeKind::Mode
        | ChangeKind::Type
        | ChangeKind::Time => format!("{}{dir}", change.path),
    }
}

/// The size and other remarks: `  (12 B, mode 0755)`.
fn remarks(change: &Change) -> String {
    let size = match file_sizes(change) {
        // A file became something else, which has no size.
        (Some(_), None) if change.after.is_some() => None,
        (Some(before), Some(after)) if before != after => {
            Some(format!("{} -> {}", show_bytes_size(before), show_bytes_size(after)))
        }
        (None, Some(size)) | (Some(size), None) => Some(show_bytes_size(size).to_string()),
        (Some(_), Some(_)) | (None, None) => None,
    };
    let remarks: Vec<String> = size.into_iter().chain(beside_content(change)).collect();
    if remarks.is_empty() { String::new() } else { format!("  ({})", remarks.join(", ")) }
}

pub fn counts_line(counts: &ChangeCounts) -> String {
    let ChangeCounts { added, modified, deleted, renamed, mode, type_changed, time } = *counts;
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
pub fn show_tree(out: &mut Out, view: &TreeView) -> std::result::Result<(), OpError> {
    for line in &view.lines {
        let indent = "  ".repeat(line.depth);
        match &line.change {
            None => out.line(format_args!("  {indent}{}", line.name))?,
            Some(change) => {
                let (_, letter) = kind_words(&change.kind);
                let letter = out.paint(tone(&change.kind), letter);
                let from = match &change.kind {
                    ChangeKind::Renamed { from } => format!("  (from {from})"),
                    ChangeKind::Added
                    | ChangeKind::Deleted
                    | ChangeKind::Modified
                    | ChangeKind::Mode
                    | ChangeKind::Type
                    | ChangeKind::Time => String::new(),
                };
                let remarks = remarks(change);
                out.line(format_args!("{letter} {indent}{}{from}{remarks}", line.name))?;
            }
        }
    }
    Ok(())
}

pub fn show_stats(out: &mut Out, view: &StatView) -> std::result::Result<(), OpError> {
    let names: Vec<String> = view.paths.iter().map(|(change, _)| shown_path(change)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let lines = |extent: &Extent| match extent {
        Extent::Lines(stat) => stat.added + stat.deleted,
        Extent::Binary | Extent::TooLarge => 0,
    };
    let most = view.paths.iter().map(|(_, extent)| lines(extent)).max().unwrap_or(0);
    let scale = |lines: u64| {
        let columns = if most <= BAR_COLUMNS { lines } else { (lines * BAR_COLUMNS).div_ceil(most) };
        usize::try_from(columns).unwrap_or(0)
    };
    for (name, (_, extent)) in names.iter().zip(&view.paths) {
        match extent {
            Extent::Lines(stat) => {
                let plus = out.paint(Tone::Added, "+".repeat(scale(stat.added)));
                let minus = out.paint(Tone::Deleted, "-".repeat(scale(stat.deleted)));
                out.line(format_args!(" {name:<width$} | {:>5} {plus}{minus}", lines(extent)))?;
            }
            Extent::Binary => out.line(format_args!(" {name:<width$} | binary"))?,
            Extent::TooLarge => out.line(format_args!(" {name:<width$} | too large to compare"))?,
        }
    }
    out.line(format_args!(
        " {}, {} (+), {} (-)",
        plural(names.len() as u64, "path", "paths"),
        plural(view.total.added, "line", "lines"),
        plural(view.total.deleted, "line", "lines"),
    ))
}

pub fn show_patch_line(out: &mut Out, line: &[u8]) -> std::result::Result<(), OpError> {
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
