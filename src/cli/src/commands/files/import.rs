//! `avfs import`

use std::path::PathBuf;

use clap::Args;

use avfs_ops::{ImportQuery, OpError};
use avfs_types::show_bytes_size;
use avfs_wire::{Import, PathText};

use crate::cli::{OnFork, remark};
use crate::commands::{edited, patch};
use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::plural;

/// Record the current state of a directory as a new version of a fork
///
/// Files known to be unchanged are not read again. Paths that match .avfsignore files (gitignore syntax) are
/// left out. If nothing changed, including times, no version is added.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs import
  avfs import -m 'tests pass'
  avfs import ../other --fork experiment
  avfs import --keep-going")]
pub struct ImportArgs {
    /// The directory to import, as the whole content of the fork [default: the bound directory of the vault]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    on: OnFork,
    /// Record this message with the version
    #[arg(short, long, value_name = "TEXT", default_value = "import", value_parser = remark)]
    message: String,
    /// Continue past files that vanish, cannot be read or keep changing, and list them
    ///
    /// An unreadable file keeps its content from the fork; a changing file is stored as it was last read.
    #[arg(long)]
    keep_going: bool,
}

/// The number of paths that are listed individually.
const PATHS_LISTED_MAX: usize = 100;

/// Lists the first paths, each with the reason.
pub fn list_paths<'p>(
    out: &mut Out,
    paths: impl ExactSizeIterator<Item = (&'p PathText, &'p String)>,
) -> Result<(), OpError> {
    let more = paths.len().saturating_sub(PATHS_LISTED_MAX);
    for (path, why) in paths.take(PATHS_LISTED_MAX) {
        out.line(format_args!("left out or inexact: {path}: {why}"))?;
    }
    if more > 0 {
        out.line(format_args!("and {more} more; list all with: --json"))?;
    }
    Ok(())
}

pub fn run(ctx: &CommandContext, args: ImportArgs) -> Outcome {
    let ImportArgs { dir, on, message, keep_going } = args;
    let workplace = ctx.client.open()?;
    let query = ImportQuery { dir, fork: on.fork, message, keep_going };
    let imported = avfs_ops::import(&workplace, &query)?;
    ctx.ui.answer(&imported, |out| show(out, &imported))
}

pub fn show(out: &mut Out, imported: &Import) -> Result<(), OpError> {
    edited::show(out, &imported.edited)?;
    if let (Some(counts), true) = (&imported.change_counts, imported.edited.changed) {
        let line =
            if counts.total == 0 { "only times changed".to_owned() } else { patch::counts_line(counts) };
        out.line(format_args!("{line}"))?;
    }
    let version = &imported.edited.version;
    out.line(format_args!(
        "{}, {}; read {} ({})",
        plural(version.entries, "entry", "entries"),
        show_bytes_size(version.bytes),
        plural(imported.files_read, "file", "files"),
        show_bytes_size(imported.bytes_read),
    ))?;
    list_paths(out, imported.troubles.iter().map(|trouble| (&trouble.path, &trouble.message)))
}
