//! What a scan is asked to keep, and what it reports besides trees.

use std::collections::HashSet;

use avfs_types::clock::FileTime;
use avfs_types::ids::BlobId;
use avfs_types::path::TreePath;

use crate::chunk::FILE_BYTES_MAX;
use crate::stat_cache::Foreign;

/// How to handle files that vanish, cannot be read, or keep changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTrouble {
    /// Fail the whole import; no version is added.
    Fail,
    /// Continue, and list them in the report.
    KeepGoing,
}

/// A path that could not be imported exactly, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The path inside the directory.
    pub path: TreePath,
    /// The reason.
    pub reason: TroubleReason,
}

/// Why a path could not be imported exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleReason {
    /// A socket or a device, which a vault cannot store.
    Special(&'static str),
    /// It was removed during the import; it is not in the version.
    Vanished,
    /// It kept changing; the version has the content that was read last.
    Torn,
    /// It cannot be read; it is not in the version.
    NoPermission,
    /// An I/O error of the disk or its file system.
    Unreadable,
    /// The file is larger than a version can hold.
    TooLarge,
    /// Only an attribute that an unprivileged user cannot set is left out; the text names it.
    Attribute(&'static str),
}

impl std::fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Special(kind) => write!(f, "a {kind} cannot be kept"),
            Self::Vanished => f.write_str("it vanished during the import"),
            Self::Torn => f.write_str("it kept changing; the content that was read last is kept"),
            Self::NoPermission => f.write_str("no permission to read it"),
            Self::Unreadable => f.write_str("the file system cannot read it"),
            Self::TooLarge => write!(f, "it has more than {FILE_BYTES_MAX} bytes"),
            Self::Attribute(what) => write!(f, "its {what} cannot be kept"),
        }
    }
}

/// Maximum number of unversioned paths that a scan lists; one more means that there are too many.
pub const UNVERSIONED_MAX: usize = 4096;

/// The results of scanning a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Number of files whose content was read because the stat cache did not match.
    pub files_read: u64,
    /// Size of those files in bytes.
    pub bytes_read: u64,
    /// Number of damaged blobs in the vault that this import stored again.
    pub mended: u64,
    /// Paths that could not be imported exactly.
    pub troubles: Vec<Trouble>,
    /// Paths of the directory that are never in a version: ignored and excluded paths, the vault, sockets and devices.
    /// Only the topmost path of each, and at most [`UNVERSIONED_MAX`] + 1 of them.
    pub unversioned: Vec<TreePath>,
    /// The error, if the import succeeded but its stat cache could not be saved: the next import reads every file.
    pub cache_unsaved: Option<String>,
    /// Owners in the directory that no sandbox of this user can map.
    pub foreign: Foreign,
    /// The latest `ctime` of all scanned files, except times in the future and that of the vault's directory.
    pub changed_at: FileTime,
}

/// Which blobs of a scan are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep<'a> {
    /// All blobs that the vault does not have.
    Everything,
    /// These blobs, whether or not the vault has them.
    Only(&'a HashSet<BlobId>),
    /// No blobs: only digests are computed.
    Nothing,
}
