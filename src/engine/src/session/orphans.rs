//! Runs whose state is not in the journal yet: live runs, and runs that died.
//!
//! Read-only; a recovery or the next run finishes or removes them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_types::ids::{VersionId, from_hex};
use avfs_vault::Vault;

use super::mount_session::{OUTCOME, ScratchDir, SessionError, read_record_in};
use super::session_record::SessionRecord;
use crate::run::ProxyExecutionState;

/// A run that has a scratch.
#[derive(Clone, Debug)]
pub struct UnfinishedRun {
    pub record: SessionRecord,
    /// Its last state.
    pub stands: ProxyExecutionState,
    pub life: RunLife,
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLife {
    Running,
    /// Its process is gone, and the command did not end.
    Dead,
    /// Its process is gone, but the command ended: `avfs recover` can finish it.
    Recoverable,
}

impl RunLife {
    /// The state of the run of a scratch; `None` if the scratch is being removed.
    pub(crate) fn of(scratch: &Path) -> Option<Self> {
        match FileLock::try_existing(scratch, Mode::Shared) {
            Ok(Some(_)) if scratch.join(OUTCOME).exists() => Some(Self::Recoverable),
            Ok(Some(_)) => Some(Self::Dead),
            Ok(None) => Some(Self::Running),
            Err(_) => None,
        }
    }

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Dead => "dead",
            Self::Recoverable => "recoverable",
        }
    }
}

impl UnfinishedRun {
    /// The runs of one vault, by id.
    pub fn find(scratch: &ScratchDir, vault_id: &str) -> Result<Vec<Self>, SessionError> {
        let mut found = Vec::new();
        for dir in scratch.dirs()? {
            // An unreadable record is being written or removed, or has an unknown format.
            let Ok(record) = SessionRecord::read_in(&dir) else { continue };
            if record.vault_id != vault_id {
                continue;
            }
            let Some(life) = RunLife::of(&dir) else { continue };
            found.push(Self { record, stands: stood_at(&dir), life, dir });
        }
        found.sort_by(|a, b| a.record.run.cmp(&b.record.run));
        Ok(found)
    }
}

/// The versions that runs of a vault use, although no fork or checkpoint may refer to them anymore.
pub fn bases_in_use(scratch: &ScratchDir, vault_id: &str) -> Result<Vec<VersionId>, SessionError> {
    let base = |dir: PathBuf| {
        // An unreadable record is being removed: its changes are in the vault.
        let written = read_record_in(&dir).ok()?;
        let record = SessionRecord::read_in(&dir).ok().filter(|record| record.vault_id == vault_id);
        record.and_then(|_| VersionId::from_slice(&from_hex(&written.base)?))
    };
    Ok(scratch.dirs()?.into_iter().filter_map(base).collect())
}

/// True if the vault of a run was deleted or moved: nothing is at its recorded path, or another vault. A file that
/// cannot be read may be the vault.
pub(crate) fn is_vault_gone(record: &SessionRecord) -> bool {
    let Some(vault) = record.vault.as_deref().map(Path::new) else { return false };
    match std::fs::metadata(vault) {
        Ok(_) => Vault::id_at(vault).is_ok_and(|id| id != record.vault_id),
        Err(error) => [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()),
    }
}

/// The last state of the run of a scratch.
pub(crate) fn stood_at(dir: &Path) -> ProxyExecutionState {
    let word = read_record_in(dir).map(|written| written.state).unwrap_or_default();
    // The data for a recovery is written first, so a run without a state had just started.
    word.parse().unwrap_or(ProxyExecutionState::Checkpointing)
}
