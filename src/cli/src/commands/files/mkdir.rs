//! `avfs mkdir`

use clap::Args;

use avfs_ops::{GivenPath, Parents};

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

pub fn run(ctx: &CommandContext, args: MkdirArgs) -> Outcome {
    let MkdirArgs { path, edit, parents } = args;
    let workplace = ctx.client.open()?;
    let parents = if parents { Parents::Made } else { Parents::Required };
    edited::answer(ctx, &avfs_ops::mkdir(&workplace, &edit.into(), &path, parents)?)
}
