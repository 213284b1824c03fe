//! Errors that prevent starting or resuming a batch.

use avfs_hostfs::lock::LockError;
use avfs_present::hint;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::BatchId;

#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    #[error("the list {list} has no items")]
    Empty { list: String },
    #[error("this vault has no batch of the list {list}")]
    NothingToResume { list: String },
    #[error("batch {id} was started with a different list than {list}")]
    OtherList { id: BatchId, list: String },
    #[error("every item of batch {id} has succeeded")]
    AllDone { id: BatchId },
    #[error("the record of batch {id} cannot be read: {problem}")]
    BadPlan { id: BatchId, problem: String },
    #[error("batch {id} is being run by another process")]
    Held {
        id: BatchId,
        #[source]
        source: LockError,
    },
    #[error("batch {id} was started with --mode {mode}")]
    OtherMode { id: BatchId, mode: &'static str },
    #[error("--fork requires a chain; each item of --mode {mode} has its own fork")]
    ForkWithoutChain { mode: &'static str },
    #[error("--discard keeps no result that a later item could start at")]
    DiscardInSequence,
}

impl Diagnose for BatchError {
    fn code(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "list.empty",
            Self::NothingToResume { .. } => "batch.not_found",
            Self::OtherList { .. } => "batch.other_list",
            Self::AllDone { .. } => "batch.all_done",
            Self::BadPlan { .. } => "batch.bad_plan",
            Self::Held { .. } => "batch.held",
            Self::OtherMode { .. } | Self::ForkWithoutChain { .. } | Self::DiscardInSequence => "usage",
        }
    }
}

hint!(BatchError, |error, avfs| Some(match error {
    Self::Empty { .. } => "write one command per line".to_owned(),
    Self::NothingToResume { .. } =>
        format!("start it without --resume, or list batches with: {avfs} batch --list"),
    Self::OtherList { .. } => {
        "undo the change of the list, or start a new batch without --resume".to_owned()
    }
    Self::AllDone { .. } => "run it again without --resume".to_owned(),
    Self::BadPlan { .. } => "start a new batch without --resume".to_owned(),
    Self::Held { .. } => "wait until it has ended, or end it with ^C".to_owned(),
    Self::OtherMode { .. } => "omit --mode, or start a new batch without --resume".to_owned(),
    Self::ForkWithoutChain { .. } => "omit one of them".to_owned(),
    Self::DiscardInSequence => "use it with --mode fan-out".to_owned(),
}));
