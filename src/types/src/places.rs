//! The names of the files of avfs in a directory.

/// The directory of the vault, next to the user's files.
pub const VAULT_DIR: &str = ".avfs";
/// The name of the vault file within [`VAULT_DIR`].
pub const VAULT_FILE: &str = "vault.db";
/// The name of the configuration file of the system, of the user and of a vault.
pub const CONFIG_FILE: &str = "avfs.toml";
