//! Verbs that create, check and maintain the vault.

pub mod audit;
pub mod clean;
pub mod compact;
pub mod du;
pub mod fsck;
pub mod gc;
pub mod init;
pub mod prune;
pub mod quota;
pub mod stats;
pub mod vault;
