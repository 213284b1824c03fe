//! Errors in a list, and their position.

use std::io;
use std::path::PathBuf;

use avfs_request::spec::REQUEST_BYTES_MAX;
use avfs_types::diagnose::Diagnose;
use avfs_wire::LIST_VERSION;

/// A position in a list: the file (`-` for standard input) and the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlace {
    pub file: PathBuf,
    pub line: u32,
    /// The column, where the JSON parser reports one.
    pub column: Option<usize>,
}

impl std::fmt::Display for ListPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, column } = self;
        match column {
            Some(column) => write!(f, "{}, line {line}, column {column}", file.display()),
            None => write!(f, "{}, line {line}", file.display()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("cannot read the list {}", file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot copy the list {} to a temporary file in {}", file.display(), dir.display())]
    Spool {
        file: PathBuf,
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{place}: {problem}")]
    Line { place: ListPlace, problem: String, near: Option<String> },
    #[error("{place}: the line is longer than {REQUEST_BYTES_MAX} bytes")]
    LineTooLong { place: ListPlace },
    #[error("{} has more than {max} items", file.display())]
    TooMany { file: PathBuf, max: u32 },
    #[error("{} has more than {max} lines", file.display())]
    TooManyLines { file: PathBuf, max: u32 },
    #[error(
        "{place}: recorded by a newer avfs: the list has version {version}, the latest supported is {LIST_VERSION}"
    )]
    Newer { place: ListPlace, version: u64 },
    #[error("{place}: the id {id:?} is already used on line {first}")]
    Duplicate { place: ListPlace, id: String, first: u32 },
    #[error("{place}: {id:?} needs {need:?}, which is not in the list")]
    UnknownNeed { place: ListPlace, id: String, need: String },
    #[error("{}: items that need each other in a cycle: {}", file.display(), circle(ids))]
    Cycle { file: PathBuf, ids: Vec<String> },
    #[error("{place}: the list changed while it was in use")]
    Changed { place: ListPlace },
    #[error("cannot write an item: {problem}")]
    Unwritable { problem: String },
}

/// Maximum ids of a cycle that are listed.
const CIRCLE_SHOWN_MAX: usize = 20;

fn circle(ids: &[String]) -> String {
    let mut shown: Vec<String> = ids.iter().take(CIRCLE_SHOWN_MAX).cloned().collect();
    if ids.len() > CIRCLE_SHOWN_MAX {
        shown.push(format!("{} more", ids.len() - CIRCLE_SHOWN_MAX));
    }
    shown.extend(ids.first().cloned());
    shown.join(" → ")
}

impl Diagnose for ListError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Spool { .. } => "list.unreadable",
            Self::Line { .. } => "list.malformed",
            Self::LineTooLong { .. } | Self::TooMany { .. } | Self::TooManyLines { .. } => "list.too_long",
            Self::Newer { .. } => "list.newer",
            Self::Duplicate { .. } => "list.duplicate_id",
            Self::UnknownNeed { .. } => "list.unknown_need",
            Self::Cycle { .. } => "list.cycle",
            Self::Changed { .. } => "list.changed",
            Self::Unwritable { .. } => "list.unwritable",
        }
    }
}
