//! `avfs mv`

use clap::Args;

use crate::cli::EditOptions;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::Outcome;
use avfs_ops::{GivenPath, VerbError};

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

pub fn run(ctx: &CommandContext, args: &MvArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let (from, to) = (args.from.within(&vault)?, args.to.target(&vault)?);
    let message = args.edit.message_or(|| format!("mv {from} {}", to.path));
    let committed = vault
        .move_path(&args.edit.on.fork, &from, to, &message)
        .map_err(VerbError::in_version(&args.edit.on.fork))?;
    edited::answer(ctx, &vault, &args.edit.on.fork, &committed)
}
