//! Scratches of dead runs. Those of live runs are limited by `--disk` and removed with their run.

use std::path::Path;

use avfs_vault::gc::Trial;

use super::Result;
use super::measure::disk_bytes;
use crate::mount_session::{MountSession, ScratchDir};
use crate::orphans::{RunLife, is_vault_gone};
use crate::session_record::SessionRecord;

/// Removes scratches that cannot be finished: if a run was killed together with its command, everything the
/// command wrote. The next run of the vault journals that the run was killed, so the session record is kept as
/// long as the vault exists. Returns the number of scratches and bytes.
pub(super) fn sweep(scratch: &ScratchDir, trial: Trial) -> Result<(u64, u64)> {
    let (mut count, mut freed) = (0, 0_u64);
    for (name, session) in scratch.dead()? {
        if session.read_outcome()?.is_some() {
            continue;
        }
        let before = disk_bytes(session.dir());
        let dir = session.dir().to_owned();
        let is_expected = SessionRecord::read(&session, &name).is_ok_and(|record| !is_vault_gone(&record));
        if is_expected && !session.has_more_than_record() {
            continue;
        }
        if trial == Trial::Real {
            match is_expected {
                true => session.strip()?,
                false => session.discard()?,
            }
            freed = freed.saturating_add(before.saturating_sub(disk_bytes(&dir)));
        } else {
            freed = freed.saturating_add(before);
        }
        count += 1;
    }
    Ok((count, freed))
}

/// Discards the changes of dead runs whose vault is gone.
pub(super) fn discard_orphans(scratch: &ScratchDir, trial: Trial) -> Result<(u64, u64)> {
    discard(scratch, trial, is_vault_gone)
}

/// Discards the changes of dead runs of a deleted vault.
pub(super) fn discard_of(scratch: &ScratchDir, vault_id: &str, path: &Path) -> Result<(u64, u64)> {
    discard(scratch, Trial::Real, |record| {
        let theirs = record.vault.as_ref().is_none_or(|vault| Path::new(vault) == path);
        record.vault_id == vault_id && (theirs || is_vault_gone(record))
    })
}

fn discard(scratch: &ScratchDir, trial: Trial, goes: impl Fn(&SessionRecord) -> bool) -> Result<(u64, u64)> {
    let (mut count, mut freed) = (0, 0_u64);
    for (name, session) in scratch.dead()? {
        if !SessionRecord::read(&session, &name).is_ok_and(|record| goes(&record)) {
            continue;
        }
        freed = freed.saturating_add(disk_bytes(session.dir()));
        count += 1;
        if trial == Trial::Real {
            session.discard()?;
        }
    }
    Ok((count, freed))
}

/// Disk usage of the scratches of dead runs.
pub(super) fn kept_bytes(scratch: &ScratchDir) -> Result<u64> {
    let dead = list(scratch)?.into_iter().filter(|(life, ..)| *life != RunLife::Running);
    Ok(dead.map(|(.., bytes)| bytes).sum())
}

/// Every scratch: the state of its run, whether its vault is gone, and its disk usage.
pub(super) fn list(scratch: &ScratchDir) -> Result<Vec<(RunLife, bool, u64)>> {
    let mut found = Vec::new();
    for dir in scratch.dirs()? {
        let Some(life) = RunLife::of(&dir) else { continue };
        let orphan = SessionRecord::read_in(&dir).is_ok_and(|record| is_vault_gone(&record));
        found.push((life, orphan, disk_bytes(&dir)));
    }
    Ok(found)
}

impl MountSession {
    fn has_more_than_record(&self) -> bool {
        std::fs::read_dir(self.dir()).is_ok_and(|entries| entries.count() > 1)
    }
}
