//! The `result` of each verb.

use serde::{Deserialize, Serialize};

use avfs_types::base64::base64;
use avfs_types::path::TreePath;

use crate::entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject};
use crate::records::{CheckpointObject, ForkObject, RunObject, VersionObject};
use crate::runs::InheritedChanges;
use crate::text::{LongList, PathText, text_or_base64};

/// The result of `avfs init`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Init {
    /// The path of the vault file.
    pub vault: String,
    /// The id of the vault.
    pub id: String,
    /// The directory the vault is bound to.
    pub bound: String,
    /// False if the vault already existed.
    pub made: bool,
    /// The first version; null if nothing was imported.
    pub imported: Option<Import>,
}

/// The result of `avfs vault list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultList {
    /// The named vaults, and the one found from the working directory.
    pub vaults: Vec<VaultListed>,
}

/// A vault that can be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultListed {
    /// The name; null for a vault that is found by its location.
    pub name: Option<String>,
    /// The path of the vault file.
    pub vault: String,
    /// True for the vault that is used in the working directory.
    pub nearest: bool,
    /// Bytes of the vault file.
    pub file_bytes: u64,
}

/// The result of `avfs vault info`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultInfo {
    /// The path of the vault file.
    pub vault: String,
    /// The id of the vault.
    pub id: String,
    /// The version of the file format.
    pub format: i64,
    /// When it was created, RFC 3339 in UTC.
    pub created_at: Option<String>,
    /// The directory that the vault is bound to; null if it has none.
    pub bound: Option<String>,
    /// Forks in the vault.
    pub forks: u64,
    /// Checkpoints in the vault.
    pub checkpoints: u64,
    /// Versions in the vault, pruned ones included.
    pub versions: u64,
    /// Bytes of the vault file.
    pub file_bytes: u64,
}

/// The result of `avfs vault trust`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultTrust {
    /// The path of the vault file.
    pub vault: String,
    /// The id of the vault.
    pub id: String,
    /// The directory that the vault is bound to.
    pub bound: Option<String>,
}

/// The result of `avfs vault copy`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultCopy {
    /// The path of the vault that was copied.
    pub vault: String,
    /// The path of the new file.
    pub copy: String,
    /// The size of the new file.
    pub bytes: u64,
}

/// The result of `avfs vault delete`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultDelete {
    /// The path of the vault file that was deleted.
    pub vault: String,
    /// Bytes of the cache that were freed.
    pub cache_freed_bytes: u64,
}

/// A version that was added to a fork, unless nothing changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Edited {
    /// The name of the fork.
    pub fork: String,
    /// False if the tree was already the same, and no version was added.
    pub changed: bool,
    /// The fork's head now.
    pub version: VersionObject,
    /// The fork's head before.
    pub previous: String,
}

/// The result of `avfs import`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Import {
    /// The version that the directory became; its fields are part of this object.
    #[serde(flatten)]
    pub edited: Edited,
    /// The directory that was imported.
    pub dir: String,
    /// Files that were read, because they were not known to be unchanged.
    pub files_read: u64,
    /// Bytes of those files.
    pub bytes_read: u64,
    /// Damaged blobs in the vault that were repaired with the content in the directory.
    pub mended: u64,
    /// The changes by kind; null if the previous version cannot be compared because it is pruned or damaged.
    pub change_counts: Option<ChangeTotals>,
    /// Paths that were not imported unchanged.
    pub troubles: Vec<TroubleObject>,
}

/// A path whose state in the version differs from the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TroubleObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// One of `special`, `vanished`, `torn`, `no_permission`, `unreadable`, `too_large`, `attribute`.
    pub reason: String,
    /// The reason in words.
    pub message: String,
}

/// The result of `avfs export`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Export {
    /// The id of the version that was written.
    pub version: String,
    /// The directory that was written to.
    pub dest: String,
    /// Files that were written.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// Paths whose content is damaged or missing in the vault, with --keep-going.
    pub left_out: Vec<LeftOutObject>,
    /// Files that were written without their setuid and setgid bits.
    pub set_ids_stripped: Vec<PathText>,
}

/// A path that was not written, or not completely.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOutObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// The code of the error without --keep-going.
    pub code: String,
    /// The reason in words.
    pub message: String,
}

/// The result of `avfs materialize`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Materialize {
    /// The id of the version.
    pub version: String,
    /// The directory with its files, which must not be modified.
    pub dir: String,
    /// One of `reused`, `new`, `rebuilt`.
    pub built: String,
    /// Bytes of other bases that were evicted to stay within the limit.
    pub evicted_bytes: u64,
}

/// The result of `avfs fork create` and `avfs fork delete`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkOne {
    /// The fork; its last state, if it was deleted.
    pub fork: ForkObject,
}

/// The result of `avfs fork list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkList {
    /// All forks.
    pub forks: Vec<ForkUseObject>,
}

/// Forks as a tree: each after its parent, `depth` levels below the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkTree {
    /// All forks, each after its parent.
    pub forks: Vec<ForkUseObject>,
}

/// A fork and how it is used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkUseObject {
    /// The fork; its fields are part of this object.
    #[serde(flatten)]
    pub fork: ForkObject,
    /// Levels below a fork without a parent.
    pub depth: u64,
    /// Versions since the start of the fork.
    pub versions_ahead: u64,
    /// The last run on the fork; null if no run used it.
    pub last_run: Option<RunObject>,
    /// Bytes that deleting the fork, followed by a gc, would free; with `--size`.
    pub held_bytes: Option<u64>,
}

