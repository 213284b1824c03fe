//! `avfs export`

use std::path::PathBuf;

use clap::Args;

use avfs_ops::{ExportQuery, GivenPath, Overwrite, SetIds};
use avfs_present::error_body;
use avfs_types::reference::Reference;
use avfs_types::show_bytes_size;

use crate::commands::apply::show_stripped;
use crate::commands::import::list_paths;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Out, Outcome};
use crate::view::{plural, short};

/// Write a version, or some of its paths, to a directory
///
/// Restores content, modes, modification times, links and extended attributes. Writes to a staging directory
/// next to DEST first, so a failed or interrupted export leaves nothing behind. Setuid and setgid bits are
/// stripped, and the files are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs export main /tmp/copy
  avfs export main~3 /tmp/old src docs/README.md
  avfs export main@good . --overwrite
  avfs export main /tmp/rest --keep-going")]
pub struct ExportArgs {
    /// The version to export
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The destination directory: new or empty, or any directory with --overwrite
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dest: PathBuf,
    /// Export only these paths, each at its path in the version
    #[arg(value_name = "PATH", value_parser = tree_path())]
    paths: Vec<GivenPath>,
    /// Replace existing files; files that are not in the version stay
    #[arg(long)]
    overwrite: bool,
    /// Keep setuid and setgid bits of regular files [default: strip them]
    #[arg(long)]
    keep_setid: bool,
    /// Skip files that are damaged or missing in the vault, list them, and exit with 1
    #[arg(long)]
    keep_going: bool,
}

pub fn run(ctx: &CommandContext, args: ExportArgs) -> Outcome {
    let ExportArgs { reference, dest, paths, overwrite, keep_setid, keep_going } = args;
    let workplace = ctx.client.open()?;
    let overwrite = if overwrite { Overwrite::Replace } else { Overwrite::Refuse };
    let set_ids = if keep_setid { SetIds::Kept } else { SetIds::Stripped };
    let query = ExportQuery { reference, dest, paths, overwrite, set_ids, keep_going };
    let (result, left_out) = avfs_ops::export(&workplace, &query)?;
    let show = |out: &mut Out| {
        list_paths(out, result.left_out.iter().map(|left_out| (&left_out.path, &left_out.message)))?;
        show_stripped(out, &result.set_ids_stripped)?;
        let (files, bytes) = (plural(result.files, "file", "files"), show_bytes_size(result.bytes));
        let (version, dest) = (short(&result.version), &result.dest);
        out.line(format_args!("exported version {version} to {dest}: {files}, {bytes}"))
    };
    match left_out {
        None => ctx.ui.answer(&result, show),
        Some(why) => ctx.ui.answer_no(&result, &error_body(&why, &ctx.ui.avfs), show),
    }
}
