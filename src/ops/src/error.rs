//! Errors of the verbs, in addition to those of the crates below.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use avfs_changes::{BlockedRepository, RepositoryChange};
use avfs_engine::LocateError;
use avfs_present::{Avfs, hint, merge_commits};
use avfs_types::diagnose::{Diagnose, shell_word};
use avfs_types::ids::{ForkName, RunId, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::VaultError;
use avfs_vault::run::LastChange;

use avfs_workplace::OpError;

use crate::text::plural;

#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    #[error("{} would be deleted with every version in it", vault.display())]
    NotConfirmed { vault: PathBuf },
    #[error("the changes of {runs} would be discarded")]
    DiscardNotConfirmed { runs: String },
    #[error("run {run} is neither on a persistent fork nor applied; it is only kept for review")]
    NotKept { run: RunId },
    #[error("run {run} is not the newest change in effect on fork {fork}")]
    NotNewest { run: RunId, fork: ForkName },
    #[error("fork {fork} and the directory changed the same paths; nothing was merged: {}", list(paths))]
    SyncConflict { fork: ForkName, paths: Vec<TreePath>, choice: SideChoice },
    #[error("the output of run {run} was not kept or has expired")]
    NoOutput { run: RunId },
    #[error("invalid regular expression {pattern:?}: {detail}")]
    BadPattern { pattern: String, detail: String },
    #[error("nothing matches {pattern:?}{}", not_searched(*skipped))]
    NoMatch { pattern: String, skipped: u64 },
    #[error("{} could not be written completely", plural(*count, "path", "paths"))]
    LeftOut { count: u64 },
    #[error("version {version} has no parent to compare with")]
    NoParent { version: String },
    #[error("the patch is incomplete: {shortened} shortened, {left_off} omitted")]
    PatchIncomplete { shortened: String, left_off: String },
    #[error("the content has {size} bytes; JSON output is limited to {max}")]
    TooLargeForJson { size: u64, max: u64 },
    #[error("{} is not in {}, the directory of the vault", path.display(), dir.display())]
    OutsidePath { path: PathBuf, dir: PathBuf },
    #[error("the checkpoint names fork {one}, but --fork is {other}")]
    TwoForks { one: ForkName, other: ForkName },
    #[error("the vault to delete is {}, but --vault is {}", one.display(), other.display())]
    TwoVaults { one: PathBuf, other: PathBuf },
    /// A vault to delete does not exist.
    #[error(transparent)]
    NoVaultToDelete(LocateError),
    /// A fork that is needed with its history does not exist.
    #[error(transparent)]
    NoOldFork(VaultError),
    /// What to apply or to discard is the name of neither a fork nor a run.
    #[error("there is no fork or run {name}")]
    NoChanges { name: ForkName },
    #[error("directory {} does not exist", dir.display())]
    NoDirectory { dir: PathBuf },
    #[error("the vault has no run that changed content")]
    NothingChanged,
    #[error("the vault has no run that changed content; run {run} changed only modification times")]
    OnlyTimesChanged { run: RunId },
    #[error("the vault has no run in effect that changed content; run {run} was undone")]
    NothingInEffect { run: RunId },
    #[error("run {run} {why}; there is nothing to {verb}")]
    Unchanged { run: RunId, why: &'static str, verb: &'static str },
    /// An error of the library for which the verb has a better hint.
    #[error("{error}")]
    Advised { error: VaultError, hint: String },
    /// An error about a version, with the reference that the user gave.
    #[error("{error}")]
    InVersion { error: VaultError, reference: String },
    #[error("found {}", plural(*problems, "problem", "problems"))]
    Damaged {
        problems: u64,
        /// Another directory may have the content.
        is_repairable: bool,
    },
    #[error("the audit log does not verify: {}", problems.join("; "))]
    AuditBroken { problems: Vec<String> },
    #[error("cannot generate a random number")]
    Random(#[source] std::io::Error),
}

/// How the conflicts of a sync can be decided.
#[derive(Debug)]
pub enum SideChoice {
    Either,
    /// Each conflict involves a directory, because the others were decided by `--prefer directory`.
    Fork,
    /// The repository would be broken with one side of some of its files.
    Repository(Box<RepositoryConflict>),
}

/// A repository that changed on a fork and in the directory.
#[derive(Debug)]
pub struct RepositoryConflict {
    pub dir: PathBuf,
    /// The head of the fork.
    pub head: VersionId,
    pub repository: BlockedRepository,
}

fn list(paths: &[TreePath]) -> String {
    let shown: Vec<String> = paths.iter().map(ToString::to_string).collect();
    shown.join(", ")
}

/// Why a pattern may match nothing.
fn not_searched(files: u64) -> String {
    match files {
        0 => String::new(),
        files => {
            let files = plural(files, "file was", "files were");
            format!(" in the searched files; {files} too large to search")
        }
    }
}

/// The error of copying content to a receiver.
pub fn of_copy(error: VaultError) -> OpError {
    if let VaultError::Output(error) = error { OpError::of_output(error) } else { error.into() }
}

impl VerbError {
    /// The error for a missing fork without the hint to create it: a new fork has nothing to delete or to undo.
    pub fn of_old_fork(error: VaultError) -> OpError {
        match matches!(error, VaultError::NoFork { .. }) {
            true => Self::NoOldFork(error).into(),
            false => error.into(),
        }
    }

    /// The error for a name that is neither a fork nor a run.
    pub fn of_changes(error: VaultError) -> OpError {
        if let VaultError::NoFork { name } = error { Self::NoChanges { name }.into() } else { error.into() }
    }

    /// The error if no run is named and none changed content.
    pub fn of_no_change(last: &LastChange) -> Self {
        match last {
            LastChange { times_only: Some(run), .. } => Self::OnlyTimesChanged { run: run.id.clone() },
            LastChange { undone: Some(run), .. } => Self::NothingInEffect { run: run.id.clone() },
            LastChange { times_only: None, undone: None, .. } => Self::NothingChanged,
        }
    }

    /// The error of an operation on this version or fork: its hints name it.
    pub fn in_version<R: Display>(reference: &R) -> impl Fn(VaultError) -> OpError + use<R> {
        let reference = reference.to_string();
        move |error| match is_about_version(&error) {
            true => Self::InVersion { error, reference: reference.clone() }.into(),
            false => error.into(),
        }
    }
}

/// Whether the hint of an error names the version.
fn is_about_version(error: &VaultError) -> bool {
    matches!(error, VaultError::NoPath { .. } | VaultError::NotAFile { .. })
        || matches!(
            error,
            VaultError::IsADirectory { path } | VaultError::PathCycle { from: path, .. } if path.is_root()
        )
}

fn in_version_hint(error: &VaultError, reference: &str, avfs: &Avfs) -> String {
    if let VaultError::NotAFile { path, .. } = error {
        let path = shell_word(OsStr::from_bytes(path.as_bytes()));
        return format!("list it with: {avfs} ls -l {reference} {path}");
    }
    if let VaultError::NoPath { .. } = error {
        return format!("list the files with: {avfs} ls {reference}");
    }
    format!("name the entries in it; list them with: {avfs} ls {reference}")
}

impl Diagnose for VerbError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotConfirmed { .. } => "vault.not_confirmed",
            Self::DiscardNotConfirmed { .. } => "discard.not_confirmed",
            Self::NotKept { .. } => "undo.not_kept",
            Self::NotNewest { .. } => "undo.not_newest",
            Self::SyncConflict { .. } => "sync.conflict",
            Self::NoOutput { .. } => "output.not_kept",
            Self::BadPattern { .. } => "grep.bad_pattern",
            Self::NoMatch { .. } => "grep.no_match",
            Self::LeftOut { .. } => "export.left_out",
            Self::NoParent { .. } => "diff.no_parent",
            Self::PatchIncomplete { .. } => "diff.incomplete",
            Self::TooLargeForJson { .. } => "cat.too_large",
            Self::OutsidePath { .. } => "path.outside",
            Self::TwoForks { .. } | Self::TwoVaults { .. } => "usage",
            Self::Advised { error, .. } | Self::InVersion { error, .. } | Self::NoOldFork(error) => {
                error.code()
            }
            Self::NoVaultToDelete(error) => error.code(),
            Self::NoChanges { .. } => "fork.not_found",
            Self::NoDirectory { .. } => "vault.not_found",
            Self::NothingChanged | Self::OnlyTimesChanged { .. } | Self::NothingInEffect { .. } => {
                "run.not_found"
            }
            Self::Unchanged { .. } => "run.no_version",
            Self::Damaged { .. } => "fsck.findings",
            Self::AuditBroken { .. } => "audit.broken",
            Self::Random(_) => "io.random",
        }
    }
}

