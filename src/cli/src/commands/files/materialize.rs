//! `avfs materialize`

use clap::Args;

use avfs_ops::{MaterializeQuery, Trust};
use avfs_types::Size;
use avfs_types::reference::Reference;

use crate::context::CommandContext;
use crate::ui::Outcome;

/// Materialize a version in the cache, and print its path
///
/// The path is a directory that must only be read: runs use it as their base, so a write to it changes the
/// files that they see, until --check rebuilds it. To work on a copy, use avfs export. A version that is
/// already materialized is not written again. Unused bases are evicted, least recently used first, until the
/// cache is within its limit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ls \"$(avfs materialize main)\"
  avfs materialize main~2 --check
  avfs materialize main --cache-max 2GiB")]
pub struct MaterializeArgs {
    /// The version to materialize
    #[arg(value_name = "REF")]
    reference: Reference,
    /// Compare every file with the version, and rebuild the base if one differs
    #[arg(long)]
    check: bool,
    /// Limit the cache to SIZE [default: the setting cache.max]
    #[arg(long, value_name = "SIZE")]
    cache_max: Option<Size>,
}

pub fn run(ctx: &CommandContext, args: MaterializeArgs) -> Outcome {
    let MaterializeArgs { reference, check, cache_max } = args;
    let workplace = ctx.client.open()?;
    let trust = if check { Trust::Nothing } else { Trust::Seal };
    let query = MaterializeQuery { reference, trust, cache_max };
    let result = avfs_ops::materialize(&workplace, &query)?;
    ctx.ui.answer(&result, |out| out.line(format_args!("{}", result.dir)))
}
