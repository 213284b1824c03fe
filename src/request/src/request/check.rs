//! Rejects commands that no system can run, before any work is done for them.

use std::os::unix::ffi::OsStrExt;

use avfs_types::CommandLine;
use avfs_types::diagnose::Diagnose;

use super::ExecutionRequest;

/// The maximum length of a word, including its NUL byte (MAX_ARG_STRLEN: 32 pages of 4 KiB).
const WORD_BYTES_MAX: usize = 131_072;

/// A command that cannot be executed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    #[error("there is no command to run")]
    Empty,
    #[error("word {number} of the command contains a NUL byte")]
    Nul { number: usize },
    #[error("the value of the variable {name} contains a NUL byte")]
    NulInVariable { name: String },
    #[error("word {number} of the command is {bytes} bytes long; the kernel allows at most {WORD_BYTES_MAX}")]
    WordTooLong { number: usize, bytes: usize },
    #[error("the command and its variables are {bytes} bytes long; this system allows at most {max}")]
    TooLong { bytes: usize, max: usize },
}

impl Diagnose for RequestError {
    fn code(&self) -> &'static str {
        match self {
            Self::Empty => "request.empty",
            Self::Nul { .. } | Self::NulInVariable { .. } => "request.nul",
            Self::WordTooLong { .. } | Self::TooLong { .. } => "request.too_long",
        }
    }
}

impl ExecutionRequest {
    /// Rejects a command that cannot be executed, before any work is done for it. `arguments_bytes_max` is the system's
    /// limit for arguments and environment together.
    pub fn check(&self, arguments_bytes_max: usize) -> Result<(), RequestError> {
        let words = match &self.command {
            CommandLine::Argv(words) => words.as_slice(),
            CommandLine::Shell(line) => std::slice::from_ref(line),
        };
        if words.first().is_none_or(|word| word.is_empty()) {
            return Err(RequestError::Empty);
        }
        for (at, word) in words.iter().enumerate() {
            let (number, bytes) = (at + 1, word.len() + 1);
            if word.as_bytes().contains(&0) {
                return Err(RequestError::Nul { number });
            }
            if bytes > WORD_BYTES_MAX {
                return Err(RequestError::WordTooLong { number, bytes });
            }
        }
        let variables = self.environment.pairs();
        if let Some((name, _)) = variables.iter().find(|(_, value)| value.as_bytes().contains(&0)) {
            return Err(RequestError::NulInVariable { name: name.to_string_lossy().into_owned() });
        }
        // Each string takes its NUL byte and a pointer.
        let each = 1 + size_of::<usize>();
        let bytes = words.iter().map(|word| word.len() + each).sum::<usize>()
            + variables.iter().map(|(name, value)| name.len() + value.len() + 1 + each).sum::<usize>();
        if bytes > arguments_bytes_max {
            return Err(RequestError::TooLong { bytes, max: arguments_bytes_max });
        }
        Ok(())
    }
}
