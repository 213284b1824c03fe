//! Entries of a tree and changes between trees on the wire.

use serde::Serialize;

use crate::text::PathText;

/// The type of an entry.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EntryObject {
    /// The path of the entry; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// The type of the entry.
    pub kind: NodeKind,
    /// Four octal digits; null for a symlink, which has no mode of its own.
    pub mode: Option<String>,
    /// Bytes of a file, or of all files beneath a directory.
    pub size: u64,
    /// The modification time, RFC 3339 in UTC.
    pub mtime: String,
    /// The modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// BLAKE3 of a file's bytes (of the chunk list for a large one); for a directory the digest of its content.
    pub digest: Option<String>,
    /// What a symlink points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Only for a target that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_base64: Option<String>,
    /// The same for every name of one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardlink: Option<String>,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKindName {
    /// The path is new.
    Added,
    /// The content differs.
    Modified,
    /// The path is gone.
    Deleted,
    /// The file is at another path.
    Renamed,
    /// Mode, extended attributes or hardlinks, but not the content.
    Mode,
    /// A file became a directory, a link became a file, and so on.
    Type,
    /// Nothing but the modification time.
    Time,
}

/// One path that differs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeObject {
    /// The path, which is the new one of a renamed file; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// What happened to the path.
    pub kind: ChangeKindName,
    /// Where a renamed file was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only for an old path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<String>,
    /// Bytes before; null if the path is new.
    pub size_before: Option<u64>,
    /// Bytes after; null if the path is gone.
    pub size_after: Option<u64>,
    /// The digest of the content before; null if there was none.
    pub digest_before: Option<String>,
    /// The digest of the content after; null if there is none.
    pub digest_after: Option<String>,
    /// Four octal digits; null if the path is new.
    pub mode_before: Option<String>,
    /// Four octal digits; null if the path is gone.
    pub mode_after: Option<String>,
}

/// Changes by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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
