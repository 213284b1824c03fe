//! The `result` of the verbs that maintain a vault, its settings and the command itself.

use serde::{Deserialize, Serialize};

use avfs_types::Word;

use crate::records::{AuditLine, AuditRow};

/// The result of `avfs audit list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditList {
    /// The newest rows that match, oldest first.
    pub rows: Vec<AuditRow>,
    /// Older rows that were left off.
    pub left_off: u64,
}

/// The result of `avfs audit export` with `--json`; without it each row is a separate line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditExport {
    /// All rows, oldest first.
    pub rows: Vec<AuditLine>,
}

/// The result of `avfs audit verify`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditVerify {
    /// Rows that were checked.
    pub rows: u64,
    /// The newest row; null for an empty log. Note it elsewhere to detect a log that was cut off.
    pub head: Option<AuditVerifyHead>,
    /// The problems of the chain; empty if it is intact.
    pub problems: Vec<String>,
}

/// The newest row of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditVerifyHead {
    /// The number of the row.
    pub seq: i64,
    /// The digest of the row, which covers all rows before it.
    pub digest: String,
}

/// The result of `avfs gc`. Counts the removed objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gc {
    /// Expired forks.
    pub forks: u64,
    /// Unreachable versions.
    pub versions: u64,
    /// Trees that no version needs.
    pub trees: u64,
    /// Blobs that no tree needs.
    pub blobs: u64,
    /// Remembered results that expired, or lost a version.
    pub results: u64,
    /// Bytes of the vault file before.
    pub file_bytes_before: u64,
    /// Bytes of the vault file after.
    pub file_bytes_after: u64,
}

/// The result of `avfs prune`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prune {
    /// True if nothing was removed.
    pub dry_run: bool,
    /// The ids of the versions that lost their files.
    pub versions: Vec<String>,
    /// The checkpoints that were removed with them.
    pub checkpoints: Vec<PruneCheckpoint>,
}

/// An automatic checkpoint that was removed with its version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PruneCheckpoint {
    /// The fork of the checkpoint.
    pub fork: String,
    /// The name of the checkpoint.
    pub name: String,
}

/// The result of `avfs compact`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compact {
    /// Bytes of the vault file before.
    pub file_bytes_before: u64,
    /// Bytes of the vault file after.
    pub file_bytes_after: u64,
}

/// The result of `avfs fsck`. Counts the checked objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fsck {
    /// Versions.
    pub versions: u64,
    /// Trees.
    pub trees: u64,
    /// Blobs.
    pub blobs: u64,
    /// Rows of the audit log.
    pub audit_rows: u64,
    /// Runs of the journal.
    pub runs: u64,
    /// Remembered results.
    pub results: u64,
    /// The damage found; empty if the vault is intact.
    pub findings: Vec<FsckFinding>,
    /// The objects restored from a directory, with --heal: the findings are those that remain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healed: Option<FsckHealed>,
}

/// The objects that `avfs fsck --heal` restored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FsckHealed {
    /// The directory that had the content.
    pub from: String,
    /// Restored blobs.
    pub blobs: u64,
    /// Restored trees.
    pub trees: u64,
}

/// One damaged object.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FsckFinding {
    /// The stable code of the damage.
    pub code: String,
    /// The damage in words.
    pub message: String,
}

/// The result of `avfs stats`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// The path of the vault file.
    pub vault: String,
    /// Forks.
    pub forks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Versions, pruned ones included.
    pub versions: u64,
    /// Trees.
    pub trees: u64,
    /// Bytes of the trees as stored.
    pub tree_bytes: u64,
    /// Blobs.
    pub blobs: u64,
    /// Bytes of the blobs as stored.
    pub blob_stored_bytes: u64,
    /// Bytes of the content of the blobs.
    pub blob_content_bytes: u64,
    /// Rows of the audit log.
    pub audit_rows: u64,
    /// Runs of the journal.
    pub runs: u64,
    /// Bytes of the vault file.
    pub file_bytes: u64,
    /// Unused bytes in the file.
    pub free_bytes: u64,
}

/// The result of `avfs du`. Sizes are bytes on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Du {
    /// The vault that the working directory uses; null without one.
    pub vault: Option<DuVault>,
    /// The cache directory, which all vaults of a user share.
    pub cache: DuCache,
    /// Changes of runs that are not in a vault yet; also in the cache directory.
    pub scratch: DuScratch,
}

