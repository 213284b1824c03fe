//! `avfs cp`

use clap::Args;

use avfs_ops::{GivenPath, VerbError};
use avfs_vault::ops::Depth;

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

pub fn run(ctx: &CommandContext, args: &CpArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let (from, to) = (args.from.within(&vault)?, args.to.target(&vault)?);
    let message = args.edit.message_or(|| format!("cp {from} {}", to.path));
    let depth = if args.recursive { Depth::Recursive } else { Depth::FilesOnly };
    let committed = vault
        .copy_path(&args.edit.on.fork, &from, to, depth, &message)
        .map_err(VerbError::in_version(&args.edit.on.fork))?;
    edited::answer(ctx, &vault, &args.edit.on.fork, &committed)
}
