//! Errors that prevent a replay.

use avfs_present::hint;
use avfs_types::diagnose::Diagnose;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("nothing to replay in {what}")]
    Empty { what: String },
    #[error("{what:?} is not a file, fork, recording or run id")]
    Unknown { what: String },
    #[error("{id} starts at {version}, which is not in this vault{recorded_in}")]
    UnknownBase { id: String, version: String, recorded_in: String },
    #[error("{id} starts at {version}, which this vault no longer has")]
    GoneBase { id: String, version: String },
    #[error("a replay can only read cached results")]
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
    Self::Empty { .. } => format!("list runs with: {avfs} runs list"),
    Self::Unknown { .. } => {
        format!(
            "list forks, recordings and runs with: {avfs} fork list, {avfs} record list, {avfs} runs list"
        )
    }
    Self::UnknownBase { .. } => {
        "use the vault that it was recorded in, or a copy of it, with: --vault PATH".to_owned()
    }
    Self::GoneBase { .. } => {
        "use a copy of the vault that still has it with: --vault PATH; a checkpoint protects a version from prune and gc"
                    .to_owned()
    }
    Self::OnlyReads => "use --cache read, or --cache off".to_owned(),
}));
