//! Errors of the command line itself: its output, and its words.

use avfs_present::hint;
use avfs_types::diagnose::Diagnose;

#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    #[error("avfs has no command {verb:?}")]
    UnknownVerb { verb: String },
    #[error("{option} keeps files for a persistent fork, and these commands run without one")]
    KeepsWithoutFork { option: String },
    #[error("cannot read the answer")]
    Input(#[source] std::io::Error),
    #[error("the command completed, but its output could not be written")]
    Unanswered(#[source] Box<dyn std::error::Error>),
    #[error("the file size limit was reached (ulimit -f)")]
    FileSizeLimit(#[source] Box<dyn std::error::Error>),
}

impl Diagnose for EdgeError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownVerb { .. } => "man.unknown_verb",
            Self::KeepsWithoutFork { .. } => "usage",
            Self::Input(_) => "io.input",
            Self::Unanswered(_) => "io.output",
            Self::FileSizeLimit(_) => "host.file_size_limit",
        }
    }
}

hint!(EdgeError, |error, _avfs| {
    let hint = match error {
        Self::UnknownVerb { verb } if verb == "avfs-run" => "print it with: avfs-run --man | man -l -",
        Self::UnknownVerb { .. } => "list the commands with: avfs --help",
        Self::KeepsWithoutFork { .. } => {
            "omit it, or run the commands on a fork: avfs-run --fork NAME, avfs batch --mode chain"
        }
        Self::FileSizeLimit(_) => "raise it with: ulimit -f unlimited",
        Self::Input(_) | Self::Unanswered(_) => return None,
    };
    Some(hint.to_owned())
});
