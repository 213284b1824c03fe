//! Runs that the journal does not have as they stand: those that run now, and those that died on the way.
//!
//! Only looks; finishing and clearing away is a recovery's or the next run's.

use std::path::{Path, PathBuf};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_types::ids::{VersionId, from_hex};

use super::mount_session::{OUTCOME, ScratchDir, SessionError, read_record_in};
use super::session_record::SessionRecord;
use crate::state::ProxyExecutionState;

/// A run that has a scratch.
#[derive(Clone, Debug)]
pub struct Unsettled {
    pub record: SessionRecord,
    /// How far it came.
    pub stands: ProxyExecutionState,
    pub life: RunLife,
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLife {
    Running,
    /// Its process is gone, and the command had not ended.
    Dead,
    /// Its process is gone, but the command had ended: `avfs recover` finishes it.
    Recoverable,
}

impl RunLife {
    /// That of the run of a scratch; `None` if the scratch is being cleared away.
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

impl Unsettled {
    /// Those of one vault, by id.
    pub fn find(scratch: &ScratchDir, vault_id: &str) -> Result<Vec<Self>, SessionError> {
        let mut found = Vec::new();
        for dir in scratch.dirs()? {
            // What cannot be read is being made or cleared away in this moment, or not ours to understand.
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

/// The versions that runs of a vault stand on, which a fork or a checkpoint may not lead to any more.
pub fn bases_in_use(scratch: &ScratchDir, vault_id: &str) -> Result<Vec<VersionId>, SessionError> {
    let base = |dir: PathBuf| {
        // What cannot be read is being cleared away in this moment: its changes are in the vault.
        let written = read_record_in(&dir).ok()?;
        let record = SessionRecord::read_in(&dir).ok().filter(|record| record.vault_id == vault_id);
        record.and_then(|_| VersionId::from_slice(&from_hex(&written.base)?))
    };
    Ok(scratch.dirs()?.into_iter().filter_map(base).collect())
}

/// How far the run of a scratch came.
pub(crate) fn stood_at(dir: &Path) -> ProxyExecutionState {
    let word = read_record_in(dir).map(|written| written.state).unwrap_or_default();
    // What a recovery needs is written first, so that a run without a state had just begun.
    word.parse().unwrap_or(ProxyExecutionState::Checkpointing)
}
