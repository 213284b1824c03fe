//! `avfs ls`

use clap::Args;

use avfs_ops::{EntriesQuery, Entry, EntryFilter, GivenPath};
use avfs_terminal::{Painted, Tone};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_wire::{EntryObject, NodeKind};

use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome};
use crate::view::{arrow, local_file_time};

/// List a directory of a version
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs ls main
  avfs ls main src -l
  avfs ls main@good -R")]
pub struct LsArgs {
    /// The version to list
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The directory or file to list [default: the root]
    #[arg(default_value = "", hide_default_value = true, value_parser = tree_path())]
    path: GivenPath,
    /// Also show type, mode, size and time
    #[arg(short, long)]
    long: bool,
    /// List all entries beneath the directory, with full paths
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub fn run(ctx: &CommandContext, args: LsArgs) -> Outcome {
    let LsArgs { reference, path, long, recursive } = args;
    let workplace = ctx.client.open()?;
    let depth = if recursive { None } else { Some(1) };
    let query = EntriesQuery { reference, path, depth, filter: EntryFilter::default() };
    if ctx.ui.format == Format::Json {
        return ctx.ui.answer(&avfs_ops::entries(&workplace, &query)?, |_| Ok(()));
    }
    ctx.ui.answer(&(), |out| {
        let show = &mut |entry: Entry<'_>| {
            let name = shown_name(out, &entry, recursive);
            if !long {
                return out.line(format_args!("{name}"));
            }
            let (columns, target) = (long_columns(&entry.object()?), arrow(entry.target()));
            out.line(format_args!("{columns}  {name}{target}"))
        };
        avfs_ops::each_entry(&workplace, &query, show).map(drop)
    })
}

/// The base name or the full path, with a slash after directories.
fn shown_name(out: &Out, entry: &Entry<'_>, whole: bool) -> Painted {
    let short = entry.path.split().and_then(|(_, name)| TreePath::parse(name).ok());
    let name = if whole { entry.path.clone() } else { short.unwrap_or_else(|| entry.path.clone()) };
    match entry.kind() {
        NodeKind::Dir => out.paint(Tone::Name, name).then(Painted::plain("/")),
        NodeKind::File | NodeKind::Symlink | NodeKind::Fifo => Painted::plain(name),
    }
}

/// `-rw-r--r--       1234  2026-01-31 12:00:00`
fn long_columns(entry: &EntryObject) -> String {
    let kind = match entry.kind {
        NodeKind::File => '-',
        NodeKind::Dir => 'd',
        NodeKind::Symlink => 'l',
        NodeKind::Fifo => 'p',
    };
    let mode = entry.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let time = local_file_time(avfs_types::clock::FileTime::from_nanos(entry.mtime_ns));
    format!("{kind}{}  {:>12}  {time}", mode_letters(mode.unwrap_or(0o777)), entry.size)
}

fn mode_letters(mode: u32) -> String {
    let letter = |bit: u32, on: char| if mode & bit != 0 { on } else { '-' };
    let execute =
        |bit: u32, special: u32, both: char, alone: char| match (mode & bit != 0, mode & special != 0) {
            (true, true) => both,
            (false, true) => alone,
            (true, false) => 'x',
            (false, false) => '-',
        };
    [
        letter(0o400, 'r'),
        letter(0o200, 'w'),
        execute(0o100, 0o4000, 's', 'S'),
        letter(0o040, 'r'),
        letter(0o020, 'w'),
        execute(0o010, 0o2000, 's', 'S'),
        letter(0o004, 'r'),
        letter(0o002, 'w'),
        execute(0o001, 0o1000, 't', 'T'),
    ]
    .iter()
    .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn modes_are_formatted_like_ls() {
        for (mode, letters) in
            [(0o644, "rw-r--r--"), (0o4755, "rwsr-xr-x"), (0o1777, "rwxrwxrwt"), (0o2640, "rw-r-S---")]
        {
            assert_eq!(super::mode_letters(mode), letters);
        }
    }
}
