//! `avfs du`

use clap::Args;

use avfs_ops::OpError;
use avfs_present::Avfs;
use avfs_types::show_bytes_size;
use avfs_wire::{Du, DuCache, DuPart, DuScratch, DuVault};

use crate::context::CommandContext;
use crate::ui::{Out, Outcome};

/// Show the disk use of the vault, the cache and the scratches
///
/// All vaults of a user share the cache. It is kept within cache.max automatically: after a run, the least
/// recently used entries are evicted. Everything in it except scratches is created again when needed; avfs
/// clean empties it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs du
  avfs du --json")]
pub struct DuArgs {}

pub fn run(ctx: &CommandContext, _: &DuArgs) -> Outcome {
    let du = avfs_ops::upkeep::du(&ctx.client)?;
    ctx.ui.answer(&du, |out| show(out, &du, &ctx.ui.avfs))
}

fn show(out: &mut Out, du: &Du, avfs: &Avfs) -> Result<(), OpError> {
    let size = |bytes: u64| show_bytes_size(bytes).to_string();
    if let Some(DuVault { path, bytes }) = &du.vault {
        out.line(format_args!("{:>10}  vault {path}", size(*bytes)))?;
    }
    let DuCache { path, bytes, max_bytes, bases, layers, dirs, fork_dirs, stat_caches, unfinished } =
        &du.cache;
    let of = max_bytes.map_or_else(|| "no limit".to_owned(), |max| format!("of {} at most", size(max)));
    out.line(format_args!("{:>10}  cache {path} ({of})", size(*bytes)))?;
    let DuScratch { running, recoverable, orphaned, dead } = &du.scratch;
    let parts = [
        (bases, "base", "bases"),
        (layers, "layer over them", "layers over them"),
        (dirs, "directory of cache.dirs", "directories of cache.dirs"),
        (fork_dirs, "persistent home or /tmp of a fork", "persistent homes and /tmp of forks"),
        (stat_caches, "stat cache of imports", "stat caches of imports"),
        (unfinished, "unfinished or left behind", "unfinished or left behind"),
        (running, "scratch of a running command", "scratches of running commands"),
        (recoverable, "scratch to recover", "scratches to recover"),
        (dead, "scratch of a killed run", "scratches of killed runs"),
    ];
    for (DuPart { count, bytes }, one, many) in parts.into_iter().filter(|(part, ..)| part.count > 0) {
        let name = if *count == 1 { one } else { many };
        out.line(format_args!("{:>10}    {count:>6} {name}", size(*bytes)))?;
    }
    if recoverable.count > orphaned.count {
        out.line(format_args!("list the recoverable runs with: {avfs} recover --list"))?;
    }
    if orphaned.count > 0 {
        out.line(format_args!(
            "the vault of {} of them is gone; discard them with: avfs clean --orphans",
            orphaned.count
        ))?;
    }
    Ok(())
}
