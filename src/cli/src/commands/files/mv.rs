//! `avfs mv`

use clap::Args;

use avfs_types::path::TreePath;
use avfs_vault::ops::Target;

use crate::cli::{EditOptions, target, tree_path};
use crate::commands::edited;
use crate::context::CommandContext;
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
    from: TreePath,
    /// The new path, or the directory to move into
    #[arg(value_parser = target())]
    to: Target,
    #[command(flatten)]
    edit: EditOptions,
}

pub fn run(ctx: &CommandContext, args: &MvArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let message = args.edit.message_or(|| format!("mv {} {}", args.from, args.to.path));
    let committed = vault.move_path(&args.edit.on.fork, &args.from, args.to.clone(), &message)?;
    edited::answer(ctx, &vault, &args.edit.on.fork, &committed)
}
