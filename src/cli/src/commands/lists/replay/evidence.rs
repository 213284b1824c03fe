//! The data of two compared runs: their trees and their output.

use avfs_lists::replay::{Noise, Seen, TreeChanges};
use avfs_types::ids::{RunId, RunPrefix, VersionId, from_hex};
use avfs_vault::changes::Changes;
use avfs_vault::diff::collect;
use avfs_vault::expansion::Expansion;
use avfs_vault::memo;
use avfs_vault::stored_output::{output_bytes, read_output};
use avfs_vault::tree::Pages;
use avfs_vault::version::full_root_of;
use avfs_vault::{Vault, VaultError, require_version};
use avfs_wire::{InspectionHit, ListItem, ResultObject};

/// Longer outputs are not compared without noise, for which both must be in memory.
const COMPARED_BYTES_MAX: u64 = 10 << 20;

/// Both output streams of a run, if they are known and not too long to compare.
pub type Streams = [Option<Vec<u8>>; 2];

pub fn version(text: Option<&String>) -> Option<VersionId> {
    VersionId::from_slice(&from_hex(text?)?)
}

/// The observed result of a run that was executed.
pub fn seen_of(vault: &Vault, ran: &ResultObject, left: Option<VersionId>) -> avfs_vault::Result<Seen> {
    let mut seen = Seen {
        exit_code: ran.exit_code.map(i32::from),
        signal: ran.signal,
        // The digest of truncated output is not comparable.
        stdout: ran.stdout_digest.clone().filter(|_| !ran.stdout_truncated),
        stderr: ran.stderr_digest.clone().filter(|_| !ran.stderr_truncated),
        ..Seen::default()
    };
    if let Some(id) = left {
        let reader = vault.read()?;
        let record = require_version(&*reader, &id)?;
        (seen.tree, seen.content) = (record.root.to_hex(), record.content.to_hex());
    }
    Ok(seen)
}

/// The same, for a run whose result is cached.
pub fn seen_by_cache(found: InspectionHit) -> Seen {
    Seen {
        exit_code: Some(found.exit_code),
        signal: None,
        stdout: Some(found.stdout_digest),
        stderr: Some(found.stderr_digest),
        tree: found.tree,
        content: found.content,
    }
}

/// The changes from the recorded tree to the observed one; `None` unless both exist.
pub fn changes(
    vault: &Vault,
    recorded: Option<VersionId>,
    seen: Option<VersionId>,
    noise: &Noise,
) -> avfs_vault::Result<Option<TreeChanges>> {
    let (Some(recorded), Some(seen)) = (recorded, seen) else { return Ok(None) };
    let reader = vault.read()?;
    let known = reader.version(&recorded)?.filter(|version| version.pruned_at.is_none());
    let Some(known) = known else { return Ok(None) };
    let pages: &dyn Pages = &&*reader;
    let (old, new) =
        (full_root_of(&*reader, &known)?, full_root_of(&*reader, &require_version(&*reader, &seen)?)?);
    let mut changes = TreeChanges { loud: Changes::new(vault.temporary_dirs()), ..TreeChanges::default() };
    let mut add = |change| changes.add(change, noise);
    collect(pages, &old, &new, &mut Expansion::default(), &mut add)?;
    Ok(Some(changes))
}

/// The output of the recorded run, if it is cached and not too long.
pub fn recorded_outputs(vault: &Vault, read: &ListItem) -> avfs_vault::Result<Streams> {
    let Some(id) = read.run.as_deref().and_then(|id| RunPrefix::parse(id).ok()) else {
        return Ok([None, None]);
    };
    match vault.run(&id) {
        Ok(run) => remembered_outputs(vault, &run.id),
        Err(VaultError::NoRun { .. }) => Ok([None, None]),
        Err(error) => Err(error),
    }
}

/// The output of a run, if it is cached and not too long.
pub fn remembered_outputs(vault: &Vault, run: &RunId) -> avfs_vault::Result<Streams> {
    let reader = vault.read()?;
    let Some(memo) = memo::of_run(&*reader, run)? else { return Ok([None, None]) };
    let output = |id| match output_bytes(&*reader, id)? {
        ..=COMPARED_BYTES_MAX => read_output(&*reader, id).map(Some),
        _ => Ok(None),
    };
    Ok([output(&memo.stdout)?, output(&memo.stderr)?])
}