/// A vault's part of `avfs du`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuVault {
    /// The path of the vault file.
    pub path: String,
    /// Bytes of the vault file and of the files that belong to it.
    pub bytes: u64,
}

/// The cache's part of `avfs du`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuCache {
    /// The path of the directory.
    pub path: String,
    /// Bytes of everything in it, scratches included.
    pub bytes: u64,
    /// The setting `cache.max`; null for no limit.
    pub max_bytes: Option<u64>,
    /// Versions materialized as directories.
    pub bases: DuPart,
    /// Layers over these bases.
    pub layers: DuPart,
    /// The directories of the setting `cache.dirs`.
    pub dirs: DuPart,
    /// Directories that forks keep between runs (`--home persistent`, `--keep-tmp`).
    pub fork_dirs: DuPart,
    /// Stat caches of imports.
    pub stat_caches: DuPart,
    /// Directories that processes are building or removing, or left when they were killed.
    pub unfinished: DuPart,
}

/// The scratches' part of `avfs du`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuScratch {
    /// Scratches of runs in progress.
    pub running: DuPart,
    /// Scratches of runs whose changes `avfs recover` can capture.
    pub recoverable: DuPart,
    /// Recoverable scratches whose vault no longer exists.
    pub orphaned: DuPart,
    /// Scratches of runs that were killed together with their command.
    pub dead: DuPart,
}

/// A number of objects, and their size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuPart {
    /// The number of objects.
    pub count: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// The result of `avfs clean`. Counts the removed objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clean {
    /// True if nothing was removed, only counted.
    pub dry_run: bool,
    /// Bytes that were freed.
    pub freed_bytes: u64,
    /// Bytes that remain: in use, or changes that `avfs recover` can capture.
    pub kept_bytes: u64,
    /// Versions materialized as directories.
    pub bases: u64,
    /// Layers over these bases.
    pub layers: u64,
    /// Directories of the setting `cache.dirs`.
    pub dirs: u64,
    /// Stat caches of imports.
    pub stat_caches: u64,
    /// Scratches of runs that were killed; with `--orphans` also of runs whose vault no longer exists.
    pub scratches: u64,
    /// Unfinished directories of other killed processes.
    pub leftovers: u64,
}

/// The result of `avfs quota show` and `avfs quota set`. A limit is null if it is not set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuotaShow {
    /// The maximum number of bytes in use in the vault file.
    pub bytes: Option<u64>,
    /// The maximum number of versions whose content is kept.
    pub versions: Option<u64>,
    /// The maximum number of entries of one version.
    pub files: Option<u64>,
    /// Bytes in use in the vault file.
    pub bytes_used: u64,
    /// Versions whose content is kept.
    pub versions_used: u64,
}

/// The result of `avfs config show`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigShow {
    /// The files, in the order in which they are applied.
    pub files: Vec<ConfigFile>,
    /// Every setting and its value.
    pub settings: Vec<ConfigSetting>,
    /// Keys in the directory's file that a run ignores, because they would loosen its sandbox.
    pub not_taken: Vec<String>,
}

/// A configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigFile {
    /// The layer: `system`, `user` or `directory`.
    pub layer: Word,
    /// The path of the file.
    pub path: String,
    /// Whether the file exists.
    pub found: bool,
}

/// A setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigSetting {
    /// The key, such as `run.timeout`.
    pub key: String,
    /// True if it may have any number of values, false if it has exactly one.
    pub list: bool,
    /// Its values; more than one for a list only.
    pub values: Vec<ConfigValue>,
}

/// A value and its source.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigValue {
    /// The value as text.
    pub value: String,
    /// The source: `default`, `file` or `variable`.
    pub origin: Word,
    /// The file that set it.
    pub file: Option<String>,
    /// The line in `file`, from 1.
    pub line: Option<u64>,
    /// The variable that set it.
    pub variable: Option<String>,
}

/// The result of `avfs schema`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchemaResult {
    /// The JSON Schema that `avfs schema` prints.
    pub schema: serde_json::Value,
}

/// The result of `avfs completions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// The shell that the script is for.
    pub shell: String,
    /// The script.
    pub script: String,
}

/// The result of `avfs man`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Man {
    /// The pages.
    pub pages: Vec<ManPage>,
}

/// One manual page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManPage {
    /// The name of the page, such as `avfs-fork-create.1`.
    pub name: String,
    /// The file that was written; with `--dir`.
    pub file: Option<String>,
    /// Its roff text; without `--dir`.
    pub text: Option<String>,
}
