//! `avfs mv`

use clap::Args;

use avfs_ops::GivenPath;

use crate::cli::EditOptions;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::Outcome;

/// Move or rename a path inside a fork
///
/// Replaces an existing file, but not a directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs mv draft.md README.md
  avfs mv src/old src/new --fork experiment")]
pub struct MvArgs {
    /// The path to move
    #[arg(value_parser = tree_path())]
    from: GivenPath,
    /// The new path, or the directory to move into
    #[arg(value_parser = tree_path())]
    to: GivenPath,
    #[command(flatten)]
    edit: EditOptions,
}

pub fn run(ctx: &CommandContext, args: MvArgs) -> Outcome {
    let MvArgs { from, to, edit } = args;
    let workplace = ctx.client.open()?;
    edited::answer(ctx, &avfs_ops::mv(&workplace, &edit.into(), &from, &to)?)
}
