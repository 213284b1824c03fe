//! `avfs quota show|set`

use clap::{Args, Subcommand};

use avfs_ops::upkeep::QuotaChange;
use avfs_types::{Limit, show_bytes_size};

use crate::context::CommandContext;
use crate::ui::Outcome;

/// Show and set the limits of the vault
///
/// The limits are the size of the vault file, the number of versions, and the number of entries of a version.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs quota show
  avfs quota set --bytes 5GiB --versions 1000
  avfs quota set --bytes none")]
pub struct QuotaArgs {
    #[command(subcommand)]
    action: QuotaAction,
}

#[derive(Debug, Subcommand)]
enum QuotaAction {
    /// Show the limits and their usage
    #[command(after_help = "\
Examples:
  avfs quota show")]
    Show,
    Set(SetArgs),
}

/// Set limits
///
/// Limits that are not named do not change. A limit below the current use is accepted, with a note: nothing can
/// be added until enough is removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs quota set --bytes 5GiB
  avfs quota set --versions 1000 --files none")]
#[group(required = true, multiple = true)]
struct SetArgs {
    /// Limit the size of the vault file
    #[arg(long, value_name = "SIZE|none")]
    bytes: Option<Limit>,
    /// Limit the number of versions
    #[arg(long, value_name = "N|none")]
    versions: Option<Limit>,
    /// Limit the number of entries of a version
    #[arg(long, value_name = "N|none")]
    files: Option<Limit>,
}

pub fn run(ctx: &CommandContext, args: &QuotaArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let quota = match args.action {
        QuotaAction::Show => avfs_ops::upkeep::quota(&workplace)?,
        QuotaAction::Set(SetArgs { bytes, versions, files }) => {
            avfs_ops::upkeep::change_quota(&workplace, &QuotaChange { bytes, versions, files })?
        }
    };
    ctx.ui.answer(&quota, |out| {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
        let bytes = quota.bytes.map_or_else(|| "no limit".to_owned(), |n| show_bytes_size(n).to_string());
        out.line(format_args!("bytes     {bytes} ({} used)", show_bytes_size(quota.bytes_used)))?;
        out.line(format_args!("versions  {} ({} kept)", limit(quota.versions), quota.versions_used))?;
        out.line(format_args!("files     {} in one version", limit(quota.files)))
    })
}
