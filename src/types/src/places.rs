//! The names of what avfs keeps in a directory.

/// The directory beside the user's files that holds their vault.
pub const VAULT_DIR: &str = ".avfs";
/// The name of the vault file within [`VAULT_DIR`].
pub const VAULT_FILE: &str = "vault.db";
/// The name of the configuration file of the system, of the user and of a vault.
pub const CONFIG_FILE: &str = "avfs.toml";
