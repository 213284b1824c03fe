//! Empty files at the names of a vault's files that do not exist, while a command can create files next to the vault.
//!
//! A command that creates `vault.db-journal` or `vault.db-wal` writes to the vault: SQLite copies the pages in them to
//! the vault. The sandbox covers each existing file of a vault with a mount, so a missing one is created first. SQLite
//! and avfs treat an empty file like a missing one.

use std::fs::Metadata;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_hostfs::cause::Cause;
use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::owner::create_like;

use super::{COMPANIONS, JOURNAL, sibling};
use crate::backend::{self, BackendError};
use crate::own::POLICIES;

/// How often a placeholder can disappear before it is locked, and how long to wait for a process that removes it.
const TRIES_MAX: usize = 100;
const PATIENCE: Duration = Duration::from_secs(10);

/// Holds placeholders; dropping it removes those that no other process holds.
#[derive(Debug, Default)]
pub struct Placeholders(Vec<(PathBuf, FileLock)>);

impl Placeholders {
    /// Creates the missing files of the vault at `vault`, a real path. Nothing is created in a directory that cannot be
    /// written: a command cannot create a file there either.
    pub fn take(vault: &Path) -> Result<Self> {
        match Self::take_all(vault) {
            Err(error) if matches!(Cause::of(&error), Cause::NoPermission | Cause::ReadOnly) => {
                Ok(Self::default())
            }
            taken => taken,
        }
    }

    /// Also holds those of another vault.
    pub fn extend(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    fn take_all(vault: &Path) -> Result<Self> {
        let mut held = Self::default();
        for suffix in COMPANIONS.iter().chain(&POLICIES) {
            let path = sibling(vault, suffix);
            // The other companions are normal files of a vault, and stay. Locking a lock file would block the vault.
            let is_removed = *suffix == JOURNAL || POLICIES.contains(suffix);
            match is_removed {
                true => held.0.extend(hold(vault, path)?),
                false => create(vault, &path)?,
            }
        }
        Ok(held)
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        for (path, lock) in self.0.drain(..) {
            drop(lock);
            sweep(&path);
        }
    }
}

fn create(vault: &Path, path: &Path) -> Result<()> {
    let made = create_like(path, &vault.metadata()?, 0o666);
    made.map(drop).or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

/// Creates a placeholder, or uses that of another process. `None` if the file exists and is not a placeholder.
fn hold(vault: &Path, path: PathBuf) -> Result<Option<(PathBuf, FileLock)>> {
    for _ in 0..TRIES_MAX {
        create(vault, &path)?;
        match path.symlink_metadata() {
            Ok(meta) if !is_placeholder(&meta) => return Ok(None),
            Ok(_) | Err(_) => {}
        }
        let lock = FileLock::acquire_for(vault, &path, Mode::Shared, PATIENCE).map_err(Error::other)?;
        // Otherwise another process has removed it.
        if lock.is_at(&path).unwrap_or(false) {
            return Ok(Some((path, lock)));
        }
    }
    Err(ErrorKind::WouldBlock.into())
}

fn is_placeholder(meta: &Metadata) -> bool {
    meta.is_file() && meta.len() == 0 && meta.nlink() == 1
}

/// Removes a placeholder that no process holds, such as one of a killed process. If that fails, it stays: it is empty.
pub(crate) fn sweep(path: &Path) {
    let is_there = || path.symlink_metadata().is_ok_and(|meta| is_placeholder(&meta));
    if is_there()
        && let Ok(Some(_alone)) = FileLock::try_existing(path, Mode::Exclusive)
        && is_there()
    {
        let _ = std::fs::remove_file(path);
    }
}

/// Fails if SQLite would find a journal next to an existing vault.
pub(crate) fn check_journal(vault: &Path) -> backend::Result<()> {
    // SQLite looks next to the real file.
    let real = vault.is_symlink().then(|| vault.canonicalize().ok()).flatten();
    let journal = sibling(real.as_deref().unwrap_or(vault), JOURNAL);
    match journal.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(meta) if is_placeholder(&meta) => Ok(()),
        Ok(_) => Err(BackendError::Journal { path: vault.to_owned(), journal }),
        Err(error) => Err(BackendError::io("open", &journal, error)),
    }
}
