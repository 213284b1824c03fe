//! The `result` of the verbs that look after a vault, its settings and the command itself.

use serde::Serialize;

use crate::records::{AuditLine, AuditRow};

/// The result of `avfs audit list`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditList {
    /// The newest rows that match, oldest first.
    pub rows: Vec<AuditRow>,
    /// Older rows that were left off.
    pub left_off: u64,
}

/// With `--json`; without it each row is a line of its own.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditExport {
    /// All rows, oldest first.
    pub rows: Vec<AuditLine>,
}

/// The result of `avfs audit verify`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditVerify {
    /// Rows that were checked.
    pub rows: u64,
    /// The newest row; null for an empty log. Note it elsewhere to detect a log that was cut off.
    pub head: Option<AuditVerifyHead>,
    /// What is wrong with the chain; empty if it is whole.
    pub problems: Vec<String>,
}

/// The newest row of the audit log.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditVerifyHead {
    /// The number of the row.
    pub seq: i64,
    /// The digest of the row, which covers all rows before it.
    pub digest: String,
}

/// The result of `avfs gc`. Counts what was removed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gc {
    /// Forks that had expired.
    pub forks: u64,
    /// Versions that nothing led to.
    pub versions: u64,
    /// Trees that no version needs.
    pub trees: u64,
    /// Blobs that no tree needs.
    pub blobs: u64,
    /// Remembered results that had expired, or lost a version.
    pub results: u64,
    /// Bytes of the vault file before.
    pub file_bytes_before: u64,
    /// Bytes of the vault file after.
    pub file_bytes_after: u64,
}

/// The result of `avfs prune`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prune {
    /// True if nothing was removed.
    pub dry_run: bool,
    /// The ids of the versions that lost their files.
    pub versions: Vec<String>,
    /// The checkpoints that were removed with them.
    pub checkpoints: Vec<PruneCheckpoint>,
}

/// An automatic checkpoint that went with its version.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PruneCheckpoint {
    /// The fork of the checkpoint.
    pub fork: String,
    /// The name of the checkpoint.
    pub name: String,
}

/// The result of `avfs compact`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compact {
    /// Bytes of the vault file before.
    pub file_bytes_before: u64,
    /// Bytes of the vault file after.
    pub file_bytes_after: u64,
}

/// The result of `avfs fsck`. Counts what was checked.
#[derive(Clone, Debug, Serialize)]
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
    /// What is damaged; empty if the vault is whole.
    pub findings: Vec<FsckFinding>,
    /// What was put back from a directory, with --heal: the findings are those that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healed: Option<FsckHealed>,
}

/// What `avfs fsck --heal` put back.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FsckHealed {
    /// The directory that had the content.
    pub from: String,
    /// Blobs that are whole again.
    pub blobs: u64,
    /// Trees that are whole again.
    pub trees: u64,
}

/// One thing that is damaged.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FsckFinding {
    /// The stable code of the damage.
    pub code: String,
    /// What is damaged, in words.
    pub message: String,
}

/// The result of `avfs stats`.
#[derive(Clone, Debug, Serialize)]
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
    /// Bytes of the blobs as stored, and of the content they stand for.
    pub blob_stored_bytes: u64,
    /// Bytes of the content that the blobs stand for.
    pub blob_content_bytes: u64,
    /// Rows of the audit log.
    pub audit_rows: u64,
    /// Runs of the journal.
    pub runs: u64,
    /// Bytes of the vault file.
    pub file_bytes: u64,
    /// Bytes within the file that are not in use.
    pub free_bytes: u64,
}

/// The result of `avfs du`. Sizes are bytes on the disk.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Du {
    /// The vault that the working directory uses; null without one.
    pub vault: Option<DuVault>,
    /// The cache directory, which all vaults of a user share.
    pub cache: DuCache,
    /// What runs have written and no vault has yet; in the cache directory too.
    pub scratch: DuScratch,
}

/// A vault's part of `avfs du`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuVault {
    /// The path of the vault file.
    pub path: String,
    /// Bytes of the vault file and of the files beside it that belong to it.
    pub bytes: u64,
}

