//! The `result` of the verbs that look after a vault, its settings and the command itself.

use schemars::JsonSchema;
use serde::Serialize;

use crate::records::{AuditLine, AuditRow};

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditList {
    pub rows: Vec<AuditRow>,
    /// Older rows that were left off.
    pub left_off: u64,
}

/// With `--json`; without it each row is a line of its own.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditExport {
    pub rows: Vec<AuditLine>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditVerify {
    pub rows: u64,
    pub head: Option<AuditVerifyHead>,
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditVerifyHead {
    pub seq: i64,
    pub digest: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Gc {
    /// Forks that had expired.
    pub forks: u64,
    pub versions: u64,
    pub trees: u64,
    pub blobs: u64,
    /// Remembered results that had expired, or lost a version.
    pub results: u64,
    pub file_bytes_before: u64,
    pub file_bytes_after: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Prune {
    pub dry_run: bool,
    pub versions: Vec<String>,
    pub checkpoints: Vec<PruneCheckpoint>,
}

/// An automatic checkpoint that went with its version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PruneCheckpoint {
    pub fork: String,
    pub name: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Compact {
    pub file_bytes_before: u64,
    pub file_bytes_after: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Fsck {
    pub versions: u64,
    pub trees: u64,
    pub blobs: u64,
    pub audit_rows: u64,
    pub runs: u64,
    /// Remembered results.
    pub results: u64,
    pub findings: Vec<FsckFinding>,
    /// What was put back from a directory, with --heal: the findings are those that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healed: Option<FsckHealed>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FsckHealed {
    pub from: String,
    pub blobs: u64,
    pub trees: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FsckFinding {
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Stats {
    pub vault: String,
    pub forks: u64,
    pub checkpoints: u64,
    pub versions: u64,
    pub trees: u64,
    pub tree_bytes: u64,
    pub blobs: u64,
    /// Bytes of the blobs as stored, and of the content they stand for.
    pub blob_stored_bytes: u64,
    pub blob_content_bytes: u64,
    pub audit_rows: u64,
    pub runs: u64,
    pub file_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QuotaShow {
    pub bytes: Option<u64>,
    pub versions: Option<u64>,
    pub files: Option<u64>,
    pub bytes_used: u64,
    pub versions_used: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigShow {
    /// In the order in which they are laid over each other.
    pub files: Vec<ConfigFile>,
    pub settings: Vec<ConfigSetting>,
    /// Keys that the directory's file sets and a run does not take: they would open its sandbox.
    pub not_taken: Vec<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigFile {
    /// Whose it is: `system`, `user` or `directory`.
    pub layer: &'static str,
    pub path: String,
    pub found: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigSetting {
    /// Such as `run.timeout`.
    pub key: String,
    /// True if it may have any number of values, false if it has exactly one.
    pub list: bool,
    pub values: Vec<ConfigValue>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigValue {
    pub value: String,
    /// What set it: `default`, `file` or `variable`.
    pub origin: &'static str,
    /// The file that set it, and the line of the file.
    pub file: Option<String>,
    pub line: Option<u64>,
    /// The variable that set it.
    pub variable: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SchemaResult {
    /// The JSON Schema that `avfs schema` prints.
    pub schema: serde_json::Value,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Completions {
    pub shell: String,
    pub script: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Man {
    pub pages: Vec<ManPage>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ManPage {
    /// Such as `avfs-fork-create.1`.
    pub name: String,
    /// Where it was written; with `--dir`.
    pub file: Option<String>,
    /// Its roff text; without `--dir`.
    pub text: Option<String>,
}
