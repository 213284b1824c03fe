//! What a vault can refuse, in one enum: the failed thing, its operands, and what to do next.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use avfs_types::diagnose::{Diagnose, shell_word};
use avfs_types::ids::{
    ApprovalId, ApprovalPrefix, BatchPrefix, CheckpointName, ForkName, RecordingName, RunId, RunPrefix,
    VersionId,
};
use avfs_types::path::{PathError, TreePath};
use avfs_types::reference::BadReference;

use crate::backend::{ApprovalState, BackendError};
use crate::codec::DecodeError;

pub type Result<T> = std::result::Result<T, VaultError>;

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Import(#[from] crate::import::ImportError),
    #[error(transparent)]
    Capture(#[from] crate::capture::CaptureError),
    #[error(transparent)]
    Export(#[from] crate::export::ExportError),

    #[error("{kind} {id} is missing from the vault")]
    MissingObject { kind: &'static str, id: String },
    #[error("{kind} {id} is damaged: {detail}")]
    DamagedObject { kind: &'static str, id: String, detail: String },
    #[error("{path} cannot be read")]
    InFile {
        path: TreePath,
        #[source]
        source: Box<Self>,
    },

    #[error("there is no fork, version or run {reference:?}")]
    UnknownRef {
        reference: String,
        /// A run whose id it would be.
        run: Option<RunId>,
    },
    #[error("{reference:?} could be any of {count} versions, among them {examples}")]
    AmbiguousRef { reference: String, count: usize, examples: String },
    #[error(transparent)]
    BadRef(#[from] BadReference),
    #[error("{reference:?} reaches back before the first version")]
    BeforeFirst { reference: String },
    #[error("version {} was pruned: its files are no longer kept", id.short())]
    Pruned { id: VersionId },

    #[error("there is no fork {name}")]
    NoFork { name: ForkName },
    #[error("there is a fork {name} already")]
    ForkExists { name: ForkName },
    #[error("fork {name} is the vault's main fork and cannot be deleted")]
    MainFork { name: ForkName },
    #[error("fork {name} holds checkpoints that were saved by hand ({count})")]
    ForkHasCheckpoints { name: ForkName, count: usize },
    #[error("fork {name} is not the fork of a run: it is there to stay")]
    PersistentFork { name: ForkName },
    #[error("fork {fork} moved to {} while this was prepared for {}", found.short(), expected.short())]
    ForkMoved { fork: ForkName, expected: VersionId, found: VersionId },
    #[error("there is nothing to undo on fork {fork}: it is where it began")]
    NothingToUndo { fork: ForkName },
    #[error("there is nothing to redo on fork {fork}")]
    NothingToRedo { fork: ForkName },
    #[error("there is no checkpoint {name} on fork {fork}")]
    NoCheckpoint { fork: ForkName, name: CheckpointName },
    #[error("there is a checkpoint {name} on fork {fork} already")]
    CheckpointExists { fork: ForkName, name: CheckpointName },

    #[error("the vault {} was moved, deleted or replaced meanwhile", path.display())]
    Moved { path: std::path::PathBuf },
    #[error("there is no run {id}")]
    NoRun { id: RunPrefix },
    #[error("version {} was made of nothing that the others were made of", version.short())]
    NotRelated { version: VersionId },
    #[error("there are no versions to join")]
    NothingToJoin,
    #[error("there is no batch {id}")]
    NoBatch { id: BatchPrefix },
    #[error("{id} could be any of several batches")]
    AmbiguousBatch { id: BatchPrefix },
    #[error("{id:?} could be any of {count} runs, among them {examples}", id = id.as_str())]
    AmbiguousRun { id: RunPrefix, count: usize, examples: String },
    #[error("run {id} is in the vault already: a run is captured once")]
    RunCaptured { id: RunId },
    #[error("run {id} leads to no version: {reason}")]
    RunWithoutVersion { id: RunId, reason: &'static str },

    #[error("there is no approval {id}")]
    NoApproval { id: ApprovalPrefix },
    #[error("{id:?} could be any of {count} approvals, among them {examples}", id = id.as_str())]
    AmbiguousApproval { id: ApprovalPrefix, count: usize, examples: String },
    #[error("approval {id} is {} already", state.word())]
    ApprovalSettled { id: ApprovalId, state: ApprovalState },
    #[error("approval {id} has expired")]
    ApprovalExpired { id: ApprovalId },

    #[error("there is no recording {name}")]
    NoRecording { name: RecordingName },
    #[error("there is a recording {name} already")]
    RecordingExists { name: RecordingName },
    #[error("recording {name} has ended already")]
    RecordingStopped { name: RecordingName },
    #[error("nothing is recorded at present")]
    NotRecording,
    #[error("several recordings are open: {names}")]
    SeveralRecordings { names: String },

    #[error("there is no {path}")]
    NoPath { path: TreePath },
    #[error("{path} is a {kind}, not a directory")]
    NotADirectory { path: TreePath, kind: &'static str },
    #[error("{path} is a directory")]
    IsADirectory { path: TreePath },
    #[error("{path} is avfs's own, which is never part of a version")]
    OwnPath { path: TreePath },
    #[error("{path} is a {kind}, not a file")]
    NotAFile { path: TreePath, kind: &'static str },
    #[error("{path} exists already")]
    PathExists { path: TreePath },
    #[error("{}", cycle(from, to))]
    PathCycle { from: TreePath, to: TreePath },

    #[error("a version of {entries} entries; at most {} are kept or read", crate::tree::ENTRIES_MAX)]
    TooManyEntries { entries: u64 },
    #[error("the changes in shared directories take more than {} MiB of memory", max_bytes >> 20)]
    SharedTooOften { max_bytes: u64 },
    #[error(
        "{path} lies too deep: at most {} levels and {} bytes of a path are read",
        avfs_types::path::DEPTH_MAX,
        avfs_types::path::PATH_BYTES_MAX
    )]
    TooDeep { path: String },
    #[error("the file is {size} bytes long; at most {max} can be kept")]
    FileTooLarge { size: u64, max: u64 },
    #[error("cannot read the content to be stored")]
    Input(#[source] std::io::Error),
    #[error("cannot write the content out")]
    Output(#[source] std::io::Error),
    #[error("cannot start a thread")]
    Threads(#[source] std::io::Error),

    #[error("this would exceed the vault's quota of {limit} {what}: it would be {would_be}")]
    Quota { what: &'static str, limit: u64, would_be: u64 },
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

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Backend(error) => return error.hint(),
            Self::Path(error) => return error.hint(),
            Self::Import(error) => return error.hint(),
            Self::Capture(error) => return error.hint(),
            Self::Export(error) => return error.hint(),
            Self::InFile { .. } => "put back what a directory has with: avfs fsck --heal DIR; \
                 write the rest out with: avfs export --keep-going"
                .to_owned(),
            Self::MissingObject { .. } | Self::DamagedObject { .. } => {
                "see what else is affected with: avfs fsck; put back what a directory has with: avfs fsck --heal DIR"
                    .to_owned()
            }
            Self::UnknownRef { run: Some(id), .. } => format!("did you mean run:{id}?"),
            Self::UnknownRef { run: None, reference } if reference.starts_with("run:") => {
                "list runs with: avfs runs list".to_owned()
            }
            Self::UnknownRef { run: None, .. } => {
                "list them with: avfs fork list, or: avfs log; a version is named by at least four digits".to_owned()
            }
            Self::AmbiguousRef { .. } => "give more digits of the version".to_owned(),
            Self::BadRef(error) => return error.hint(),
            Self::BeforeFirst { .. } => "see how far back it goes with: avfs log".to_owned(),
            Self::Pruned { .. } => "choose a version that avfs log does not show as pruned".to_owned(),
            Self::NoFork { name } => {
                format!("list them with: avfs fork list, or make it with: avfs fork create {name}")
            }
            Self::ForkExists { name } if *name == ForkName::main() => {
                "choose another name: main is there from the beginning".to_owned()
            }
            Self::ForkExists { name } => format!("choose another name, or: avfs fork delete {name}"),
            Self::MainFork { .. } => "delete the whole vault with: avfs vault delete".to_owned(),
            Self::ForkHasCheckpoints { name, .. } => {
                format!("delete them with it: avfs fork delete --force {name}")
            }
            Self::PersistentFork { name } if *name == ForkName::main() => {
                "take its last version back with: avfs undo".to_owned()
            }
            Self::PersistentFork { name } => {
                format!("delete it with: avfs fork delete {name}, or take a version back: avfs undo {name}")
            }
            Self::ForkMoved { .. } => "look at the new state and try again".to_owned(),
            Self::NothingToUndo { fork } => {
                format!(
                    "see its versions with: avfs log {fork}; go to any of them with: avfs restore REF --fork {fork}"
                )
            }
            Self::NothingToRedo { fork } => {
                format!(
                    "only an undo can be taken back, until something else changes the fork: avfs log {fork}, \
                     avfs restore REF --fork {fork}"
                )
            }
            Self::NoCheckpoint { fork, .. } => format!("list them with: avfs checkpoint list --fork {fork}"),
            Self::CheckpointExists { .. } => "choose another name, or delete that one first".to_owned(),
            Self::Moved { path } => format!("put it back to {}", path.display()),
            Self::NoRun { .. } => "list them with: avfs runs list".to_owned(),
            Self::NotRelated { .. } | Self::NothingToJoin => "join versions of one history".to_owned(),
            Self::NoBatch { .. } => "list them with: avfs batch --list".to_owned(),
            Self::AmbiguousBatch { .. } => "give more digits of the batch's id".to_owned(),
            Self::AmbiguousRun { .. } => "give more digits of the run's id".to_owned(),
            Self::RunCaptured { id } | Self::RunWithoutVersion { id, .. } => {
                format!("see what became of it with: avfs runs show {id}")
            }
            Self::NoApproval { .. } => "list them with: avfs approvals list".to_owned(),
            Self::AmbiguousApproval { .. } => "give more digits of the approval's id".to_owned(),
            Self::ApprovalSettled { id, .. } => {
                format!("see what became of it with: avfs approvals show {id}")
            }
            Self::ApprovalExpired { .. } => "run the command again to be asked again".to_owned(),
            Self::NoRecording { .. } => "list them with: avfs record list".to_owned(),
            Self::RecordingExists { name } => {
                format!("choose another name, or: avfs record delete {name}")
            }
            Self::RecordingStopped { name } => {
                format!("write its list with: avfs record export {name} > list.jsonl")
            }
            Self::NotRecording => "begin with: avfs record start".to_owned(),
            Self::SeveralRecordings { .. } => "name the one that is to end: avfs record stop NAME".to_owned(),
            Self::NoPath { .. } => "see what there is with: avfs ls REF".to_owned(),
            Self::NotADirectory { .. } | Self::PathExists { .. } | Self::OwnPath { .. } => {
                "choose another path".to_owned()
            }
            Self::IsADirectory { path } | Self::PathCycle { from: path, .. } if path.is_root() => {
                "name what is in it; see what there is with: avfs ls REF".to_owned()
            }
            Self::IsADirectory { .. } => "name a file in it, or add -r to rm or cp for all of it".to_owned(),
            Self::NotAFile { path, .. } => {
                let path = shell_word(OsStr::from_bytes(path.as_bytes()));
                format!("see what it is with: avfs ls -l REF {path}")
            }
            Self::PathCycle { from, to } if from == to => "choose another target".to_owned(),
            Self::PathCycle { .. } => "choose a target outside of it".to_owned(),
            Self::TooManyEntries { .. } | Self::TooDeep { .. } => {
                "leave out what need not be versioned with lines in .avfsignore".to_owned()
            }
            Self::SharedTooOften { .. } => {
                "if you did not make the vault, do not use it; otherwise take what you need with: avfs export"
                    .to_owned()
            }
            Self::FileTooLarge { .. } => "leave it out with a line in .avfsignore".to_owned(),
            Self::Quota { what: "files", .. } => {
                "remove some with: avfs rm, or allow more with: avfs quota set --files N".to_owned()
            }
            Self::Quota { what: "versions", limit: 0..2, .. } => {
                "allow more with: avfs quota set --versions N".to_owned()
            }
            // There has to be room for one more than are kept.
            Self::Quota { what: "versions", limit, .. } => format!(
                "free some with: avfs prune --keep-last {} && avfs gc, or allow more with: avfs quota set \
                 --versions N",
                (limit - 1).min(10)
            ),
            Self::Quota { .. } => {
                "take large files out with: avfs rm PATH, free what older versions hold with: avfs prune --keep-last 1 && \
                 avfs gc, or allow more with: avfs quota set --bytes N"
                    .to_owned()
            }
            Self::Threads(_) => {
                "end some processes, or raise the limit on them (ulimit -u); then try again".to_owned()
            }
            Self::Input(_) | Self::Output(_) => return None,
        };
        Some(hint)
    }
}
