//! How changes are shown: a summary, names, numbers of lines, or a unified diff.

use avfs::backend::Reader;
use avfs::runtime::envelope::FileStat;
use avfs::runtime::{ChangeCounts, ChangeSummary, TextChange, show_bytes_size, text_change};
use avfs::vault::Result;
use avfs::vault::diff::{Change, ChangeKind, Side};
use avfs::vault::page::Node;

use crate::ui::{Failure, Out, Tone};
use crate::view::plural;

const BAR_COLUMNS: u64 = 40;

fn word(kind: &ChangeKind) -> (&'static str, char, Tone) {
    match kind {
        ChangeKind::Added => ("added", 'A', Tone::Added),
        ChangeKind::Deleted => ("deleted", 'D', Tone::Deleted),
        ChangeKind::Modified => ("modified", 'M', Tone::Changed),
        ChangeKind::Renamed { .. } => ("renamed", 'R', Tone::Changed),
        ChangeKind::Mode => ("mode", 'm', Tone::Changed),
        ChangeKind::Type => ("type", 'T', Tone::Changed),
        ChangeKind::Time => ("time", 't', Tone::Dim),
    }
}

/// One line for each change, and their number.
pub fn show_summary(out: &mut Out, summary: &ChangeSummary) -> std::result::Result<(), Failure> {
    for change in &summary.changes {
        let (name, _, tone) = word(&change.kind);
        let name = out.paint(tone, format_args!("{name:<8}"));
        out.line(format_args!("{name}  {}{}", shown_path(change), size_change(change)))?;
    }
    out.line(format_args!("{}", counts_line(&summary.counts)))
}

/// `M<tab>path`, for scripts that do not read JSON.
pub fn show_names(out: &mut Out, summary: &ChangeSummary) -> std::result::Result<(), Failure> {
    for change in &summary.changes {
        let (_, letter, tone) = word(&change.kind);
        let letter = out.paint(tone, letter);
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
    let slash = |side: &Option<Side>| matches!(side, Some(Side { node: Node::Dir(_), .. }));
    let dir =
        if slash(&change.after) || (change.after.is_none() && slash(&change.before)) { "/" } else { "" };
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

fn size_change(change: &Change) -> String {
    let size = |side: &Option<Side>| match side.as_ref().map(|side| &side.node) {
        Some(Node::File(file)) => Some(file.size),
        Some(Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
    };
    match (size(&change.before), size(&change.after)) {
        (Some(before), Some(after)) if before != after => {
            format!("  ({} -> {})", show_bytes_size(before), show_bytes_size(after))
        }
        (None, Some(size)) | (Some(size), None) => format!("  ({})", show_bytes_size(size)),
        (Some(_), Some(_)) | (None, None) => String::new(),
    }
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
    let told: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if told.is_empty() { "no changes".to_owned() } else { told.join(", ") }
}

/// Lines that came and went, file by file.
pub fn stats(reader: &dyn Reader, summary: &ChangeSummary) -> Result<Vec<FileStat>> {
    let mut stats = Vec::new();
    for change in &summary.changes {
        match text_change(reader, change)? {
            TextChange::Lines { stat, .. } => stats.push(FileStat::lines(&change.path, stat)),
            TextChange::Binary | TextChange::TooLarge => stats.push(FileStat::binary(&change.path)),
            TextChange::NoContent => stats.push(FileStat::lines(&change.path, Default::default())),
        }
    }
    Ok(stats)
}

pub fn show_stats(
    out: &mut Out,
    summary: &ChangeSummary,
    stats: &[FileStat],
) -> std::result::Result<(), Failure> {
    let names: Vec<String> = summary.changes.iter().map(shown_path).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let most = stats.iter().map(|stat| stat.lines_added + stat.lines_deleted).max().unwrap_or(0);
    let scale = |lines: u64| {
        let columns = if most <= BAR_COLUMNS { lines } else { (lines * BAR_COLUMNS).div_ceil(most) };
        usize::try_from(columns).unwrap_or(0)
    };
    for (name, stat) in names.iter().zip(stats) {
        if stat.binary {
            out.line(format_args!(" {name:<width$} | binary"))?;
            continue;
        }
        let plus = out.paint(Tone::Added, "+".repeat(scale(stat.lines_added)));
        let minus = out.paint(Tone::Deleted, "-".repeat(scale(stat.lines_deleted)));
        out.line(format_args!(
            " {name:<width$} | {:>5} {plus}{minus}",
            stat.lines_added + stat.lines_deleted
        ))?;
    }
    let total = |count: fn(&FileStat) -> u64| stats.iter().map(count).sum::<u64>();
    out.line(format_args!(
        " {}, {} (+), {} (-)",
        plural(stats.len() as u64, "path", "paths"),
        plural(total(|stat| stat.lines_added), "line", "lines"),
        plural(total(|stat| stat.lines_deleted), "line", "lines"),
    ))
}

/// The unified diff of one change: header and hunks, one line after the other.
pub fn patch_lines(reader: &dyn Reader, change: &Change) -> Result<Vec<Vec<u8>>> {
    let side = |prefix: &str, side: &Option<Side>, path: &dyn std::fmt::Display| match side {
        Some(_) => format!("{prefix}/{path}"),
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
    let (old, new) = (side("a", &change.before, old_path), side("b", &change.after, &change.path));
    let (name, _, _) = word(&change.kind);
    let mut lines = vec![format!("diff --avfs a/{old_path} b/{} ({name})", change.path).into_bytes()];
    lines.extend(mode_lines(change));
    match text_change(reader, change)? {
        TextChange::NoContent => {}
        TextChange::Binary => lines.push(format!("binary files {old} and {new} differ").into_bytes()),
        TextChange::TooLarge => {
            lines.push(format!("files {old} and {new} differ; too large to be shown").into_bytes());
        }
        TextChange::Lines { hunks, .. } if hunks.is_empty() => {}
        TextChange::Lines { hunks, .. } => {
            lines.push(format!("--- {old}").into_bytes());
            lines.push(format!("+++ {new}").into_bytes());
            let text = hunks.strip_suffix(b"\n").unwrap_or(&hunks);
            lines.extend(text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec));
        }
    }
    Ok(lines)
}

fn mode_lines(change: &Change) -> Vec<Vec<u8>> {
    let mode = |side: &Option<Side>| match side {
        Some(Side { node: Node::File(file), .. }) => Some(file.mode),
        Some(Side { node: Node::Fifo(fifo), .. }) => Some(fifo.mode),
        Some(Side { node: Node::Dir(_), dir_meta }) => dir_meta.as_ref().map(|meta| meta.mode),
        Some(Side { node: Node::Symlink(_), .. }) | None => None,
    };
    match (mode(&change.before), mode(&change.after)) {
        (Some(old), Some(new)) if old != new => {
            vec![format!("old mode {old:04o}").into_bytes(), format!("new mode {new:04o}").into_bytes()]
        }
        (Some(_) | None, _) => Vec::new(),
    }
}

pub fn show_patch_line(out: &mut Out, line: &[u8]) -> std::result::Result<(), Failure> {
    let tone = match line.first() {
        Some(b'+') => Some(Tone::Added),
        Some(b'-') => Some(Tone::Deleted),
        Some(b'@') => Some(Tone::Name),
        Some(b'd') => Some(Tone::Strong),
        Some(_) | None => None,
    };
    let (on, off) = tone.map(|tone| out.brackets(tone)).unwrap_or_default();
    out.bytes(on.as_bytes())?;
    out.content(line)?;
    out.bytes(off.as_bytes())?;
    out.bytes(b"\n")
}
