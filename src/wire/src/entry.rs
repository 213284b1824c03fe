//! Entries of a tree and changes between trees on the wire.

use schemars::JsonSchema;
use serde::Serialize;

use crate::text::PathText;

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    File,
    Dir,
    Symlink,
    Fifo,
}

/// One entry of a tree.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EntryObject {
    #[serde(flatten)]
    pub path: PathText,
    pub kind: NodeKind,
    /// Four octal digits; nothing for a symlink, which has no mode of its own.
    pub mode: Option<String>,
    /// Bytes of a file, or of all files beneath a directory.
    pub size: u64,
    pub mtime: String,
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

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKindName {
    Added,
    Modified,
    Deleted,
    Renamed,
    /// Mode, extended attributes or hardlinks, but not the content.
    Mode,
    /// A file became a directory, a link became a file, and so on.
    Type,
    /// Nothing but the modification time.
    Time,
}

/// One path that differs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeObject {
    #[serde(flatten)]
    pub path: PathText,
    pub kind: ChangeKindName,
    /// Where a renamed file was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<String>,
    pub size_before: Option<u64>,
    pub size_after: Option<u64>,
    pub digest_before: Option<String>,
    pub digest_after: Option<String>,
    pub mode_before: Option<String>,
    pub mode_after: Option<String>,
}

/// Changes by kind.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct ChangeTotals {
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
    pub renamed: u64,
    pub mode: u64,
    pub r#type: u64,
    pub time: u64,
    pub total: u64,
}
