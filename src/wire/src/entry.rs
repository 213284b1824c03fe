//! JSON forms of the entries of a tree and of changes between trees.

use serde::{Deserialize, Serialize};

use crate::text::PathText;

/// The type of an entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
}

/// One entry of a tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EntryObject {
    /// The path of the entry; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// The type of the entry.
    pub kind: NodeKind,
    /// Four octal digits; null for a symlink, which has no mode.
    pub mode: Option<String>,
    /// Bytes of a file, or of all files below a directory.
    pub size: u64,
    /// The modification time, RFC 3339 in UTC.
    pub mtime: String,
    /// The modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// BLAKE3 of a file's bytes (of the chunk list for a large file); for a directory the digest of its content.
    pub digest: Option<String>,
    /// The target of a symlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The target in Base64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_base64: Option<String>,
    /// An id that all hard links to one file share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardlink: Option<String>,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKindName {
    /// The path is new.
    Added,
    /// The content differs.
    Modified,
    /// The path was deleted.
    Deleted,
    /// The file was moved to another path.
    Renamed,
    /// Mode, extended attributes or hard links differ, but not the content.
    Mode,
    /// The type differs: a file became a directory, a symlink became a file, and so on.
    Type,
    /// Only the modification time differs.
    Time,
}

/// One path that differs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeObject {
    /// The path (the new path of a renamed file); its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// What happened to the path.
    pub kind: ChangeKindName,
    /// The old path of a renamed file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The old path in Base64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<String>,
    /// Bytes before; null if the path is new.
    pub size_before: Option<u64>,
    /// Bytes after; null if the path was deleted.
    pub size_after: Option<u64>,
    /// The digest of the content before; null for a path without content.
    pub digest_before: Option<String>,
    /// The digest of the content after; null for a path without content.
    pub digest_after: Option<String>,
    /// Four octal digits; null if the path is new.
    pub mode_before: Option<String>,
    /// Four octal digits; null if the path was deleted.
    pub mode_after: Option<String>,
}

/// Changes by kind.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeTotals {
    /// Changes of kind `added`.
    pub added: u64,
    /// Changes of kind `modified`.
    pub modified: u64,
    /// Changes of kind `deleted`.
    pub deleted: u64,
    /// Changes of kind `renamed`.
    pub renamed: u64,
    /// Changes of kind `mode`.
    pub mode: u64,
    /// Changes of kind `type`.
    pub r#type: u64,
    /// Changes of kind `time`.
    pub time: u64,
    /// All changes.
    pub total: u64,
}
