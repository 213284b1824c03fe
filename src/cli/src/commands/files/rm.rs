//! `avfs rm`

use clap::Args;

use avfs_ops::{Depth, GivenPath};

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

pub fn run(ctx: &CommandContext, args: RmArgs) -> Outcome {
    let RmArgs { paths, edit, recursive } = args;
    let workplace = ctx.client.open()?;
    let depth = if recursive { Depth::Recursive } else { Depth::FilesOnly };
    edited::answer(ctx, &avfs_ops::rm(&workplace, &edit.into(), &paths, depth)?)
}
