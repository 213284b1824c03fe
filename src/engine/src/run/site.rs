//! The vault, the directories and the settings that a run works with, as determined by the edge.

use std::path::PathBuf;

use avfs_types::KeepCount;
use avfs_vault::Vault;
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;

use crate::first_import::WarnAbove;
use crate::locate::GitConfigs;
use crate::result_cache::MemoSite;
use crate::session::noted::NoteDelivery;

/// The note about a vault that was replaced by an older copy. On stderr it is printed when the vault is opened.
pub const OLDER_COPY: &str = "vault.older_copy";

/// The context of the engine, as determined by the edge.
pub struct Site<'a> {
    pub vault: &'a Vault,
    /// The id of the vault.
    pub vault_id: String,
    /// The directory the vault is bound to.
    pub bound: Option<PathBuf>,
    pub cwd: PathBuf,
    pub home: Option<PathBuf>,
    pub git_configs: GitConfigs,
    pub cache_dir: PathBuf,
    /// Other vaults and data of avfs, which no command can see.
    pub private_paths: Vec<PathBuf>,
    /// Identifies a boot of the machine.
    pub boot_id: String,
    pub layers: BaseCache,
    /// The path of the stat cache of the bound directory.
    pub stat_cache: Option<PathBuf>,
    /// Paths that are never versioned, as lines of an ignore file.
    pub exclude: Vec<String>,
    /// The size above which a first import is announced.
    pub warn_above: WarnAbove,
    /// How long to keep changes that were not reviewed.
    pub expires_seconds: i64,
    /// The system's limit for argv and environment of a program.
    pub arguments_bytes_max: usize,
    /// Number of automatic checkpoints that a fork keeps.
    pub checkpoints_keep: KeepCount,
    pub memo: MemoSite<'a>,
    pub meter: &'a Meter,
    pub notes: NoteDelivery,
}
