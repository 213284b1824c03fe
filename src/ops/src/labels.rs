//! The names that point to versions.

use std::collections::HashMap;

use avfs_types::ids::VersionId;
use avfs_vault::backend::Reader;

/// The names of forks and checkpoints, by their version.
pub type Labels = HashMap<VersionId, Vec<String>>;

pub fn labels(reader: &dyn Reader) -> avfs_vault::Result<Labels> {
    let mut labels = Labels::new();
    for fork in reader.forks()? {
        labels.entry(fork.head).or_default().push(fork.name.to_string());
    }
    for checkpoint in reader.checkpoints()? {
        let label = format!("{}@{}", checkpoint.fork, checkpoint.name);
        labels.entry(checkpoint.version).or_default().push(label);
    }
    Ok(labels)
}