/// The cache's part of `avfs du`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuCache {
    /// The path of the directory.
    pub path: String,
    /// Bytes of everything in it, scratches included.
    pub bytes: u64,
    /// The setting `cache.max`; null for no limit.
    pub max_bytes: Option<u64>,
    /// Versions as directories.
    pub bases: DuPart,
    /// Layers over them.
    pub layers: DuPart,
    /// The directories of the setting `cache.dirs`.
    pub dirs: DuPart,
    /// What forks keep between their runs (`--home persistent`, `--keep-tmp`).
    pub fork_dirs: DuPart,
    /// What imports know of the files they read.
    pub stat_caches: DuPart,
    /// What processes are building or removing, or left when they were killed.
    pub unfinished: DuPart,
}

/// The scratches' part of `avfs du`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuScratch {
    /// Of runs that are executed now.
    pub running: DuPart,
    /// Of runs whose changes `avfs recover` can keep.
    pub recoverable: DuPart,
    /// Those of them whose vault is gone.
    pub orphaned: DuPart,
    /// Of runs that were killed with their command.
    pub dead: DuPart,
}

/// How many of something there are, and what they take.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuPart {
    /// How many there are.
    pub count: u64,
    /// Bytes on the disk.
    pub bytes: u64,
}

/// The result of `avfs clean`. Counts what was removed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clean {
    /// True if nothing was removed, but only counted.
    pub dry_run: bool,
    /// Bytes that were freed.
    pub freed_bytes: u64,
    /// Bytes that are left: in use, or changes that `avfs recover` can keep.
    pub kept_bytes: u64,
    /// Versions as directories.
    pub bases: u64,
    /// Layers over them.
    pub layers: u64,
    /// Directories of the setting `cache.dirs`.
    pub dirs: u64,
    /// What imports knew of the files they had read.
    pub stat_caches: u64,
    /// Scratches of runs that were killed; with `--orphans` also of runs whose vault is gone.
    pub scratches: u64,
    /// What other killed processes had not finished.
    pub leftovers: u64,
}

/// The result of `avfs quota show` and `avfs quota set`. A limit is null if there is none.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuotaShow {
    /// The most bytes in use in the vault file.
    pub bytes: Option<u64>,
    /// The most versions whose content is kept.
    pub versions: Option<u64>,
    /// The most entries of one version.
    pub files: Option<u64>,
    /// Bytes in use in the vault file.
    pub bytes_used: u64,
    /// Versions whose content is kept.
    pub versions_used: u64,
}

/// The result of `avfs config show`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigShow {
    /// In the order in which they are laid over each other.
    pub files: Vec<ConfigFile>,
    /// Every setting and its value.
    pub settings: Vec<ConfigSetting>,
    /// Keys that the directory's file sets and a run does not take: they would open its sandbox.
    pub not_taken: Vec<String>,
}

/// A configuration file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigFile {
    /// Whose it is: `system`, `user` or `directory`.
    pub layer: &'static str,
    /// The path of the file.
    pub path: String,
    /// Whether the file exists.
    pub found: bool,
}

/// A setting.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigSetting {
    /// Such as `run.timeout`.
    pub key: String,
    /// True if it may have any number of values, false if it has exactly one.
    pub list: bool,
    /// Its values; more than one for a list only.
    pub values: Vec<ConfigValue>,
}

/// A value and what set it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigValue {
    /// The value as text.
    pub value: String,
    /// What set it: `default`, `file` or `variable`.
    pub origin: &'static str,
    /// The file that set it, and the line of the file.
    pub file: Option<String>,
    /// The line in `file`, from 1.
    pub line: Option<u64>,
    /// The variable that set it.
    pub variable: Option<String>,
}

/// The result of `avfs schema`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchemaResult {
    /// The JSON Schema that `avfs schema` prints.
    pub schema: serde_json::Value,
}

/// The result of `avfs completions`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// The shell that the script is for.
    pub shell: String,
    /// The script.
    pub script: String,
}

/// The result of `avfs man`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Man {
    /// The pages.
    pub pages: Vec<ManPage>,
}

/// One manual page.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManPage {
    /// Such as `avfs-fork-create.1`.
    pub name: String,
    /// Where it was written; with `--dir`.
    pub file: Option<String>,
    /// Its roff text; without `--dir`.
    pub text: Option<String>,
}
