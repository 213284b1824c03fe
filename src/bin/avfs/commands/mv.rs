//! `avfs mv`

use avfs::runtime::version_message;
use avfs::vault::path::TreePath;
use clap::Args;

use super::edited;
use crate::cli::{EditOptions, tree_path};
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Move or rename inside a fork
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs mv draft.md README.md
  avfs mv src/old src/new --fork experiment")]
pub struct MvArgs {
    /// What to move
    #[arg(value_parser = tree_path())]
    from: TreePath,
    /// Its new path, or the directory to move it into
    #[arg(value_parser = tree_path())]
    to: TreePath,
    #[command(flatten)]
    edit: EditOptions,
}

pub fn run(ctx: &CommandContext, args: &MvArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let message = args
        .edit
        .message
        .clone()
        .unwrap_or_else(|| version_message(&format!("mv {} {}", args.from, args.to)));
    let committed = vault.move_path(&args.edit.on.fork, &args.from, &args.to, &message)?;
    edited::answer(ctx, &args.edit.on.fork, &committed)
}
