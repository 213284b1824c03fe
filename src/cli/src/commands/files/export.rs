//! `avfs export`

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;

use avfs_ops::{GivenPath, VerbError, within};
use avfs_types::reference::Reference;
use avfs_types::show_bytes_size;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::set_ids::SetIds;
use avfs_vault::transfer;
use avfs_vault::write_out::Unwritten;
use avfs_wire::{ErrorBody, Export, PathText};

use crate::commands::apply::show_stripped;
use crate::commands::import::list_paths;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Out, Outcome};
use crate::view::{View, plural};

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

pub fn run(ctx: &CommandContext, args: &ExportArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let (id, root) = {
        let view = View::open(&vault, &args.reference)?;
        (view.version.id, view.root)
    };
    let paths = within(&args.paths, &vault)?;
    let dest = ctx.client.surroundings.cwd.join(&args.dest);
    let overwrite = if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
    let progress = ctx.client.observer.operation("exporting")?;
    let unwritten = Unwritten::default();
    let options = ExportOptions {
        overwrite,
        paths: &paths,
        set_ids: if args.keep_setid { SetIds::Kept } else { SetIds::Stripped },
        meter: &progress.meter,
        unwritten: args.keep_going.then_some(&unwritten),
    };
    let stripped = vault.export(&root, &dest, &options).map_err(|error| match error {
        transfer::Error::Vault(error) => VerbError::in_version(&args.reference)(error),
        error => error.into(),
    })?;
    let left_out = unwritten.into_sorted();
    let result = Export {
        version: id.to_hex(),
        dest: dest.to_string_lossy().into_owned(),
        files: progress.meter.files.load(Ordering::Relaxed),
        bytes: progress.meter.bytes.load(Ordering::Relaxed),
        left_out: left_out.iter().map(|(path, why)| avfs_present::left_out(path, why)).collect(),
        set_ids_stripped: stripped.iter().map(PathText::of).collect(),
    };
    drop(progress);
    let show = |out: &mut Out| {
        list_paths(out, left_out.iter().map(|(path, why)| (path, why)))?;
        show_stripped(out, &stripped)?;
        let (files, bytes) = (plural(result.files, "file", "files"), show_bytes_size(result.bytes));
        out.line(format_args!("exported version {} to {}: {files}, {bytes}", id.short(), dest.display()))
    };
    if left_out.is_empty() {
        return ctx.ui.answer(&result, show);
    }
    let message =
        format!("{} could not be written completely", plural(left_out.len() as u64, "path", "paths"));
    let avfs = &ctx.ui.avfs;
    let hint = format!(
        "repair from a directory that has the content with: {avfs} fsck --heal DIR, then export again"
    );
    let error = ErrorBody { code: "export.left_out".to_owned(), message, hint: Some(hint) };
    ctx.ui.answer_no(&result, &error, show)
}
