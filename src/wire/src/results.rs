//! The `result` of each verb.

use serde::Serialize;

use avfs_types::base64::base64;
use avfs_types::path::TreePath;

use crate::entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject};
use crate::records::{CheckpointObject, ForkObject, RunObject, VersionObject};
use crate::text::{PathText, text_or_base64};

/// The result of `avfs init`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Init {
    /// The path of the vault file.
    pub vault: String,
    /// The id of the vault.
    pub id: String,
    /// The directory the vault is bound to.
    pub bound: String,
    /// False if the vault was there already.
    pub made: bool,
    /// The first version; null if nothing was imported.
    pub imported: Option<Import>,
}

/// The result of `avfs vault list`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultList {
    /// The named vaults, and the one found from the working directory.
    pub vaults: Vec<VaultListed>,
}

/// A vault that can be used.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultListed {
    /// Null for a vault that is found by its place.
    pub name: Option<String>,
    /// The path of the vault file.
    pub vault: String,
    /// True for the one that is used in the working directory.
    pub nearest: bool,
    /// Bytes of the vault file.
    pub file_bytes: u64,
}

/// The result of `avfs vault info`.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultTrust {
    /// The path of the vault file.
    pub vault: String,
    /// The id of the vault.
    pub id: String,
    /// The directory whose files it keeps.
    pub bound: Option<String>,
}

/// The result of `avfs vault copy`.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VaultDelete {
    /// The path of the vault file that was deleted.
    pub vault: String,
    /// Bytes of the cache that were freed with it.
    pub cache_freed_bytes: u64,
}

/// A version was added to a fork, unless nothing changed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Edited {
    /// The name of the fork.
    pub fork: String,
    /// False if the tree was the same already, and no version was added.
    pub changed: bool,
    /// The fork's head now.
    pub version: VersionObject,
    /// The fork's head before.
    pub previous: String,
}

/// The result of `avfs import`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Import {
    /// The version that the directory became; its fields are part of this object.
    #[serde(flatten)]
    pub edited: Edited,
    /// The directory that was imported.
    pub dir: String,
    /// Files that had to be read, since they were not known unchanged.
    pub files_read: u64,
    /// Bytes of those files.
    pub bytes_read: u64,
    /// Blobs that were damaged in the vault and are whole again, since the directory has their content.
    pub mended: u64,
    /// Null if what was before cannot be compared: it was pruned, or is damaged.
    pub change_counts: Option<ChangeTotals>,
    /// Paths that were not imported as they are.
    pub troubles: Vec<TroubleObject>,
}

/// A path that is not in the version as it was on the host.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Export {
    /// The id of the version that was written.
    pub version: String,
    /// The directory that was written to.
    pub dest: String,
    /// Files and their bytes that were written.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// With --keep-going: what is damaged or missing in the vault.
    pub left_out: Vec<LeftOutObject>,
    /// Files that were written without their setuid and setgid bits.
    pub set_ids_stripped: Vec<PathText>,
}

/// A path that was not written, or not whole.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOutObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// That of the error it would have been.
    pub code: String,
    /// The reason in words.
    pub message: String,
}

/// The result of `avfs materialize`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Materialize {
    /// The id of the version.
    pub version: String,
    /// The directory with its files, which must not be changed.
    pub dir: String,
    /// One of `reused`, `new`, `rebuilt`.
    pub built: String,
    /// Bytes of other bases that were evicted to stay within the limit.
    pub evicted_bytes: u64,
}

/// The result of `avfs fork create` and `avfs fork delete`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkOne {
    /// The fork; as it was, if it was deleted.
    pub fork: ForkObject,
}

/// The result of `avfs fork list`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkList {
    /// All forks.
    pub forks: Vec<ForkUseObject>,
}

/// Forks in the order of a tree: each after its parent, `depth` levels below the first.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkTree {
    /// All forks, each after its parent.
    pub forks: Vec<ForkUseObject>,
}

/// A fork and how it is used.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkUseObject {
    /// The fork; its fields are part of this object.
    #[serde(flatten)]
    pub fork: ForkObject,
    /// Levels below a fork that came from no other.
    pub depth: u64,
    /// Versions since the fork began.
    pub versions_ahead: u64,
    /// The last run on the fork; null if there was none.
    pub last_run: Option<RunObject>,
    /// Bytes that deleting it and a gc would give back; with `--size`.
    pub held_bytes: Option<u64>,
}

