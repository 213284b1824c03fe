//! `avfs rm`

use clap::Args;

use avfs_ops::{GivenPath, VerbError, within};
use avfs_types::path::TreePath;
use avfs_vault::ops::Depth;

use crate::cli::EditOptions;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::Outcome;

/// Remove paths from a fork
///
/// All paths are removed in one version.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs rm old.txt notes.txt
  avfs rm -r target --fork experiment")]
pub struct RmArgs {
    /// The paths to remove
    #[arg(value_name = "PATH", required = true, value_parser = tree_path())]
    paths: Vec<GivenPath>,
    #[command(flatten)]
    edit: EditOptions,
    /// Remove directories and their contents
    #[arg(short, long)]
    recursive: bool,
}

pub fn run(ctx: &CommandContext, args: &RmArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let paths = within(&args.paths, &vault)?;
    let message = args.edit.message_or(|| {
        let names: Vec<String> = paths.iter().map(TreePath::to_string).collect();
        format!("rm {}", names.join(" "))
    });
    let depth = if args.recursive { Depth::Recursive } else { Depth::FilesOnly };
    let committed = vault
        .remove(&args.edit.on.fork, &paths, depth, &message)
        .map_err(VerbError::in_version(&args.edit.on.fork))?;
    edited::answer(ctx, &vault, &args.edit.on.fork, &committed)
}
