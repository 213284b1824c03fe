//! What can go wrong at the edge, beside what the library refuses.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use avfs_present::hint;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, RunId};
use avfs_types::path::TreePath;
use avfs_vault::VaultError;

use crate::ui::Failure;

#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    #[error("{} would be deleted with every version in it", vault.display())]
    NotConfirmed { vault: PathBuf },
    #[error("no vault is made here: {reason}")]
    NoNewVault { reason: String, hint: Option<String> },
    #[error("run {run} is neither on a fork with a name nor applied: it is only kept for review")]
    NotKept { run: RunId },
    #[error("both {fork} and the directory changed, so nothing was merged: {}", list(paths))]
    SyncConflict { fork: ForkName, paths: Vec<TreePath> },
    #[error("the output of run {run} was not kept, or is no longer")]
    NoOutput { run: RunId },
    #[error("{pattern:?} is not a regular expression: {detail}")]
    BadPattern { pattern: String, detail: String },
    #[error("version {version} is the first: there is nothing before it to compare with")]
    NoParent { version: String },
    #[error("the patch is not complete: {shortened} shortened, {left_off} left off")]
    PatchIncomplete { shortened: String, left_off: String },
    #[error("the content is {size} bytes long; an answer in JSON has room for {max}")]
    TooLargeForJson { size: u64, max: u64 },
    #[error("there is no verb {verb:?}")]
    UnknownVerb { verb: String },
    #[error("the checkpoint is named on fork {one}, and --fork says {other}")]
    TwoForks { one: ForkName, other: ForkName },
    #[error("the vault to delete is {}, and --vault says {}", one.display(), other.display())]
    TwoVaults { one: PathBuf, other: PathBuf },
    #[error("cannot write the answer")]
    Output(#[source] std::io::Error),
    #[error("the command was carried out, but its answer could not be written")]
    Unanswered(#[source] Box<dyn std::error::Error>),
    #[error("a file may not grow any further: there is a limit on the size of files (ulimit -f)")]
    FileSizeLimit(#[source] Box<dyn std::error::Error>),
    /// A fork to take away, or to take changes from, is not there.
    #[error(transparent)]
    NoOldFork(VaultError),
    /// What the library refused, where the verb knows better what to do next.
    #[error("{error}")]
    Advised { error: VaultError, hint: String },
    #[error("cannot draw a random number")]
    Random(#[source] std::io::Error),
    #[error("cannot watch for signals")]
    Signals(#[source] std::io::Error),
    #[error("cannot start a thread")]
    Threads(#[source] std::io::Error),
    #[error("cannot {operation} {}", path.display())]
    Host {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

fn list(paths: &[TreePath]) -> String {
    let shown: Vec<String> = paths.iter().map(ToString::to_string).collect();
    shown.join(", ")
}

impl EdgeError {
    /// Who takes a fork away, or what it changed, does not want to make it.
    pub fn of_old_fork(error: VaultError) -> Failure {
        match matches!(error, VaultError::NoFork { .. }) {
            true => Self::NoOldFork(error).into(),
            false => error.into(),
        }
    }

    pub fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Host { operation, path, source }
    }
}

impl Diagnose for EdgeError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotConfirmed { .. } => "vault.not_confirmed",
            Self::NoNewVault { .. } => "policy.denied",
            Self::NotKept { .. } => "undo.not_kept",
            Self::SyncConflict { .. } => "sync.conflict",
            Self::NoOutput { .. } => "output.not_kept",
            Self::BadPattern { .. } => "grep.bad_pattern",
            Self::NoParent { .. } => "diff.no_parent",
            Self::PatchIncomplete { .. } => "diff.incomplete",
            Self::TooLargeForJson { .. } => "cat.too_large",
            Self::UnknownVerb { .. } => "man.unknown_verb",
            Self::TwoForks { .. } | Self::TwoVaults { .. } => "usage",
            Self::Output(_) | Self::Unanswered(_) => "io.output",
            Self::FileSizeLimit(_) => "host.file_size_limit",
            Self::Advised { error, .. } | Self::NoOldFork(error) => error.code(),
            Self::Random(_) => "io.random",
            Self::Signals(_) => "io.signals",
            Self::Threads(_) => "host.threads",
            Self::Host { source, .. } if source.kind() == ErrorKind::PermissionDenied => "host.no_permission",
            Self::Host { source, .. } if source.kind() == ErrorKind::StorageFull => "host.disk_full",
            Self::Host { .. } => "host.io",
        }
    }
}

hint!(EdgeError, |error, avfs| {
    let hint = match error {
        Self::Advised { hint, .. } => hint,
        Self::NoOldFork(_) => return Some(format!("list them with: {avfs} fork list")),
        Self::NoNewVault { hint, .. } => return hint.clone(),
        Self::NotKept { run } => return Some(format!("drop it with: {avfs} discard {run}")),
        Self::SyncConflict { fork, .. } => {
            return Some(format!(
                "choose a side with: {avfs} sync {fork} --prefer fork or --prefer directory; \
                 see what the fork changed with: {avfs} diff {fork}"
            ));
        }
        Self::NoOutput { .. } => "keep it with: avfs-run --keep-output -- COMMAND",
        Self::NotConfirmed { .. } => "confirm with: --yes",
        Self::BadPattern { .. } => "search for plain text with: -F",
        Self::NoParent { .. } => return Some(format!("name two versions: {avfs} diff A B")),
        Self::PatchIncomplete { .. } => "raise the limit with: --patch-max SIZE",
        Self::TooLargeForJson { .. } => {
            return Some(format!("without --json it is written as it is: {avfs} cat REF PATH > FILE"));
        }
        Self::UnknownVerb { verb } if verb == "avfs-run" => "print it with: avfs-run --man | man -l -",
        Self::UnknownVerb { .. } => "list them with: avfs --help",
        Self::TwoForks { .. } | Self::TwoVaults { .. } => "leave one of them out",
        Self::FileSizeLimit(_) => "raise it with: ulimit -f unlimited",
        Self::Host { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "choose a place you may write to"
        }
        Self::Host { source, .. } if source.kind() == ErrorKind::StorageFull => {
            "free some space, then try again"
        }
        Self::Host { operation: "read", source, .. } if source.kind() == ErrorKind::NotFound => {
            "check how it is written, or choose another file"
        }
        Self::Host { source, .. } if source.kind() == ErrorKind::NotFound => {
            "make the directory first, or choose another place"
        }
        Self::Host { source, .. }
            if matches!(source.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) =>
        {
            "a file stands where a directory has to be: choose another place"
        }
        Self::Threads(_) => "end some processes, or raise the limit on them (ulimit -u); then try again",
        Self::Host { .. } | Self::Output(_) | Self::Unanswered(_) | Self::Random(_) | Self::Signals(_) => {
            return None;
        }
    };
    Some(hint.to_owned())
});
