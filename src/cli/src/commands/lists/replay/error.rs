//! What keeps a replay from being begun.

use avfs_present::hint;
use avfs_types::diagnose::Diagnose;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("there is nothing to replay in {what}")]
    Empty { what: String },
    #[error("{what:?} is no file, and neither a fork nor a recording, nor the id of a run")]
    Unknown { what: String },
    #[error("{id} began from {version}, which is not in this vault{recorded_in}")]
    UnknownBase { id: String, version: String, recorded_in: String },
    #[error("{id} began from {version}, which this vault no longer keeps")]
    GoneBase { id: String, version: String },
    #[error("a replay only reads remembered results")]
    OnlyReads,
}

impl Diagnose for ReplayError {
    fn code(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "list.empty",
            Self::Unknown { .. } => "record.unknown",
            Self::UnknownBase { .. } | Self::GoneBase { .. } => "replay.unknown_base",
            Self::OnlyReads => "usage",
        }
    }
}

hint!(ReplayError, |error, avfs| Some(match error {
    Self::Empty { .. } => format!("see what was run with: {avfs} runs list"),
    Self::Unknown { .. } => {
        format!("list what there is with: {avfs} fork list, {avfs} record list, {avfs} runs list")
    }
    Self::UnknownBase { .. } => {
        "name the vault that it was recorded in with --vault, or a copy of that file".to_owned()
    }
    Self::GoneBase { .. } => {
        "name a copy of the vault that still has it with --vault; a checkpoint keeps a version from prune and gc"
                    .to_owned()
    }
    Self::OnlyReads => "use --cache read, or --cache off".to_owned(),
}));
