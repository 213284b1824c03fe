//! The names of what avfs keeps in a directory.

/// The directory beside the user's files that holds their vault.
pub const VAULT_DIR: &str = ".avfs";
pub const VAULT_FILE: &str = "vault.db";
pub const CONFIG_FILE: &str = "avfs.toml";
