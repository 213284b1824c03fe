//! What an item of a list begins from, where it needs others: what the one of them made, or the join of several.

use avfs_types::ids::{ForkName, VersionId};
use avfs_types::reference::BadReference;
use avfs_vault::backend::Life;
use avfs_vault::join::Joined;
use avfs_vault::{Vault, VaultError, require_version};

/// How long what only joins results is kept.
const JOINED_SECONDS: i64 = 7 * 24 * 60 * 60;
/// Paths of a clash that are named.
const PATHS_NAMED: usize = 3;

pub enum Beginning {
    At(VersionId),
    /// What others made cannot be joined, and why.
    Clash(String),
}

/// The version with what each of some items made, by their ids; a join is kept on a fork of this name.
pub fn beginning(vault: &Vault, name: &str, made: &[(&str, VersionId)]) -> avfs_vault::Result<Beginning> {
    if let [(_, version)] = made {
        return Ok(Beginning::At(*version));
    }
    let versions: Vec<VersionId> = made.iter().map(|(_, version)| *version).collect();
    let mut number = 1;
    let name = loop {
        let text = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let name = ForkName::parse(&text)
            .map_err(|_| BadReference { reference: text, reason: "it is no name for a fork" })?;
        match vault.fork(&name) {
            // A batch that is gone on with may have joined them before, or what they were then.
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
            Beginning::Clash(format!("what it needs clashes: {whose} and another changed {names}{more}"))
        }
    })
}

/// True if a version was made of nothing but these.
fn joins(vault: &Vault, head: &VersionId, versions: &[VersionId]) -> avfs_vault::Result<bool> {
    let head = require_version(&*vault.read()?, head)?;
    Ok(head.parents.iter().all(|parent| versions.contains(parent)))
}
