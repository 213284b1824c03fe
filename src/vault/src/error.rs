//! The errors of a vault, in one enum: the failed operation, its operands, and a stable code.

use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{
    ApprovalId, ApprovalPrefix, BatchPrefix, CheckpointName, ForkName, NameError, RecordingName, RunId,
    RunPrefix, VersionId,
};
use avfs_types::path::{PathError, TreePath};
use avfs_types::reference::BadReference;

use crate::backend::{ApprovalState, BackendError};
use crate::codec::DecodeError;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, VaultError>;

/// Why an operation of the vault failed. Implements [`Diagnose`]: each variant has a code.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The store failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Invalid path inside a tree.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The operation was stopped through its [`Meter`](crate::meter::Meter).
    #[error("interrupted before it was complete")]
    Interrupted,

    /// An object that something refers to is not in the vault.
    #[error("{kind} {id} is missing from the vault")]
    MissingObject {
        /// The kind of object, such as `blob` or `symlink`.
        kind: &'static str,
        /// The id.
        id: String,
    },
    /// An object does not match its digest, or cannot be decoded.
    #[error("{kind} {id} is damaged: {detail}")]
    DamagedObject {
        /// The kind of object, such as `blob` or `symlink`.
        kind: &'static str,
        /// The id.
        id: String,
        /// Description of the damage.
        detail: String,
    },
    /// The content of a file cannot be read.
    #[error("{path} cannot be read")]
    InFile {
        /// The path of the file.
        path: TreePath,
        /// The cause.
        #[source]
        source: Box<Self>,
    },

    /// A reference does not resolve.
    #[error("there is no fork, version or run {reference:?}")]
    UnknownRef {
        /// The reference as typed.
        reference: String,
    },
    /// An id prefix matches several versions.
    #[error("{reference:?} is ambiguous: it matches {count} versions, among them {examples}")]
    AmbiguousRef {
        /// The reference as typed.
        reference: String,
        /// Number of matches.
        count: usize,
        /// Some of the matches, separated by commas.
        examples: String,
    },
    /// Invalid syntax of a reference.
    #[error(transparent)]
    BadRef(#[from] BadReference),
    /// A name that a new fork cannot have.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// A reference such as `main~9` has more steps than the fork has versions.
    #[error("{reference:?} goes back past the first version")]
    BeforeFirst {
        /// The reference as typed.
        reference: String,
    },
    /// The content of the version was removed by a prune.
    #[error("version {} was pruned: its files are no longer kept", id.short())]
    Pruned {
        /// The id.
        id: VersionId,
    },

    /// The version holds only the paths that one run touched.
    #[error("version {} has only the paths changed by a run with --base touched, not the whole directory", id.short())]
    Partial {
        /// The id.
        id: VersionId,
    },

    /// There is no such fork.
    #[error("there is no fork {name}")]
    NoFork {
        /// The name.
        name: ForkName,
    },
    /// The name of a new fork is taken.
    #[error("fork {name} already exists")]
    ForkExists {
        /// The name.
        name: ForkName,
    },
    /// The main fork cannot be deleted.
    #[error("fork {name} is the vault's main fork and cannot be deleted")]
    MainFork {
        /// The name.
        name: ForkName,
    },
    /// A fork with checkpoints that were saved by hand is deleted only with force.
    #[error("fork {name} holds checkpoints that were saved by hand ({count})")]
    ForkHasCheckpoints {
        /// The name.
        name: ForkName,
        /// Number of these checkpoints.
        count: usize,
    },
    /// Only the fork of a run can be discarded.
    #[error("fork {name} is a persistent fork, not the fork of a run")]
    PersistentFork {
        /// The name.
        name: ForkName,
    },
    /// The head of a fork is not the version that the caller expects.
    #[error("fork {fork} moved to {} during the operation, which expected {}", found.short(), expected.short())]
    ForkMoved {
        /// The fork.
        fork: ForkName,
        /// The expected head.
        expected: VersionId,
        /// The actual head.
        found: VersionId,
    },
    /// The fork has no version that can be undone.
    #[error("nothing to undo on fork {fork}: it is at the version it started from")]
    NothingToUndo {
        /// The fork.
        fork: ForkName,
    },
    /// The last change of the fork is not an undo.
    #[error("nothing to redo on fork {fork}")]
    NothingToRedo {
        /// The fork.
        fork: ForkName,
    },
    /// There is no such checkpoint.
    #[error("there is no checkpoint {name} on fork {fork}")]
    NoCheckpoint {
        /// The fork.
        fork: ForkName,
        /// The name.
        name: CheckpointName,
    },
    /// The name of a new checkpoint is taken.
    #[error("checkpoint {name} already exists on fork {fork}")]
    CheckpointExists {
        /// The fork.
        fork: ForkName,
        /// The name.
        name: CheckpointName,
    },

    /// The file at the vault's path is no longer the vault that was opened.
    #[error("the vault {} was moved, deleted or replaced meanwhile", path.display())]
    Moved {
        /// The path.
        path: std::path::PathBuf,
    },
    /// There is no such run.
    #[error("there is no run {id}")]
    NoRun {
        /// The id.
        id: RunPrefix,
    },
    /// A version has no common ancestor with the others.
    #[error("version {} has no common ancestor with the others", version.short())]
    NotRelated {
        /// The version.
        version: VersionId,
    },
    /// A join was requested without versions.
    #[error("there are no versions to join")]
    NothingToJoin,
    /// There is no such batch.
    #[error("there is no batch {id}")]
    NoBatch {
        /// The id.
        id: BatchPrefix,
    },
    /// An id prefix matches several batches.
    #[error("{id} is ambiguous: it matches several batches")]
    AmbiguousBatch {
        /// The id.
        id: BatchPrefix,
    },
    /// An id prefix matches several runs.
    #[error("{id:?} is ambiguous: it matches {count} runs, among them {examples}", id = id.as_str())]
    AmbiguousRun {
        /// The id.
        id: RunPrefix,
        /// Number of matches.
        count: usize,
        /// Some of the matches, separated by commas.
        examples: String,
    },
    /// The run is already captured.
    #[error("run {id} is already in the vault: a run is captured only once")]
    RunCaptured {
        /// The id.
        id: RunId,
    },
    /// The run has no version that a reference could resolve to.
    #[error("run {id} has no version: {reason}")]
    RunWithoutVersion {
        /// The id.
        id: RunId,
        /// The reason, as text.
        reason: &'static str,
    },

    /// There is no such approval.
    #[error("there is no approval {id}")]
    NoApproval {
        /// The id.
        id: ApprovalPrefix,
    },
    /// An id prefix matches several approvals.
    #[error("{id:?} is ambiguous: it matches {count} approvals, among them {examples}", id = id.as_str())]
    AmbiguousApproval {
        /// The id.
        id: ApprovalPrefix,
        /// Number of matches.
        count: usize,
        /// Some of the matches, separated by commas.
        examples: String,
    },
    /// The approval was already decided or used.
    #[error("approval {id} is already {}", state.word())]
    ApprovalSettled {
        /// The id.
        id: ApprovalId,
        /// Its state.
        state: ApprovalState,
    },
    /// An approval expired before it was decided.
    #[error("approval {id} has expired")]
    ApprovalExpired {
        /// The id.
        id: ApprovalId,
    },

    /// There is no such recording.
    #[error("there is no recording {name}")]
    NoRecording {
        /// The name.
        name: RecordingName,
    },
    /// The name of a new recording is taken.
    #[error("recording {name} already exists")]
    RecordingExists {
        /// The name.
        name: RecordingName,
    },
    /// The recording was already stopped.
    #[error("recording {name} has already ended")]
    RecordingStopped {
        /// The name.
        name: RecordingName,
    },
    /// No recording is open.
    #[error("no recording is open")]
    NotRecording,
    /// Several recordings are open, and the caller named no recording.
    #[error("several recordings are open: {names}")]
    SeveralRecordings {
        /// Their names, separated by commas.
        names: String,
    },

    /// The tree has no such path.
    #[error("{path} does not exist in the version")]
    NoPath {
        /// The path.
        path: TreePath,
    },
    /// A component of a path is not a directory.
    #[error("{path} is a {}, not a directory", noun(kind))]
    NotADirectory {
        /// The path.
        path: TreePath,
        /// The kind of object, such as `blob` or `symlink`.
        kind: &'static str,
    },
    /// A directory, where a file is required.
    #[error("{path} is a directory")]
    IsADirectory {
        /// The path.
        path: TreePath,
    },
    /// A path in the directory that avfs reserves for itself.
    #[error("{path} is reserved for avfs and is never part of a version")]
    OwnPath {
        /// The path.
        path: TreePath,
    },
    /// An entry of another kind, where a regular file is required.
    #[error("{path} is a {}, not a file", noun(kind))]
    NotAFile {
        /// The path.
        path: TreePath,
        /// The kind of object, such as `blob` or `symlink`.
        kind: &'static str,
    },
    /// The path of a new entry is taken.
    #[error("{path} already exists")]
    PathExists {
        /// The path.
        path: TreePath,
    },
    /// Attempt to move or copy a directory into itself.
    #[error("{}", cycle(from, to))]
    PathCycle {
        /// The source path.
        from: TreePath,
        /// The target path.
        to: TreePath,
    },

    /// A tree has more entries than [`ENTRIES_MAX`](crate::tree::ENTRIES_MAX).
    #[error("the version has {entries} entries; the limit is {}", crate::tree::ENTRIES_MAX)]
    TooManyEntries {
        /// Entries of the version.
        entries: u64,
    },
    /// An operation on directories that occur many times in a tree would need too much memory.
    #[error("the changes in shared directories need more than {} MiB of memory", max_bytes >> 20)]
    SharedTooOften {
        /// The memory limit in bytes.
        max_bytes: u64,
    },
    /// A path has too many components or bytes. The message shows it shortened.
    #[error(
        "{path} is too deep: a path can have at most {} levels and {} bytes",
        avfs_types::path::DEPTH_MAX,
        avfs_types::path::PATH_BYTES_MAX
    )]
    TooDeep {
        /// The path.
        path: String,
    },
    /// A file is larger than a version can hold.
    #[error("the file is {size} bytes long; the limit is {max} bytes")]
    FileTooLarge {
        /// Size of the file in bytes.
        size: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// Reading the content to store failed.
    #[error("cannot read the content to store")]
    Input(#[source] std::io::Error),
    /// Reading a temporary file of a long list failed.
    #[error("cannot read a temporary file")]
    Temporary(#[source] std::io::Error),
    /// Writing content to the caller's destination failed.
    #[error("cannot write the content")]
    Output(#[source] std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Threads(#[source] std::io::Error),

    /// A limit of the vault would be exceeded.
    #[error("this would exceed the vault's quota of {limit} {what}: the total would be {would_be}")]
    Quota {
        /// The unit of the limit, such as `versions`.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The resulting total.
        would_be: u64,
    },
}

impl VaultError {
    /// True if an object is missing or damaged; other objects of the vault may be intact.
    pub(crate) fn is_damage(&self) -> bool {
        if let Self::InFile { source, .. } = self {
            return source.is_damage();
        }
        matches!(
            self,
            Self::MissingObject { .. }
                | Self::DamagedObject { .. }
                | Self::Backend(BackendError::Corrupt { .. })
        )
    }

    pub(crate) fn damaged(kind: &'static str, id: &str, error: &DecodeError) -> Self {
        Self::DamagedObject { kind, id: id.to_owned(), detail: error.to_string() }
    }

    /// Attributes a missing or damaged object to the file that it belongs to.
    #[must_use]
    pub fn in_file(self, path: &TreePath) -> Self {
        if matches!(self, Self::MissingObject { .. } | Self::DamagedObject { .. }) {
            return Self::InFile { path: path.clone(), source: Box::new(self) };
        }
        self
    }
}

/// The word for a kind of entry in a sentence.
fn noun(kind: &'static str) -> &'static str {
    if kind == "dir" { "directory" } else { kind }
}

fn cycle(from: &TreePath, to: &TreePath) -> String {
    if from == to {
        return format!("source and target are the same: {from}");
    }
    format!("{to} is inside {from}: nothing can be moved or copied into itself")
}

impl Diagnose for VaultError {
    fn code(&self) -> &'static str {
        match self {
            Self::Backend(error) => error.code(),
            Self::Path(error) => error.code(),
            Self::Interrupted => "interrupted",
            Self::InFile { source, .. } => source.code(),
            Self::MissingObject { .. } => "object.missing",
            Self::DamagedObject { .. } => "object.damaged",
            Self::UnknownRef { .. } => "ref.unknown",
            Self::AmbiguousRef { .. } => "ref.ambiguous",
            Self::BadRef(error) => error.code(),
            Self::BadName(error) => error.code(),
            Self::BeforeFirst { .. } => "ref.before_first",
            Self::Pruned { .. } => "version.pruned",
            Self::Partial { .. } => "version.partial",
            Self::NoFork { .. } => "fork.not_found",
            Self::ForkExists { .. } => "fork.exists",
            Self::MainFork { .. } => "fork.main",
            Self::ForkHasCheckpoints { .. } => "fork.has_checkpoints",
            Self::PersistentFork { .. } => "fork.persistent",
            Self::ForkMoved { .. } => "fork.moved",
            Self::NothingToUndo { .. } => "undo.nothing",
            Self::NothingToRedo { .. } => "redo.nothing",
            Self::NoCheckpoint { .. } => "checkpoint.not_found",
            Self::CheckpointExists { .. } => "checkpoint.exists",
            Self::Moved { .. } => "vault.moved",
            Self::NoRun { .. } => "run.not_found",
            Self::NotRelated { .. } | Self::NothingToJoin => "join.not_related",
            Self::NoBatch { .. } => "batch.not_found",
            Self::AmbiguousRun { .. } | Self::AmbiguousBatch { .. } => "ref.ambiguous",
            Self::RunCaptured { .. } => "run.captured_already",
            Self::RunWithoutVersion { .. } => "run.no_version",
            Self::NoApproval { .. } => "approval.not_found",
            Self::AmbiguousApproval { .. } => "ref.ambiguous",
            Self::ApprovalSettled { .. } => "approval.settled",
            Self::ApprovalExpired { .. } => "approval.expired",
            Self::NoRecording { .. } => "recording.not_found",
            Self::RecordingExists { .. } => "recording.exists",
            Self::RecordingStopped { .. } => "recording.stopped",
            Self::NotRecording => "recording.none_open",
            Self::SeveralRecordings { .. } => "recording.ambiguous",
            Self::NoPath { .. } => "path.not_found",
            Self::NotADirectory { .. } => "path.not_a_directory",
            Self::IsADirectory { .. } => "path.is_a_directory",
            Self::OwnPath { .. } => "path.invalid",
            Self::NotAFile { .. } => "path.not_a_file",
            Self::PathExists { .. } => "path.exists",
            Self::PathCycle { .. } => "path.cycle",
            Self::TooManyEntries { .. } | Self::TooDeep { .. } | Self::SharedTooOften { .. } => {
                "vault.too_large"
            }
            Self::FileTooLarge { .. } => "file.too_large",
            Self::Input(_) => "io.input",
            Self::Temporary(_) => "io.temporary",
            Self::Output(_) => "io.output",
            Self::Threads(_) => "host.threads",
            Self::Quota { .. } => "quota.exceeded",
        }
    }
}