/// The result of `avfs checkpoint save` and `avfs checkpoint delete`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointOne {
    /// The checkpoint; its last state, if it was deleted.
    pub checkpoint: CheckpointObject,
}

/// The result of `avfs checkpoint list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointList {
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointObject>,
}

/// The result of `avfs checkpoint info`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointInfo {
    /// The checkpoint.
    pub checkpoint: CheckpointObject,
    /// The version that it pins.
    pub version: VersionObject,
}

/// The result of `avfs log`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Log {
    /// The versions, newest first.
    pub versions: Vec<VersionObject>,
    /// True if older versions were left off.
    pub more: bool,
    /// Versions that were not searched for the path because their files are pruned.
    pub pruned_skipped: u64,
}

/// The result of `avfs show`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Show {
    /// The version.
    pub version: VersionObject,
    /// Forks whose head it is.
    pub forks: Vec<String>,
    /// Checkpoints that pin it, as `fork@name`.
    pub checkpoints: Vec<String>,
    /// The changes since its first parent; null if one of the two is pruned.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<ChangeObject>>"))]
    pub changes: Option<LongList<ChangeObject>>,
    /// The changes by kind; null where `changes` is.
    pub change_counts: Option<ChangeTotals>,
}

/// The result of `avfs ls`, `avfs tree` and `avfs find`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entries {
    /// The id of the version that was read.
    pub version: String,
    /// The entries in the order of their paths.
    pub entries: Vec<EntryObject>,
}

/// The result of `avfs cat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cat {
    /// The id of the version that was read.
    pub version: String,
    /// The files in the order of the arguments.
    pub files: Vec<CatFile>,
}

/// The encoding of bytes in a JSON string.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TextEncoding {
    /// As text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// As Base64, because they are not UTF-8.
    #[serde(rename = "base64")]
    Base64,
}

/// The content of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatFile {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// Bytes of the file.
    pub size: u64,
    /// The encoding of `content`.
    pub encoding: TextEncoding,
    /// The content, in `encoding`.
    pub content: String,
}

impl CatFile {
    /// A file with this content, as text if it is UTF-8.
    #[must_use]
    pub fn of(path: &TreePath, bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        let (encoding, content) = match String::from_utf8(bytes) {
            Ok(text) => (TextEncoding::Utf8, text),
            Err(other) => (TextEncoding::Base64, base64(other.as_bytes())),
        };
        Self { path: PathText::of(path), size, encoding, content }
    }
}

/// The result of `avfs grep`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grep {
    /// The id of the version that was searched.
    pub version: String,
    /// The lines that match.
    pub matches: Vec<GrepMatch>,
    /// Files with a match, text or not.
    pub files: Vec<PathText>,
    /// Files with a match that are not text: their lines are not shown.
    pub binary: Vec<PathText>,
    /// Files that are too large to search.
    pub skipped: Vec<PathText>,
}

/// A line that matches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrepMatch {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// The number of the line, from 1.
    pub line: u64,
    /// The line without its terminator; invalid bytes replaced if it is not UTF-8.
    pub text: String,
    /// The line in Base64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
}

impl GrepMatch {
    /// A line that matches, without its terminator.
    #[must_use]
    pub fn of(path: &TreePath, line: u64, text: &[u8]) -> Self {
        let (text, text_base64) = text_or_base64(text);
        Self { path: PathText::of(path), line, text, text_base64 }
    }
}

/// The result of `avfs diff`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diff {
    /// The id of the older version.
    pub before: String,
    /// The id of the newer version.
    pub after: String,
    /// The changes in the order of their paths.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<ChangeObject>"))]
    pub changes: LongList<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// The changes as a tree, with `--tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<DiffTreeLine>>,
    /// Changed lines per file, with `--stat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<Vec<FileStat>>,
    /// A patch for `git apply`, with `--patch`; content that is not UTF-8 is included as binary content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Changes that `tree`, `stat` or `patch` leaves out; `changes` has all of them.
    pub left_off: u64,
    /// Paths for which `patch` only states that they differ, because their part is too long.
    pub shortened: u64,
    /// Paths with changes that a git patch cannot express; comments in `patch` describe them.
    pub beyond_git: u64,
    /// Of a fork or run: changes that it was made on top of, and that the bound directory lacks.
    pub inherited: Vec<InheritedChanges>,
}

/// One name in the tree of changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffTreeLine {
    /// Levels below the root.
    pub depth: usize,
    /// The name; directories end in a slash.
    pub name: String,
    /// The kind of change; null for a directory that only contains changes.
    pub kind: Option<ChangeKindName>,
    /// Bytes before; null if the file did not exist.
    pub size_before: Option<u64>,
    /// Bytes after; null if the file does not exist.
    pub size_after: Option<u64>,
}

/// The changed lines of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileStat {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// Added lines.
    pub lines_added: u64,
    /// Deleted lines.
    pub lines_deleted: u64,
    /// The lines were not counted: the file is not text, or too large.
    pub binary: bool,
    /// The file is too large to compare, text or not.
    pub too_large: bool,
}

/// The result of `avfs status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The directory that was compared.
    pub dir: String,
    /// The fork that it was compared with.
    pub fork: String,
    /// The id of the version at the head of the fork.
    pub version: String,
    /// True if there are no changes.
    pub clean: bool,
    /// The changes in the order of their paths.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<ChangeObject>"))]
    pub changes: LongList<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Paths that could not be read completely.
    pub troubles: Vec<TroubleObject>,
    /// Changes that the fork was made on top of, and that the directory lacks.
    pub inherited: Vec<InheritedChanges>,
}
