//! Forks: named heads that move from version to version.

use avfs_engine::ForkDirs;
use avfs_types::Span;
use avfs_types::ids::ForkName;
use avfs_types::reference::Reference;
use avfs_vault::backend::{ForkRecord, Life};
use avfs_vault::discard::ChangesOf;
use avfs_vault::fork::Deletion;
use avfs_vault::fork_use::{ForkUse, Sizes, fork_uses, last_run};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{ForkList, ForkOne, ForkTree, ForkUseObject};
use avfs_workplace::{Client, OpError, Workplace, WorkplaceError};

use crate::error::VerbError;

/// A fork of a list that is shown while it is made.
pub struct ForkRow {
    /// Without the facts that need a walk: its depth, its versions, and its bytes.
    pub fork: ForkUseObject,
    /// The length of the longest name in the list.
    pub name_bytes_max: usize,
}

/// Creates a fork of a version. `expires` is the time after which it may be deleted.
pub fn create_fork(
    workplace: &Workplace,
    name: &ForkName,
    from: &Reference,
    expires: Option<Span>,
) -> Result<ForkOne, OpError> {
    let vault = &workplace.vault;
    let life = match expires {
        None => Life::Persistent,
        Some(Span(seconds)) => Life::Ephemeral { expires_at: vault.now().plus_seconds(seconds) },
    };
    Ok(ForkOne { fork: avfs_present::fork(&vault.create_fork(name, from, life)?) })
}

/// All forks, oldest first.
pub fn forks(workplace: &Workplace, sizes: Sizes) -> Result<ForkList, OpError> {
    let mut forks = fork_uses(&*workplace.vault.read()?, sizes)?;
    forks.sort_by(|a, b| is_older(&a.fork, &b.fork));
    Ok(ForkList { forks: forks.iter().map(avfs_present::fork_use).collect() })
}

/// Passes each fork to `receive`, oldest first; looks up each only when its turn comes.
pub fn each_fork(
    workplace: &Workplace,
    receive: &mut dyn FnMut(ForkRow) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let reader = workplace.vault.read()?;
    let mut forks = reader.forks().map_err(VaultError::from)?;
    forks.sort_by(is_older);
    let name_bytes_max = forks.iter().map(|fork| fork.name.as_str().len()).max().unwrap_or(0);
    for fork in forks {
        let last_run = last_run(&*reader, &fork)?;
        let used = ForkUse { fork, depth: 0, versions_ahead: 0, last_run, held_bytes: None };
        receive(ForkRow { fork: avfs_present::fork_use(&used), name_bytes_max })?;
    }
    Ok(())
}

fn is_older(a: &ForkRecord, b: &ForkRecord) -> std::cmp::Ordering {
    (a.created_at, &a.name).cmp(&(b.created_at, &b.name))
}

/// All forks, each after its parent.
pub fn fork_tree(workplace: &Workplace, sizes: Sizes) -> Result<ForkTree, OpError> {
    let forks = fork_uses(&*workplace.vault.read()?, sizes)?;
    Ok(ForkTree { forks: forks.iter().map(avfs_present::fork_use).collect() })
}

/// Deletes a fork, its checkpoints and its directories in the cache. Opens the vault itself, to work on a full disk.
pub fn delete_fork(client: &Client, name: &ForkName, deletion: Deletion) -> Result<ForkOne, OpError> {
    let (fork, vault_id) = client.free_space(|| {
        let vault = client.open()?.vault;
        let fork = vault.delete_fork(name, deletion).map_err(VerbError::of_old_fork)?;
        Ok((fork, vault.id()?))
    })?;
    // Without a cache directory the fork has no directories to remove.
    if let Ok(cache_dir) = client.surroundings.cache_dir() {
        let removed = ForkDirs::new(&cache_dir, &vault_id).remove(&fork.name);
        removed.map_err(WorkplaceError::host("remove the directories of the fork in", &cache_dir))?;
    }
    Ok(ForkOne { fork: avfs_present::fork(&fork) })
}

/// The fork that an argument names: a run means the fork it ran on.
pub fn fork_meant(vault: &Vault, what: &ChangesOf) -> Result<ForkRecord, OpError> {
    let name: ForkName = match what.meant(&*vault.read()?)? {
        ChangesOf::Fork(name) => name,
        ChangesOf::Run(prefix) => vault.run(&prefix)?.fork,
    };
    vault.fork(&name).map_err(VerbError::of_old_fork)
}
