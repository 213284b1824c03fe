//! `avfs sync`

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use avfs_ops::ChangesOf;
use avfs_ops::review::{Side, SyncAnswer, SyncQuery};

use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Merge changes of the bound directory into a fork
///
/// Imports the directory onto main, then merges the changes since the fork began, or since its last sync,
/// into the fork as a new version. The fork keeps its own changes: `avfs diff FORK` and `avfs apply FORK`
/// still show and write only those. If both sides changed a path differently, nothing is merged and all
/// conflicting paths are listed. A changed time is no conflict, nor is an index that git only refreshed.
/// HEAD, refs and index of a repository are never taken from different sides: merge commits with git.
/// `avfs undo FORK` reverts a sync.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs sync task-1
  avfs sync task-1 --prefer fork
  avfs sync task-1 --json")]
pub struct SyncArgs {
    /// The fork to update, or a run on it
    #[arg(value_name = "FORK|RUN")]
    what: ChangesOf,
    /// Prefer this side if both changed a path; not for HEAD, refs and index of a repository, and `directory` not for
    /// conflicts that involve a directory
    #[arg(long, value_name = "SIDE", value_parser = side())]
    prefer: Option<Side>,
}

fn side() -> impl TypedValueParser<Value = Side> {
    PossibleValuesParser::new(["fork", "directory"])
        .map(|word| if word == "fork" { Side::Fork } else { Side::Directory })
}

pub fn run(ctx: &CommandContext, args: SyncArgs) -> Outcome {
    let SyncArgs { what, prefer } = args;
    let SyncAnswer { sync, lines } =
        match avfs_ops::review::sync(&ctx.client.open()?, &SyncQuery { what, prefer })? {
            Ok(synced) => synced,
            Err(refused) => return ctx.ui.refuse(refused),
        };
    ctx.ui.answer(&sync, |out| {
        if !sync.merged {
            return out.line(format_args!("{} is up to date with {}", sync.fork, sync.dir));
        }
        patch::show_summary(out, lines)?;
        out.line(format_args!("merged from {} into {}", sync.dir, sync.fork))
    })
}
