//! `avfs quota show|set`

use clap::{Args, Subcommand};

use avfs_types::{Limit, show_bytes_size};
use avfs_vault::quota::Quota;
use avfs_vault::{Vault, require_version};
use avfs_wire::QuotaShow;

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
    let vault = ctx.open_vault()?;
    if let QuotaAction::Set(limits) = &args.action {
        let new = |limit: Option<Limit>, old: Option<u64>| limit.map_or(old, |limit| limit.0);
        vault.change_quota(|old| Quota {
            bytes: new(limits.bytes, old.bytes),
            versions: new(limits.versions, old.versions),
            files: new(limits.files, old.files),
        })?;
    }
    show(ctx, &vault)
}

/// Notes the limits that the vault already exceeds.
fn note_exceeded(ctx: &CommandContext, quota: &QuotaShow, largest: u64) {
    let avfs = &ctx.ui.avfs;
    let note = |text: String, free: String| {
        ctx.ui.note(format_args!("note: {text}, so nothing can be added; {free}"));
    };
    let exceeded = |limit: Option<u64>, used: u64| limit.filter(|limit| used > *limit);
    if let Some(limit) = exceeded(quota.bytes, quota.bytes_used) {
        let (used, limit) = (show_bytes_size(quota.bytes_used), show_bytes_size(limit));
        let free = format!("free space with: {avfs} prune --keep-last N && {avfs} gc");
        note(format!("the vault uses {used}, more than the limit of {limit}"), free);
    }
    if let Some(limit) = exceeded(quota.versions, quota.versions_used) {
        let used = quota.versions_used;
        let free = format!("free versions with: {avfs} prune --keep-last N && {avfs} gc");
        note(format!("the vault has {used} versions, more than the limit of {limit}"), free);
    }
    if let Some(limit) = exceeded(quota.files, largest) {
        let free = format!("remove files with: {avfs} rm, or exclude them in .avfsignore");
        note(format!("a fork has {largest} entries, more than the limit of {limit}"), free);
    }
}

fn show(ctx: &CommandContext, vault: &Vault) -> Outcome {
    let quota = vault.quota()?;
    let reader = vault.read()?;
    let result = QuotaShow {
        bytes: quota.bytes,
        versions: quota.versions,
        files: quota.files,
        bytes_used: reader.bytes_used()?,
        versions_used: reader.versions_kept()?,
    };
    let mut largest = 0;
    if quota.files.is_some() {
        for fork in reader.forks()? {
            largest = largest.max(require_version(&*reader, &fork.head)?.entries);
        }
    }
    note_exceeded(ctx, &result, largest);
    ctx.ui.answer(&result, |out| {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
        let bytes = quota.bytes.map_or_else(|| "no limit".to_owned(), |n| show_bytes_size(n).to_string());
        out.line(format_args!("bytes     {bytes} ({} used)", show_bytes_size(result.bytes_used)))?;
        out.line(format_args!("versions  {} ({} kept)", limit(quota.versions), result.versions_used))?;
        out.line(format_args!("files     {} in one version", limit(quota.files)))
    })
}