/// How to sync a fork with a repository that changed on both sides.
fn repository_hint(avfs: &Avfs, fork: &ForkName, conflict: &RepositoryConflict) -> String {
    let RepositoryConflict { dir, head, repository } = conflict;
    match repository.change {
        RepositoryChange::Commits | RepositoryChange::NestedCommits => {
            merge_commits(avfs, dir, head, repository)
        }
        RepositoryChange::Index => format!(
            "unstage the changes of the fork, then sync again: {avfs} run --fork {fork} -- git -C {} reset -q -- . \
             && {avfs} sync {fork}",
            shell_word(repository.work_tree_in(dir).as_os_str())
        ),
        RepositoryChange::Other => format!(
            "write the files of the fork without the repository with: {avfs} apply {fork} --exclude {}",
            shell_word(repository.git_dir_pattern().as_ref())
        ),
    }
}

hint!(VerbError, |error, avfs| {
    let hint = match error {
        Self::Advised { hint, .. } => hint,
        Self::InVersion { error, reference } => return Some(in_version_hint(error, reference, avfs)),
        Self::NoVaultToDelete(_) => "nothing was deleted; list vaults with: avfs vault list",
        Self::NoOldFork(VaultError::NoFork { name }) if name.as_str() == "last" => {
            return Some(format!(
                "last is a run: list runs and their forks with: {avfs} runs list; \
                 drop the changes of a run with: {avfs} discard last"
            ));
        }
        Self::NoOldFork(_) => return Some(format!("list forks with: {avfs} fork list")),
        Self::NoChanges { .. } => {
            return Some(format!("list forks with: {avfs} fork list, runs with: {avfs} runs list"));
        }
        Self::NoDirectory { dir } => {
            return Some(format!("create it with: mkdir -p {}", shell_word(dir.as_os_str())));
        }
        Self::NothingChanged => {
            return Some(format!(
                "run a command with: {avfs} run -- COMMAND; list runs with: {avfs} runs list"
            ));
        }
        Self::OnlyTimesChanged { run } => {
            return Some(format!(
                "show it with: {avfs} diff {run} --times; write the times with: {avfs} apply {run}"
            ));
        }
        Self::NothingInEffect { .. } => return Some(format!("redo the last undo with: {avfs} redo")),
        Self::Unchanged { .. } => return Some(format!("list runs with: {avfs} runs list")),
        Self::NotNewest { fork, .. } => {
            return Some(format!(
                "undo the newer changes first with: {avfs} undo {fork}; list them with: {avfs} log {fork}"
            ));
        }
        Self::NotKept { run } => return Some(format!("discard it with: {avfs} discard {run}")),
        Self::SyncConflict { fork, choice, .. } => {
            return Some(match choice {
                SideChoice::Either => format!(
                    "choose a side with: {avfs} sync {fork} --prefer fork or --prefer directory; \
                     show the fork's changes with: {avfs} diff {fork}"
                ),
                SideChoice::Fork => format!(
                    "keep the fork's side with: {avfs} sync {fork} --prefer fork; \
                     show the fork's changes with: {avfs} diff {fork}"
                ),
                SideChoice::Repository(conflict) => repository_hint(avfs, fork, conflict),
            });
        }
        Self::Damaged { is_repairable, .. } => {
            let save = format!("save the undamaged files with: {avfs} export --keep-going REF DEST");
            return Some(match is_repairable {
                true => {
                    format!(
                        "repair from a directory that has the content with: {avfs} fsck --heal DIR; {save}"
                    )
                }
                false => save,
            });
        }
        Self::AuditBroken { .. } => "compare the vault with a trusted copy",
        Self::NoOutput { .. } => "keep it with: avfs-run --keep-output -- COMMAND",
        Self::NotConfirmed { .. } | Self::DiscardNotConfirmed { .. } => "confirm with: --yes",
        Self::BadPattern { .. } => "search for plain text with: -F",
        Self::LeftOut { .. } => {
            return Some(format!(
                "repair from a directory that has the content with: {avfs} fsck --heal DIR, then export again"
            ));
        }
        Self::NoParent { .. } => return Some(format!("name two versions: {avfs} diff A B")),
        Self::PatchIncomplete { .. } => "raise the limit with: --patch-max SIZE",
        Self::TooLargeForJson { .. } => {
            return Some(format!("print it without --json: {avfs} cat REF PATH > FILE"));
        }
        Self::OutsidePath { .. } => {
            "name a path in that directory, or relative to it: src/main.rs, or . for the directory itself"
        }
        Self::TwoForks { .. } | Self::TwoVaults { .. } => "omit one of them",
        Self::NoMatch { .. } | Self::Random(_) => return None,
    };
    Some(hint.to_owned())
});
