//! `avfs init`

use std::path::PathBuf;

use clap::Args;

use crate::commands::import;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Create a vault for a directory
///
/// The vault is the file DIR/.avfs/vault.db, or the one that --vault names. It is bound to DIR: `avfs import`
/// and `avfs status` use that directory by default. Does nothing if DIR already has its vault.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs init
  avfs init ~/project --import
  avfs init --vault work ~/project")]
pub struct InitArgs {
    /// The directory whose files the vault keeps; created if missing
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Also import the directory
    #[arg(long)]
    import: bool,
}

pub fn run(ctx: &CommandContext, args: &InitArgs) -> Outcome {
    let result = avfs_ops::upkeep::init(&ctx.client, &args.dir, args.import)?;
    ctx.ui.answer(&result, |out| result.imported.as_ref().map_or(Ok(()), |done| import::show(out, done)))
}
