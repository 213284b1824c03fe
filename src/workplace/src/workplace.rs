//! An open vault, and the client that works on it.

use avfs_vault::Vault;

use crate::client::Client;

/// An open vault and the client that works on it.
pub struct Workplace {
    pub client: Client,
    pub vault: Vault,
}

impl Workplace {
    pub fn note(&self, text: std::fmt::Arguments<'_>) {
        self.client.note(text);
    }
}
