//! `avfs sync`

use clap::{Args, ValueEnum};

use avfs_changes::{
    BlockedRepository, ChangeSummary, Filter, Shown, Subject, changes_to_apply, git_index,
    is_repository_state,
};
use avfs_engine::require_bound_dir;
use avfs_ops::{OpError, RepositoryConflict, SideChoice, VerbError};
use avfs_present::error_body;
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::discard::ChangesOf;
use avfs_vault::import::OnTrouble;
use avfs_vault::join::OnClash;
use avfs_vault::meter::Meter;
use avfs_vault::sync::Synced;
use avfs_vault::tree::Pages;
use avfs_vault::version::root_of;
use avfs_vault::{Vault, require_version};
use avfs_wire::Sync;

use crate::commands::{fork_meant, import, patch};
use crate::context::CommandContext;
use crate::ui::{Format, Outcome};

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
    #[arg(long, value_name = "SIDE")]
    prefer: Option<Side>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    Fork,
    Directory,
}

pub fn run(ctx: &CommandContext, args: &SyncArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let dir = require_bound_dir(&vault)?;
    let fork = fork_meant(&vault, &args.what)?.name;
    let main = ForkName::main();
    let imported = import::import(ctx, &vault, &dir, &main, "sync", OnTrouble::Fail)?;
    let on_clash = match args.prefer {
        None => OnClash::Refuse,
        Some(Side::Fork) => OnClash::KeepHead,
        Some(Side::Directory) => OnClash::TakeOther,
    };
    // With parts of both sides, a repository would be broken.
    let decide = |path: &TreePath| if is_repository_state(path) { OnClash::Refuse } else { on_clash };
    let synced = vault.sync(&fork, &imported.version(), &decide, &git_index::is_refresh)?;
    let (changes, conflicts) = match &synced {
        Synced::UpToDate => (ChangeSummary::default(), Vec::new()),
        Synced::Merged(committed) => {
            (brought_in(&vault, committed.previous, committed.version.id)?, Vec::new())
        }
        Synced::Conflicts(paths) => (ChangeSummary::default(), paths.clone()),
    };
    let result = Sync {
        fork: fork.to_string(),
        dir: dir.to_string_lossy().into_owned(),
        directory_version: imported.version().to_hex(),
        version: vault.fork(&fork)?.head.to_hex(),
        merged: matches!(synced, Synced::Merged(_)),
        changes: avfs_present::change_list(&changes),
        change_counts: avfs_present::change_totals(&changes.counts),
        conflicts: avfs_present::path_texts(&conflicts),
    };
    if !conflicts.is_empty() {
        let choice = match (blocked_repository(&vault, &fork, &conflicts)?, args.prefer) {
            (Some(repository), _) => {
                let head = vault.fork(&fork)?.head;
                SideChoice::Repository(Box::new(RepositoryConflict { dir, head, repository }))
            }
            (None, Some(_)) => SideChoice::Fork,
            (None, None) => SideChoice::Either,
        };
        let error = VerbError::SyncConflict { fork: fork.clone(), paths: conflicts, choice };
        return match ctx.ui.format {
            Format::Json => ctx.ui.answer_no(&result, &error_body(&error, &ctx.ui.avfs), |_| Ok(())),
            Format::Human => Err(error.into()),
        };
    }
    ctx.ui.answer(&result, |out| match synced {
        Synced::Merged(_) => {
            patch::show_summary(out, &changes)?;
            out.line(format_args!("merged from {} into {}", dir.display(), fork))
        }
        Synced::UpToDate | Synced::Conflicts(_) => {
            out.line(format_args!("{} is up to date with {}", fork, dir.display()))
        }
    })
}

/// The repository whose changes on the fork cannot be merged file by file.
fn blocked_repository(
    vault: &Vault,
    fork: &ForkName,
    conflicts: &[TreePath],
) -> Result<Option<BlockedRepository>, OpError> {
    let subject = Subject::of(vault, &ChangesOf::Fork(fork.clone()))?;
    let changes = changes_to_apply(vault, &subject, &Filter::default(), &Meter::default())?;
    let conflicts: Vec<&TreePath> = conflicts.iter().collect();
    Ok(BlockedRepository::find(&conflicts, &changes)?)
}

/// The changes that the sync added to the fork.
fn brought_in(vault: &Vault, before: VersionId, after: VersionId) -> Result<ChangeSummary, OpError> {
    let reader = vault.read()?;
    let reader = &*reader;
    let (before, after) = (require_version(reader, &before)?, require_version(reader, &after)?);
    let pages: &dyn Pages = &reader;
    let roots = (&root_of(&before)?, &root_of(&after)?);
    Ok(ChangeSummary::compare(vault, pages, roots, &[], Shown::WithoutTimes)?)
}