/// The result of `avfs checkpoint save` and `avfs checkpoint delete`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointOne {
    /// The checkpoint; as it was, if it was deleted.
    pub checkpoint: CheckpointObject,
}

/// The result of `avfs checkpoint list`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointList {
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointObject>,
}

/// The result of `avfs checkpoint info`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckpointInfo {
    /// The checkpoint.
    pub checkpoint: CheckpointObject,
    /// The version that it pins.
    pub version: VersionObject,
}

/// The result of `avfs log`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Log {
    /// The versions, newest first.
    pub versions: Vec<VersionObject>,
    /// True when older ones were left off.
    pub more: bool,
    /// Versions whose files were given up, so that they could not be searched for the path.
    pub pruned_skipped: u64,
}

/// The result of `avfs show`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Show {
    /// The version.
    pub version: VersionObject,
    /// Forks whose head it is.
    pub forks: Vec<String>,
    /// Checkpoints that pin it, as `fork@name`.
    pub checkpoints: Vec<String>,
    /// Against its first parent; null where one of the two was pruned.
    pub changes: Option<Vec<ChangeObject>>,
    /// The changes by kind; null where `changes` is.
    pub change_counts: Option<ChangeTotals>,
}

/// Of `ls`, `tree` and `find`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entries {
    /// The id of the version that was read.
    pub version: String,
    /// The entries in the order of their paths.
    pub entries: Vec<EntryObject>,
}

/// The result of `avfs cat`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cat {
    /// The id of the version that was read.
    pub version: String,
    /// The files in the order they were asked for.
    pub files: Vec<CatFile>,
}

/// How bytes are written as a JSON string.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TextEncoding {
    /// As text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// As base64, because they are not UTF-8.
    #[serde(rename = "base64")]
    Base64,
}

/// The content of a file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatFile {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// Bytes of the file.
    pub size: u64,
    /// How `content` is written.
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
#[derive(Clone, Debug, Serialize)]
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
    /// Files that are too large to be searched.
    pub skipped: Vec<PathText>,
}

/// A line that matches.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrepMatch {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// The number of the line, from 1.
    pub line: u64,
    /// The line without its end; escaped if it is not UTF-8.
    pub text: String,
    /// Only for a line that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
}

impl GrepMatch {
    /// A line that matches, without its end.
    #[must_use]
    pub fn of(path: &TreePath, line: u64, text: &[u8]) -> Self {
        let (text, text_base64) = text_or_base64(text);
        Self { path: PathText::of(path), line, text, text_base64 }
    }
}

/// The result of `avfs diff`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diff {
    /// The two versions that were compared.
    pub before: String,
    /// The id of the newer version.
    pub after: String,
    /// The changes in the order of their paths.
    pub changes: Vec<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// With `--tree`: names in the order of a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<DiffTreeLine>>,
    /// With `--stat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<Vec<FileStat>>,
    /// With `--patch`: a patch for `git apply`; content that is not UTF-8 is in it as binary content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Changes that `tree`, `stat` or `patch` does not tell; `changes` has all of them.
    pub left_off: u64,
    /// Paths of which `patch` tells only that they differ, because their part is too long.
    pub shortened: u64,
    /// Paths with something that a git patch cannot express; comments in `patch` say what.
    pub beyond_git: u64,
}

/// One name in the tree of changes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffTreeLine {
    /// Levels below the root.
    pub depth: usize,
    /// Directories end in a slash.
    pub name: String,
    /// Null for a directory that only leads to changes.
    pub kind: Option<ChangeKindName>,
    /// Bytes before; null if there was no file.
    pub size_before: Option<u64>,
    /// Bytes after; null if there is no file.
    pub size_after: Option<u64>,
}

/// The changed lines of a file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileStat {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// Lines that are new.
    pub lines_added: u64,
    /// Lines that are gone.
    pub lines_deleted: u64,
    /// The lines were not counted: it is not text, or too large.
    pub binary: bool,
    /// Too large to be compared, be it text or not.
    pub too_large: bool,
}

/// The result of `avfs status`.
#[derive(Clone, Debug, Serialize)]
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
    pub changes: Vec<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Paths that could not be read as they are.
    pub troubles: Vec<TroubleObject>,
}
