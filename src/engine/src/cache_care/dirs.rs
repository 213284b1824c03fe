//! The directories of `cache.dirs`: leased by the runs that mount them, and evicted when no run has a lease.
//!
//! ```text
//! CACHE/dirs/VAULT/NAME    one directory; its access time is the time of the last use
//! CACHE/dirs/.old-X        being evicted
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::remove::remove_tree;
use avfs_hostfs::{make, random};
use avfs_request::Extra;

use super::measure::disk_bytes;
use crate::mount_session::SessionError;

/// Maximum attempts to lease a directory that another process is moving away; each attempt waits about as long
/// as a rename.
const TRIES_MAX: usize = 5000;

/// Bytes that a run is assumed to write to such directories: the actual number is unknown.
pub(crate) const RUN_BYTES: u64 = 32 << 20;

/// Leases on the directories that a run mounts. Directories evicted in the meantime are created again.
pub(crate) fn lease_all(extras: &[Extra]) -> Result<Vec<FileLock>, SessionError> {
    let mut leases = Vec::new();
    for extra in extras {
        match extra {
            Extra::Cache { source, .. } => leases.push(lease(source)?),
            Extra::ReadOnly(_) | Extra::ReadWrite(_) | Extra::Tmpfs(_) | Extra::Hide(_) => {}
        }
    }
    Ok(leases)
}

fn lease(dir: &Path) -> Result<FileLock, SessionError> {
    for _ in 0..TRIES_MAX {
        make::private_dirs(dir).map_err(SessionError::host("create", dir))?;
        let lock = FileLock::try_existing(dir, Mode::Shared).map_err(SessionError::host("lock", dir))?;
        let Some(lock) = lock else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        // Not the modification time, which belongs to the command.
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        utimensat(CWD, dir, &times, AtFlags::empty())
            .map_err(|errno| SessionError::host("touch", dir)(errno.into()))?;
        return Ok(lock);
    }
    Err(SessionError::host("lock", dir)(ErrorKind::WouldBlock.into()))
}

/// A directory of `cache.dirs`.
#[derive(Debug)]
pub(super) struct CacheDir {
    pub path: PathBuf,
    pub vault: String,
    pub bytes: u64,
    pub last_used: SystemTime,
}

fn entries(dir: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let listing = match std::fs::read_dir(dir) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let named =
        listing.flatten().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    Ok(named.collect())
}

pub(super) fn list(cache_dir: &Path) -> std::io::Result<Vec<CacheDir>> {
    let mut dirs = Vec::new();
    for (vault, home) in
        entries(&cache_dir.join("dirs"))?.into_iter().filter(|(name, _)| !name.starts_with('.'))
    {
        for (_, path) in entries(&home)? {
            let used = std::fs::metadata(&path).and_then(|meta| meta.accessed());
            let last_used = used.unwrap_or(SystemTime::UNIX_EPOCH);
            dirs.push(CacheDir { bytes: disk_bytes(&path), path, vault: vault.clone(), last_used });
        }
    }
    Ok(dirs)
}

pub(super) fn is_in_use(dir: &CacheDir) -> bool {
    !matches!(FileLock::try_existing(&dir.path, Mode::Exclusive), Ok(Some(_)))
}

/// Removes a directory unless a run has it mounted; true if it was removed.
pub(super) fn evict(cache_dir: &Path, dir: &CacheDir) -> std::io::Result<bool> {
    let aside = cache_dir.join("dirs").join(format!(".old-{}", random::suffix()?));
    {
        let Some(_alone) = FileLock::try_existing(&dir.path, Mode::Exclusive)? else { return Ok(false) };
        avfs_types::pause::point("evict-dir");
        std::fs::rename(&dir.path, &aside)?;
    }
    remove_tree(&aside)?;
    if let Some(home) = dir.path.parent() {
        // Fails if the vault has other directories; then it stays.
        let _ = std::fs::remove_dir(home);
    }
    Ok(true)
}

/// Unfinished evictions.
pub(super) fn unfinished(cache_dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let named = entries(&cache_dir.join("dirs"))?.into_iter();
    Ok(named.filter(|(name, _)| name.starts_with(".old-")).map(|(_, path)| path).collect())
}
