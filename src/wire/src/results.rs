//! The `result` of each verb.

use schemars::JsonSchema;
use serde::Serialize;

use avfs_types::base64::base64;
use avfs_types::path::TreePath;

use crate::entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject};
use crate::records::{CheckpointObject, ForkObject, RunObject, VersionObject};
use crate::text::{PathText, text_or_base64};

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Init {
    pub vault: String,
    pub id: String,
    /// The directory the vault is bound to.
    pub bound: String,
    pub imported: Option<Import>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VaultList {
    pub vaults: Vec<VaultListed>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VaultListed {
    /// Nothing for a vault that is found by its place.
    pub name: Option<String>,
    pub vault: String,
    /// True for the one that is used in the working directory.
    pub nearest: bool,
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VaultInfo {
    pub vault: String,
    pub id: String,
    pub format: i64,
    pub created_at: Option<String>,
    pub bound: Option<String>,
    pub forks: u64,
    pub checkpoints: u64,
    pub versions: u64,
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VaultTrust {
    pub vault: String,
    pub id: String,
    /// The directory whose files it keeps.
    pub bound: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VaultDelete {
    pub vault: String,
}

/// A version was added to a fork, unless nothing changed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Edited {
    pub fork: String,
    pub changed: bool,
    /// The fork's head now.
    pub version: VersionObject,
    /// The fork's head before.
    pub previous: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Import {
    #[serde(flatten)]
    pub edited: Edited,
    pub dir: String,
    /// Files that had to be read, since they were not known unchanged.
    pub files_read: u64,
    pub bytes_read: u64,
    /// Blobs that were damaged in the vault and are whole again, since the directory has their content.
    pub mended: u64,
    /// Null if what was before cannot be compared: it was pruned, or is damaged.
    pub change_counts: Option<ChangeTotals>,
    pub troubles: Vec<TroubleObject>,
}

/// A path that is not in the version as it was on the host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TroubleObject {
    #[serde(flatten)]
    pub path: PathText,
    /// One of `special`, `vanished`, `torn`, `no_permission`, `unreadable`, `too_large`, `attribute`.
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Export {
    pub version: String,
    pub dest: String,
    /// Files and their bytes that were written.
    pub files: u64,
    pub bytes: u64,
    /// With --keep-going: what is damaged or missing in the vault.
    pub left_out: Vec<LeftOutObject>,
    /// Files that were written without their setuid and setgid bits.
    pub set_ids_stripped: Vec<PathText>,
}

/// A path that was not written, or not whole.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeftOutObject {
    #[serde(flatten)]
    pub path: PathText,
    /// That of the error it would have been.
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Materialize {
    pub version: String,
    pub dir: String,
    /// One of `reused`, `new`, `rebuilt`.
    pub built: String,
    /// Bytes of other bases that were evicted to stay within the limit.
    pub evicted_bytes: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ForkOne {
    pub fork: ForkObject,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ForkList {
    pub forks: Vec<ForkUseObject>,
}

/// Forks in the order of a tree: each after its parent, `depth` levels below the first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ForkTree {
    pub forks: Vec<ForkUseObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ForkUseObject {
    #[serde(flatten)]
    pub fork: ForkObject,
    /// Levels below a fork that came from no other.
    pub depth: u64,
    /// Versions since the fork began.
    pub versions_ahead: u64,
    pub last_run: Option<RunObject>,
    /// Bytes that deleting it and a gc would give back; with `--size`.
    pub held_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckpointOne {
    pub checkpoint: CheckpointObject,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckpointList {
    pub checkpoints: Vec<CheckpointObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckpointInfo {
    pub checkpoint: CheckpointObject,
    pub version: VersionObject,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Log {
    pub versions: Vec<VersionObject>,
    /// True when older ones were left off.
    pub more: bool,
    /// Versions whose files were given up, so that they could not be searched for the path.
    pub pruned_skipped: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Show {
    pub version: VersionObject,
    /// Forks whose head it is.
    pub forks: Vec<String>,
    /// Checkpoints that pin it, as `fork@name`.
    pub checkpoints: Vec<String>,
    /// Against its first parent; nothing where one of the two was pruned.
    pub changes: Option<Vec<ChangeObject>>,
    pub change_counts: Option<ChangeTotals>,
}

/// Of `ls`, `tree` and `find`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Entries {
    pub version: String,
    pub entries: Vec<EntryObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cat {
    pub version: String,
    pub files: Vec<CatFile>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
pub enum TextEncoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CatFile {
    #[serde(flatten)]
    pub path: PathText,
    pub size: u64,
    pub encoding: TextEncoding,
    pub content: String,
}

impl CatFile {
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

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Grep {
    pub version: String,
    pub matches: Vec<GrepMatch>,
    /// Files with a match, text or not.
    pub files: Vec<PathText>,
    /// Files with a match that are not text: their lines are not shown.
    pub binary: Vec<PathText>,
    /// Files that are too large to be searched.
    pub skipped: Vec<PathText>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GrepMatch {
    #[serde(flatten)]
    pub path: PathText,
    pub line: u64,
    pub text: String,
    /// Only for a line that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
}

impl GrepMatch {
    #[must_use]
    pub fn of(path: &TreePath, line: u64, text: &[u8]) -> Self {
        let (text, text_base64) = text_or_base64(text);
        Self { path: PathText::of(path), line, text, text_base64 }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diff {
    /// The two versions that were compared.
    pub before: String,
    pub after: String,
    pub changes: Vec<ChangeObject>,
    pub change_counts: ChangeTotals,
    /// With `--tree`: names in the order of a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<DiffTreeLine>>,
    /// With `--stat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<Vec<FileStat>>,
    /// With `--patch`: a unified diff; lines that are not UTF-8 have replacement characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Changes that `tree`, `stat` or `patch` does not tell; `changes` has all of them.
    pub left_off: u64,
    /// Paths of which `patch` tells only that they differ, because their part is too long.
    pub shortened: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DiffTreeLine {
    pub depth: usize,
    /// Directories end in a slash.
    pub name: String,
    /// Nothing for a directory that only leads to changes.
    pub kind: Option<ChangeKindName>,
    pub size_before: Option<u64>,
    pub size_after: Option<u64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileStat {
    #[serde(flatten)]
    pub path: PathText,
    pub lines_added: u64,
    pub lines_deleted: u64,
    /// The lines were not counted: it is not text, or too large.
    pub binary: bool,
    /// Too large to be compared, be it text or not.
    pub too_large: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Status {
    pub dir: String,
    pub fork: String,
    pub version: String,
    pub clean: bool,
    pub changes: Vec<ChangeObject>,
    pub change_counts: ChangeTotals,
    pub troubles: Vec<TroubleObject>,
}
