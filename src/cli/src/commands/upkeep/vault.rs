//! `avfs vault list|info|copy|trust|delete`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use avfs_ops::upkeep::vault::{self, Trusted};
use avfs_terminal::Tone;
use avfs_types::clock::parse_time;
use avfs_types::show_bytes_size;

use crate::cli::vault_word;
use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::local_time;

/// The size from which the freed space is printed.
const FREED_SHOWN_BYTES_MIN: u64 = 1 << 20;
/// List, show, copy, trust and delete vaults
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault list
  avfs vault info --vault work
  avfs vault copy /backup/project.db
  avfs vault delete work --yes")]
pub struct VaultArgs {
    #[command(subcommand)]
    action: VaultAction,
}

#[derive(Debug, Subcommand)]
enum VaultAction {
    /// List named vaults, and the vault of the working directory
    #[command(after_help = "\
Examples:
  avfs vault list
  avfs vault list --json")]
    List,
    /// Show the properties of a vault
    #[command(after_help = "\
Examples:
  avfs vault info
  avfs vault info --vault work")]
    Info,
    Copy(CopyArgs),
    Trust(TrustArgs),
    Delete(DeleteArgs),
}

/// Copy a vault to a new file
///
/// Copies the current state, including the write-ahead log. The vault can be in use during the copy. The file
/// must not exist. Use the copy with --vault, or move it to the place of a lost vault.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault copy /backup/project.db
  avfs vault copy --vault work work-copy.db")]
struct CopyArgs {
    /// The file to create
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

/// Trust a vault that you did not create
///
/// A vault decides which files a run sees and which approvals are valid, so avfs uses a vault that it finds
/// in or above the working directory only if you created or trust it. This is needed once for a vault that
/// came with a repository or a backup, was copied, or was created by an older avfs. A vault that is named with
/// --vault needs it for its approvals to count.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault trust
  avfs vault trust ~/project
  avfs vault trust /srv/vaults/team.db")]
struct TrustArgs {
    /// The directory whose .avfs contains the vault, or the vault file
    #[arg(default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    dir: PathBuf,
}

/// Delete a vault and all its versions
///
/// The files of the bound directory stay. Also removes the cached data of the vault and the scratches of its
/// runs that were never captured. A vault that is being written to is not deleted; processes that read it can
/// continue. If the name is a symlink, the link is deleted too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault delete --yes
  avfs vault delete work --yes
  avfs vault delete ~/project/.avfs/vault.db --yes")]
struct DeleteArgs {
    /// The vault to delete [default: the vault of --vault or of the working directory]
    #[arg(value_name = "NAME|PATH", value_parser = vault_word())]
    target: Option<OsString>,
    /// Confirm the deletion
    #[arg(long)]
    yes: bool,
}

pub fn run(ctx: &CommandContext, args: &VaultArgs) -> Outcome {
    match &args.action {
        VaultAction::List => list(ctx),
        VaultAction::Info => info(ctx),
        VaultAction::Copy(args) => copy(ctx, args),
        VaultAction::Trust(args) => trust(ctx, args),
        VaultAction::Delete(args) => delete(ctx, args),
    }
}

fn list(ctx: &CommandContext) -> Outcome {
    let result = vault::list(&ctx.client)?;
    ctx.ui.answer(&result, |out| {
        for vault in &result.vaults {
            let mark = if vault.nearest { "*" } else { " " };
            let name = out.paint(Tone::Name, format_args!("{:<16}", vault.name.as_deref().unwrap_or("-")));
            out.line(format_args!(
                "{mark} {name} {:>10}  {}",
                show_bytes_size(vault.file_bytes),
                vault.vault
            ))?;
        }
        Ok(())
    })
}

fn info(ctx: &CommandContext) -> Outcome {
    let result = vault::info(&ctx.client.open()?)?;
    let created = result.created_at.as_deref().and_then(parse_time).map(local_time);
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("vault        {}", result.vault))?;
        out.line(format_args!("id           {}", result.id))?;
        out.line(format_args!("format       {}", result.format))?;
        out.line(format_args!("created      {}", created.unwrap_or_else(|| "unknown".to_owned())))?;
        out.line(format_args!("bound to     {}", result.bound.as_deref().unwrap_or("no directory")))?;
        out.line(format_args!("forks        {}", result.forks))?;
        out.line(format_args!("checkpoints  {}", result.checkpoints))?;
        out.line(format_args!("versions     {}", result.versions))?;
        out.line(format_args!("file         {}", show_bytes_size(result.file_bytes)))
    })
}

fn copy(ctx: &CommandContext, args: &CopyArgs) -> Outcome {
    let result = vault::copy(&ctx.client.open()?, &args.file)?;
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("copied the vault to {} ({})", result.copy, show_bytes_size(result.bytes)))
    })
}

fn trust(ctx: &CommandContext, args: &TrustArgs) -> Outcome {
    let Trusted { trust, is_bound_elsewhere } = vault::trust(&ctx.client, &args.dir)?;
    ctx.ui.answer(&trust, |out| {
        out.line(format_args!("trusted the vault {}", trust.vault))?;
        match &trust.bound {
            Some(dir) if is_bound_elsewhere => out.line(format_args!("it is bound to the directory {dir}")),
            Some(_) | None => Ok(()),
        }
    })
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let result = vault::delete(&ctx.client, args.target.as_ref(), args.yes)?;
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("deleted the vault {}", result.vault))?;
        match result.cache_freed_bytes {
            bytes @ FREED_SHOWN_BYTES_MIN.. => {
                out.line(format_args!("freed {} of the cache", show_bytes_size(bytes)))
            }
            _ => Ok(()),
        }
    })
}
