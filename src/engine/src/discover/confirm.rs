//! Checks a vault that was found once it is open: that it is the one that was trusted, and that it is bound to the
//! directory that it was found for.

use std::path::Path;

use avfs_vault::{Vault, VaultError};

use super::kept_record::KeptRecord;
use super::locate::{Located, Surroundings};
use super::trust::TrustError;
use crate::locate::LocateError;
use crate::run::Note;
use crate::workspace::binding::bound_dir;

impl Surroundings {
    /// Confirms a vault that was found or named. Returns a note if its directory was moved and it is bound to the new
    /// path now.
    pub fn confirm<E>(&self, located: &Located, vault: &Vault) -> Result<Option<Note>, E>
    where
        E: From<TrustError> + From<LocateError> + From<VaultError>,
    {
        if let Some(trusted) = &located.trusted {
            let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let above = located.path.parent().and_then(Path::parent).map(real);
            let is_bound_above = above.is_some() && bound_dir(vault)?.as_deref().map(real) == above;
            self.trusted_vaults()?.confirm(&located.path, &vault.id()?, trusted, is_bound_above)?;
        }
        if located.trusted.is_none() && located.kept_for.is_none() {
            match self.trusted_vaults() {
                // Without a home directory, no vault is recorded.
                Err(LocateError::NoHome { .. }) => {}
                listed => listed?.check_named(&located.path, &vault.id()?)?,
            }
        }
        match &located.kept_for {
            Some(dir) => Ok(rebind(vault, &located.path, dir)?),
            None => Ok(None),
        }
    }

    /// Records the directory of a new vault if the vault is kept in the user's data directory.
    pub fn record_kept(&self, vault: &Path, dir: &Path) {
        let kept = self.kept_dir().is_ok_and(|kept| vault.starts_with(kept));
        if let Some(home) = vault.parent().filter(|_| kept) {
            record(home, dir);
        }
    }
}

/// Binds a vault of the user's data directory to its directory if that was moved, and keeps the record up to date.
fn rebind(vault: &Vault, path: &Path, dir: &Path) -> Result<Option<Note>, VaultError> {
    let Some(home) = path.parent() else { return Ok(None) };
    let mut note = None;
    let bound = bound_dir(vault)?;
    if let Some(bound) = bound.filter(|bound| bound != dir) {
        // A vault that is bound to another directory on purpose stays so.
        if !KeptRecord::read(home).is_some_and(|record| record.path == bound && record.has_moved_to(dir)) {
            return Ok(None);
        }
        vault.rebind(dir)?;
        let text = format!(
            "the directory of the vault was moved from {}: the vault is bound to {} now",
            bound.display(),
            dir.display()
        );
        note = Some(Note::new("vault.rebound", text));
    }
    record(home, dir);
    Ok(note)
}

/// A missing record has no effect until the directory is moved.
fn record(home: &Path, dir: &Path) {
    let Ok(record) = KeptRecord::of(dir) else { return };
    if KeptRecord::read(home).as_ref() != Some(&record)
        && let Err(error) = record.write(home)
    {
        tracing::debug!(%error, "cannot record the directory of the vault");
    }
}
