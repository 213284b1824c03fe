//! `avfs cp`

use clap::Args;

use avfs_ops::{Depth, GivenPath};

use crate::cli::EditOptions;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::Outcome;

/// Copy a path inside a fork
///
/// The copy shares the content: nothing is stored twice. Replaces an existing file, but not a directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs cp config.toml config.bak
  avfs cp -r src attic --fork experiment")]
pub struct CpArgs {
    /// The path to copy
    #[arg(value_parser = tree_path())]
    from: GivenPath,
    /// The path of the copy, or the directory to copy into
    #[arg(value_parser = tree_path())]
    to: GivenPath,
    #[command(flatten)]
    edit: EditOptions,
    /// Copy directories and their contents
    #[arg(short, long)]
    recursive: bool,
}

pub fn run(ctx: &CommandContext, args: CpArgs) -> Outcome {
    let CpArgs { from, to, edit, recursive } = args;
    let workplace = ctx.client.open()?;
    let depth = if recursive { Depth::Recursive } else { Depth::FilesOnly };
    edited::answer(ctx, &avfs_ops::cp(&workplace, &edit.into(), &from, &to, depth)?)
}
