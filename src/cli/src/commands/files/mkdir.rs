//! `avfs mkdir`

use clap::Args;

use avfs_ops::{GivenPath, OpError, VerbError};
use avfs_types::diagnose::shell_word;
use avfs_types::path::TreePath;
use avfs_vault::VaultError;
use avfs_vault::ops::Parents;

use crate::cli::EditOptions;
use crate::commands::edited;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::Outcome;

/// Create a directory inside a fork
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs mkdir docs
  avfs mkdir -p a/b/c --fork experiment")]
pub struct MkdirArgs {
    /// The directory to create
    #[arg(value_parser = tree_path())]
    path: GivenPath,
    #[command(flatten)]
    edit: EditOptions,
    /// Also create missing parents; accept an existing directory
    #[arg(short, long)]
    parents: bool,
}

pub fn run(ctx: &CommandContext, args: &MkdirArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let path = args.path.within(&vault)?;
    let message = args.edit.message.clone().unwrap_or_else(|| format!("mkdir {path}"));
    let parents = if args.parents { Parents::Made } else { Parents::Required };
    let made = vault.make_dir(&args.edit.on.fork, &path, parents, &message);
    let committed = made.map_err(|error| advised(ctx, &path, error))?;
    edited::answer(ctx, &vault, &args.edit.on.fork, &committed)
}

fn advised(ctx: &CommandContext, path: &TreePath, error: VaultError) -> OpError {
    if !matches!(error, VaultError::NoPath { .. }) {
        return error.into();
    }
    let path = path.to_string();
    let hint = format!("create it too with: {} mkdir -p {}", ctx.ui.avfs, shell_word(path.as_ref()));
    VerbError::Advised { error, hint }.into()
}
