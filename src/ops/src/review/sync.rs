//! Merges changes of the bound directory into a fork.

use avfs_changes::{
    BlockedRepository, ChangeSummary, Filter, Shown, Subject, changes_to_apply, git_index,
    is_repository_state,
};
use avfs_engine::require_bound_dir;
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::discard::ChangesOf;
use avfs_vault::join::OnClash;
use avfs_vault::meter::Meter;
use avfs_vault::sync::Synced;
use avfs_vault::tree::Pages;
use avfs_vault::version::{resolve, root_of};
use avfs_vault::{Vault, require_version};
use avfs_wire::Sync;
use avfs_workplace::{OpError, Workplace};

use super::Conflicts;
use crate::changes::ChangeLines;
use crate::error::{RepositoryConflict, SideChoice, VerbError};
use crate::files::{ImportQuery, import};
use crate::history::fork_meant;

/// What to sync.
pub struct SyncQuery {
    /// The fork to update, or a run on it.
    pub what: ChangesOf,
    /// The side whose change is taken if both changed a path; `None`: the path is a conflict.
    pub prefer: Option<Side>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Fork,
    Directory,
}

pub struct SyncAnswer {
    pub sync: Sync,
    pub lines: ChangeLines,
}

/// Imports the directory onto main, then merges it into the fork as a new version.
pub fn sync(
    workplace: &Workplace,
    query: &SyncQuery,
) -> Result<Result<SyncAnswer, Conflicts<Sync>>, OpError> {
    let vault = &workplace.vault;
    let dir = require_bound_dir(vault)?;
    let fork = fork_meant(vault, &query.what)?.name;
    let directory = import_main(workplace)?;
    let on_clash = match query.prefer {
        None => OnClash::Refuse,
        Some(Side::Fork) => OnClash::KeepHead,
        Some(Side::Directory) => OnClash::TakeOther,
    };
    // With parts of both sides, a repository would be broken.
    let decide = |path: &TreePath| if is_repository_state(path) { OnClash::Refuse } else { on_clash };
    let synced = vault.sync(&fork, &directory, &decide, &git_index::is_refresh)?;
    let (summary, conflicts) = match &synced {
        Synced::UpToDate => (ChangeSummary::default(), Vec::new()),
        Synced::Merged(committed) => {
            (brought_in(vault, committed.previous, committed.version.id)?, Vec::new())
        }
        Synced::Conflicts(paths) => (ChangeSummary::default(), paths.clone()),
    };
    let head = vault.fork(&fork)?.head;
    let lines = ChangeLines::from(&summary);
    let result = Sync {
        fork: fork.to_string(),
        dir: dir.to_string_lossy().into_owned(),
        directory_version: directory.to_hex(),
        version: head.to_hex(),
        merged: matches!(synced, Synced::Merged(_)),
        changes: avfs_present::change_list(&summary),
        change_counts: lines.counts,
        conflicts: avfs_present::path_texts(&conflicts),
    };
    if conflicts.is_empty() {
        return Ok(Ok(SyncAnswer { sync: result, lines }));
    }
    let choice = match (blocked_repository(vault, &fork, &conflicts)?, query.prefer) {
        (Some(repository), _) => {
            SideChoice::Repository(Box::new(RepositoryConflict { dir, head, repository }))
        }
        (None, Some(_)) => SideChoice::Fork,
        (None, None) => SideChoice::Either,
    };
    let error = VerbError::SyncConflict { fork, paths: conflicts, choice };
    Ok(Err(Conflicts { result, error: Box::new(error) }))
}

/// The directory as the newest version of main.
fn import_main(workplace: &Workplace) -> Result<VersionId, OpError> {
    let query =
        ImportQuery { dir: None, fork: ForkName::main(), message: "sync".to_owned(), keep_going: false };
    let id = import(workplace, &query)?.edited.version.id;
    Ok(resolve(&*workplace.vault.read()?, &Reference::parse(&id)?)?.0.id)
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
