//! The error of a scan, of a host directory or of the upper of an overlay. A capture converts it to its own.

use std::path::PathBuf;

use avfs_types::diagnose::Diagnose;
use avfs_types::path::{DEPTH_MAX, PATH_BYTES_MAX, TreePath, shorten};

use crate::chunk::FILE_BYTES_MAX;

/// Why a directory cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The path is not a directory.
    #[error("cannot import {}: it is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The path does not exist.
    #[error("directory {} does not exist", path.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("no permission to read {path}")]
    NoPermission {
        /// The path.
        path: TreePath,
    },
    /// A file or directory was removed while the import ran.
    #[error("{path} vanished during the import")]
    Vanished {
        /// The path.
        path: TreePath,
    },
    /// A file is larger than a version can hold.
    #[error("{path} is {size} bytes long; at most {FILE_BYTES_MAX} can be kept")]
    TooLarge {
        /// The path.
        path: TreePath,
        /// Size of the file in bytes.
        size: u64,
    },
    /// A file changed each time it was read.
    #[error("{path} kept changing while it was read")]
    Torn {
        /// The path.
        path: TreePath,
    },
    /// A path has too many components or bytes.
    #[error(
        "{} is {} levels deep and has {} bytes; at most {DEPTH_MAX} and {PATH_BYTES_MAX} are allowed",
        shorten(&path.to_string()), path.depth(), path.as_bytes().len()
    )]
    TooDeep {
        /// The path.
        path: TreePath,
    },
    /// An ignore file has an invalid pattern.
    #[error("the ignore file {path} has an invalid pattern")]
    BadIgnore {
        /// The ignore file.
        path: TreePath,
        /// The parse error.
        #[source]
        source: ignore::Error,
    },
    /// A pattern in `ImportOptions::exclude` is invalid.
    #[error("invalid exclude pattern")]
    BadExclude {
        /// The parse error.
        #[source]
        source: ignore::Error,
    },
    /// Any other I/O error.
    #[error("cannot {operation} {path}")]
    Io {
        /// The attempted operation, such as `open`.
        operation: &'static str,
        /// The path inside the directory.
        path: TreePath,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The import was stopped through its `Meter`.
    #[error("the import was interrupted")]
    Interrupted,
}

impl Diagnose for ImportError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotADirectory { .. } => "import.not_a_directory",
            Self::NoDirectory { .. } => "import.no_directory",
            Self::NoPermission { .. } => "import.no_permission",
            Self::Vanished { .. } => "import.vanished",
            Self::Torn { .. } => "import.torn_read",
            Self::TooLarge { .. } => "file.too_large",
            Self::TooDeep { .. } => "import.too_deep",
            Self::BadIgnore { .. } => "import.bad_ignore_file",
            Self::BadExclude { .. } => "import.bad_exclude",
            Self::Io { .. } => "import.io",
            Self::Interrupted => "interrupted",
        }
    }
}
