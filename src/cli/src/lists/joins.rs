//! The version at which an item of a list starts if it needs others: the result of one item, or the join of
//! several.

use avfs_types::ids::{ForkName, VersionId};
use avfs_types::reference::BadReference;
use avfs_vault::backend::Life;
use avfs_vault::join::Joined;
use avfs_vault::{Vault, VaultError, require_version};

/// How long a fork that only joins results is kept.
const JOINED_SECONDS: i64 = 7 * 24 * 60 * 60;
/// The number of conflicting paths that are named.
const PATHS_NAMED: usize = 3;

pub enum Beginning {
    At(VersionId),
    /// The results of the needed items conflict, and why.
    Clash(String),
}

/// The version with the changes of all given items. A join is kept on a fork of this name.
pub fn beginning(vault: &Vault, name: &str, made: &[(&str, VersionId)]) -> avfs_vault::Result<Beginning> {
    if let [(_, version)] = made {
        return Ok(Beginning::At(*version));
    }
    let versions: Vec<VersionId> = made.iter().map(|(_, version)| *version).collect();
    let mut number = 1;
    let name = loop {
        let text = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let name = ForkName::parse(&text)
            .map_err(|_| BadReference { reference: text, reason: "not a valid fork name" })?;
        match vault.fork(&name) {
            // A resumed batch may have joined the same versions before, or older ones.
            Ok(known) if joins(vault, &known.head, &versions)? => return Ok(Beginning::At(known.head)),
            Ok(_) => number += 1,
            Err(VaultError::NoFork { .. }) => break name,
            Err(error) => return Err(error),
        }
    };
    let expires_at = vault.now().plus_seconds(JOINED_SECONDS);
    Ok(match vault.join(&name, &versions, Life::Ephemeral { expires_at })? {
        Joined::Known(version) => Beginning::At(version),
        Joined::New(version) => Beginning::At(version.id),
        Joined::Clash { version, paths } => {
            let whose = made.iter().find(|(_, other)| *other == version).map_or("", |(id, _)| id);
            let names: Vec<String> = paths.iter().take(PATHS_NAMED).map(ToString::to_string).collect();
            let more = if paths.len() > names.len() { " and others" } else { "" };
            let names = names.join(", ");
            Beginning::Clash(format!("its needs conflict: {whose} and another item changed {names}{more}"))
        }
    })
}

/// True if all parents of a version are among these versions.
fn joins(vault: &Vault, head: &VersionId, versions: &[VersionId]) -> avfs_vault::Result<bool> {
    let head = require_version(&*vault.read()?, head)?;
    Ok(head.parents.iter().all(|parent| versions.contains(parent)))
}
