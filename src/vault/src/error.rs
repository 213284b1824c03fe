//! What a vault can refuse, in one enum: the failed thing, its operands, and what to do next.

use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{
    ApprovalId, ApprovalPrefix, BatchPrefix, CheckpointName, ForkName, RecordingName, RunId, RunPrefix,
    VersionId,
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
    /// A text is not a path inside a tree.
    #[error(transparent)]
    Path(#[from] PathError),
    /// An import failed.
    #[error(transparent)]
    Import(#[from] crate::import::ImportError),
    /// A capture failed.
    #[error(transparent)]
    Capture(#[from] crate::capture::CaptureError),
    /// An export failed.
    #[error(transparent)]
    Export(#[from] crate::export::ExportError),

    /// An object that something refers to is not in the vault.
    #[error("{kind} {id} is missing from the vault")]
    MissingObject {
        /// What it is, such as `blob` or `symlink`.
        kind: &'static str,
        /// The id.
        id: String,
    },
    /// An object does not match its digest, or cannot be decoded.
    #[error("{kind} {id} is damaged: {detail}")]
    DamagedObject {
        /// What it is, such as `blob` or `symlink`.
        kind: &'static str,
        /// The id.
        id: String,
        /// What is wrong, in words.
        detail: String,
    },
    /// The content of a file cannot be read.
    #[error("{path} cannot be read")]
    InFile {
        /// The path of the file.
        path: TreePath,
        /// Why not.
        #[source]
        source: Box<Self>,
    },

    /// A reference leads to nothing.
    #[error("there is no fork, version or run {reference:?}")]
    UnknownRef {
        /// The reference as it was typed.
        reference: String,
    },
    /// A prefix of an id fits several versions.
    #[error("{reference:?} could be any of {count} versions, among them {examples}")]
    AmbiguousRef {
        /// The reference as it was typed.
        reference: String,
        /// How many there are.
        count: usize,
        /// Some of them, separated by commas.
        examples: String,
    },
    /// A text is not a reference.
    #[error(transparent)]
    BadRef(#[from] BadReference),
    /// A reference such as `main~9` has more steps than the fork has versions.
    #[error("{reference:?} reaches back before the first version")]
    BeforeFirst {
        /// The reference as it was typed.
        reference: String,
    },
    /// The content of the version was given up by a prune.
    #[error("version {} was pruned: its files are no longer kept", id.short())]
    Pruned {
        /// The id.
        id: VersionId,
    },

    /// The version holds only the paths that one run touched.
    #[error("version {} holds only what a run with --base touched changed; this needs the whole directory", id.short())]
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
    #[error("there is a fork {name} already")]
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
    /// A fork with checkpoints that were saved by hand is not deleted without force.
    #[error("fork {name} holds checkpoints that were saved by hand ({count})")]
    ForkHasCheckpoints {
        /// The name.
        name: ForkName,
        /// How many there are.
        count: usize,
    },
    /// Only the fork of a run can be discarded.
    #[error("fork {name} is not the fork of a run: it is there to stay")]
    PersistentFork {
        /// The name.
        name: ForkName,
    },
    /// The head of a fork is not where the caller expects it.
    #[error("fork {fork} moved to {} while this was prepared for {}", found.short(), expected.short())]
    ForkMoved {
        /// The fork.
        fork: ForkName,
        /// The version that was expected at the head.
        expected: VersionId,
        /// The version that is at the head.
        found: VersionId,
    },
    /// The fork has no version that can be undone.
    #[error("there is nothing to undo on fork {fork}: it is where it began")]
    NothingToUndo {
        /// The fork.
        fork: ForkName,
    },
    /// The last change of the fork is not an undo.
    #[error("there is nothing to redo on fork {fork}")]
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
    #[error("there is a checkpoint {name} on fork {fork} already")]
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
    #[error("version {} was made of nothing that the others were made of", version.short())]
    NotRelated {
        /// The version.
        version: VersionId,
    },
    /// A join was asked for without versions.
    #[error("there are no versions to join")]
    NothingToJoin,
    /// There is no such batch.
    #[error("there is no batch {id}")]
    NoBatch {
        /// The id.
        id: BatchPrefix,
    },
    /// A prefix of an id fits several batches.
    #[error("{id} could be any of several batches")]
    AmbiguousBatch {
        /// The id.
        id: BatchPrefix,
    },
    /// A prefix of an id fits several runs.
    #[error("{id:?} could be any of {count} runs, among them {examples}", id = id.as_str())]
    AmbiguousRun {
        /// The id.
        id: RunPrefix,
        /// How many there are.
        count: usize,
        /// Some of them, separated by commas.
        examples: String,
    },
    /// The changes of a run are captured once.
    #[error("run {id} is in the vault already: a run is captured once")]
    RunCaptured {
        /// The id.
        id: RunId,
    },
    /// A run has no version that a reference could lead to.
    #[error("run {id} leads to no version: {reason}")]
    RunWithoutVersion {
        /// The id.
        id: RunId,
        /// Why not, in words.
        reason: &'static str,
    },

    /// There is no such approval.
    #[error("there is no approval {id}")]
    NoApproval {
        /// The id.
        id: ApprovalPrefix,
    },
    /// A prefix of an id fits several approvals.
    #[error("{id:?} could be any of {count} approvals, among them {examples}", id = id.as_str())]
    AmbiguousApproval {
        /// The id.
        id: ApprovalPrefix,
        /// How many there are.
        count: usize,
        /// Some of them, separated by commas.
        examples: String,
    },
    /// An approval was decided or used before.
    #[error("approval {id} is {} already", state.word())]
    ApprovalSettled {
        /// The id.
        id: ApprovalId,
        /// The state that it has.
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
    #[error("there is a recording {name} already")]
    RecordingExists {
        /// The name.
        name: RecordingName,
    },
    /// A recording is stopped once.
    #[error("recording {name} has ended already")]
    RecordingStopped {
        /// The name.
        name: RecordingName,
    },
    /// No recording is open.
    #[error("nothing is recorded at present")]
    NotRecording,
    /// Several recordings are open, and none was named.
    #[error("several recordings are open: {names}")]
    SeveralRecordings {
        /// Their names, separated by commas.
        names: String,
    },

    /// The tree has no such path.
    #[error("there is no {path}")]
    NoPath {
        /// The path.
        path: TreePath,
    },
    /// A component of a path is not a directory.
    #[error("{path} is a {kind}, not a directory")]
    NotADirectory {
        /// The path.
        path: TreePath,
        /// What it is, such as `blob` or `symlink`.
        kind: &'static str,
    },
    /// A directory stands where a file is needed.
    #[error("{path} is a directory")]
    IsADirectory {
        /// The path.
        path: TreePath,
    },
    /// A path is in the directory that avfs keeps for itself.
    #[error("{path} is avfs's own, which is never part of a version")]
    OwnPath {
        /// The path.
        path: TreePath,
    },
    /// Something that is not a regular file stands where a file is needed.
    #[error("{path} is a {kind}, not a file")]
    NotAFile {
        /// The path.
        path: TreePath,
        /// What it is, such as `blob` or `symlink`.
        kind: &'static str,
    },
    /// The path of a new entry is taken.
    #[error("{path} exists already")]
    PathExists {
        /// The path.
        path: TreePath,
    },
    /// A directory was to be moved or copied into itself.
    #[error("{}", cycle(from, to))]
    PathCycle {
        /// The path that was to be moved or copied.
        from: TreePath,
        /// The path it was to get.
        to: TreePath,
    },

    /// A tree has more entries than [`ENTRIES_MAX`](crate::tree::ENTRIES_MAX).
    #[error("a version of {entries} entries; at most {} are kept or read", crate::tree::ENTRIES_MAX)]
    TooManyEntries {
        /// Entries of the version.
        entries: u64,
    },
    /// An operation on directories that are shared many times would take too much memory.
    #[error("the changes in shared directories take more than {} MiB of memory", max_bytes >> 20)]
    SharedTooOften {
        /// The most bytes that are used.
        max_bytes: u64,
    },
    /// A path has too many components or bytes. It comes shortened.
    #[error(
        "{path} lies too deep: at most {} levels and {} bytes of a path are read",
        avfs_types::path::DEPTH_MAX,
        avfs_types::path::PATH_BYTES_MAX
    )]
    TooDeep {
        /// The path.
        path: String,
    },
    /// A file is larger than a version can hold.
    #[error("the file is {size} bytes long; at most {max} can be kept")]
    FileTooLarge {
        /// Bytes of the file.
        size: u64,
        /// The most bytes that are kept.
        max: u64,
    },
    /// The content to be stored cannot be read.
    #[error("cannot read the content to be stored")]
    Input(#[source] std::io::Error),
    /// Content cannot be written to where the caller wants it.
    #[error("cannot write the content out")]
    Output(#[source] std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Threads(#[source] std::io::Error),

    /// A limit of the vault would be exceeded.
    #[error("this would exceed the vault's quota of {limit} {what}: it would be {would_be}")]
    Quota {
        /// What the limit counts, such as `versions`.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What the count would be.
        would_be: u64,
    },
}

impl VaultError {
    /// True if the vault does not hold what it should, and may well hold the rest.
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

    /// What is wrong with an object, told of the file it belongs to.
    #[must_use]
    pub fn in_file(self, path: &TreePath) -> Self {
        if matches!(self, Self::MissingObject { .. } | Self::DamagedObject { .. }) {
            return Self::InFile { path: path.clone(), source: Box::new(self) };
        }
        self
    }
}

fn cycle(from: &TreePath, to: &TreePath) -> String {
    if from == to {
        return format!("source and target are the same: {from}");
    }
    format!("{to} lies beneath {from}: nothing can be put into itself")
}

impl Diagnose for VaultError {
    fn code(&self) -> &'static str {
        match self {
            Self::Backend(error) => error.code(),
            Self::Path(error) => error.code(),
            Self::Import(error) => error.code(),
            Self::Capture(error) => error.code(),
            Self::Export(error) => error.code(),
            Self::InFile { source, .. } => source.code(),
            Self::MissingObject { .. } => "object.missing",
            Self::DamagedObject { .. } => "object.damaged",
            Self::UnknownRef { .. } => "ref.unknown",
            Self::AmbiguousRef { .. } => "ref.ambiguous",
            Self::BadRef(error) => error.code(),
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
            Self::Output(_) => "io.output",
            Self::Threads(_) => "host.threads",
            Self::Quota { .. } => "quota.exceeded",
        }
    }
}
