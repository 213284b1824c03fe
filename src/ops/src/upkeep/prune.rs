//! Removes the files of old versions, and keeps their records.

use avfs_types::Span;
use avfs_types::ids::{ForkName, VersionId};
use avfs_vault::gc::{Keep, Trial};
use avfs_wire::{Prune, PruneCheckpoint};
use avfs_workplace::{Client, OpError};

use crate::error::VerbError;

/// The versions to keep.
pub struct PruneQuery {
    /// The newest versions of each fork.
    pub keep_last: Option<u64>,
    /// Versions that are not older than this.
    pub keep_within: Option<Span>,
    /// Prune only versions of this fork; `None`: of every fork.
    pub fork: Option<ForkName>,
    /// Only list the versions.
    pub dry_run: bool,
}

pub fn prune(client: &Client, query: &PruneQuery) -> Result<Prune, OpError> {
    let trial = if query.dry_run { Trial::DryRun } else { Trial::Real };
    let pruned = client.free_space(|| {
        let vault = client.open_sparing_runs()?.vault;
        let since = query.keep_within.map(|Span(seconds)| vault.now().plus_seconds(-seconds));
        let keep = Keep { last: query.keep_last, since };
        vault.prune(&keep, query.fork.as_ref(), trial).map_err(VerbError::of_old_fork)
    })?;
    let checkpoints = pruned.checkpoints.iter();
    Ok(Prune {
        dry_run: query.dry_run,
        versions: pruned.versions.iter().map(VersionId::to_hex).collect(),
        checkpoints: checkpoints
            .map(|(fork, name)| PruneCheckpoint { fork: fork.to_string(), name: name.to_string() })
            .collect(),
    })
}
