//! Forks, checkpoints and versions.

pub mod checkpoint;
pub mod fork;
pub mod log;
pub mod redo;
pub mod restore;
pub mod show;
pub mod undo;

use avfs_ops::{OpError, VerbError};
use avfs_types::ids::ForkName;
use avfs_vault::Vault;
use avfs_vault::backend::ForkRecord;
use avfs_vault::discard::ChangesOf;

/// The fork that an argument names: a run means the fork it ran on.
pub fn fork_meant(vault: &Vault, what: &ChangesOf) -> Result<ForkRecord, OpError> {
    let name: ForkName = match what.meant(&*vault.read()?)? {
        ChangesOf::Fork(name) => name,
        ChangesOf::Run(prefix) => vault.run(&prefix)?.fork,
    };
    vault.fork(&name).map_err(VerbError::of_old_fork)
}
