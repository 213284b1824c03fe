//! The write-ahead log (WAL) as a file: its length, and whether it is synced to disk.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::connect::sibling;
use crate::backend::{BackendError, Result};

/// Whether a sync has failed. The kernel reports a failed write once and then forgets it: a sync that succeeds
/// afterwards proves nothing, so from then on no commit is acknowledged and no connection is used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(Arc<AtomicBool>);

impl Unsynced {
    /// Checks whether an SQLite error is a failed sync.
    pub(crate) fn hear(&self, error: &rusqlite::Error) {
        use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
        let code = error.sqlite_error().map(|error| error.extended_code);
        if code.is_some_and(|code| [SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC].contains(&code)) {
            self.0.store(true, Ordering::Release);
        }
    }

    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(BackendError::io("sync", path, rustix::io::Errno::IO.into())),
        }
    }
}

/// The numbers of syncs started and finished.
#[derive(Debug, Default)]
struct Syncs {
    begun: u64,
    /// The last sync that succeeded.
    done: u64,
    is_busy: bool,
    /// Threads waiting for the sync in progress.
    waiting: usize,
}

/// The WAL of one vault file.
#[derive(Debug)]
pub(crate) struct Log {
    vault: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    /// Its pages after the last commit of this process.
    pages: AtomicI32,
    syncs: Mutex<Syncs>,
    synced: Condvar,
    pub(crate) unsynced: Unsynced,
}

impl Log {
    pub(crate) fn of(vault: &Path, file: Option<File>) -> Self {
        Self {
            vault: vault.to_owned(),
            file: Mutex::new(file.map(Arc::new)),
            pages: AtomicI32::new(0),
            syncs: Mutex::default(),
            synced: Condvar::new(),
            unsynced: Unsynced::default(),
        }
    }

    pub(crate) fn pages(&self) -> i32 {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pages(&self, pages: i32) {
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// Opens the current WAL and returns its length: the process that last closed the vault may have removed the
    /// previous file.
    pub(crate) fn open(&self) -> std::io::Result<(Arc<File>, u64)> {
        let mut kept = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = kept.as_ref() {
            let meta = log.metadata()?;
            if meta.nlink() > 0 {
                return Ok((Arc::clone(log), meta.len()));
            }
        }
        let log = Arc::new(open(&self.vault)?);
        let bytes = log.metadata()?.len();
        *kept = Some(Arc::clone(&log));
        Ok((log, bytes))
    }

    /// Whether the next transaction starts the WAL. Call it only while holding the turn to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.open().is_ok_and(|(_, bytes)| bytes == 0)
    }

    /// Waits until everything committed so far is on disk. Threads that wait at the same time share a sync: a sync
    /// that starts after a commit covers it.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut syncs = self.syncs();
        let seen = syncs.begun;
        while syncs.is_busy {
            syncs.waiting += 1;
            syncs = self.synced.wait(syncs).unwrap_or_else(PoisonError::into_inner);
            syncs.waiting -= 1;
            if syncs.done > seen {
                return self.unsynced.check(&self.vault);
            }
        }
        syncs.is_busy = true;
        syncs.begun += 1;
        let number = syncs.begun;
        drop(syncs);
        let synced = self.sync_file(|bytes| bytes > 0);
        let mut syncs = self.syncs();
        syncs.is_busy = false;
        if synced.is_ok() {
            syncs.done = number;
        }
        drop(syncs);
        self.synced.notify_all();
        synced?;
        // This includes failures seen by a background checkpoint in the meantime.
        self.unsynced.check(&self.vault)
    }

    fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a truncated WAL is empty on disk too.
    pub(crate) fn sync_cut(&self) -> Result<()> {
        self.sync_file(|bytes| bytes == 0)
    }

    /// Syncs the WAL if `wants_sync` accepts its length. A WAL that was checkpointed and truncated, or never
    /// started, contains nothing that could be lost.
    fn sync_file(&self, wants_sync: impl Fn(u64) -> bool) -> Result<()> {
        self.unsynced.check(&self.vault)?;
        let synced =
            self.open().and_then(|(log, bytes)| if wants_sync(bytes) { log.sync_data() } else { Ok(()) });
        synced.map_err(|error| {
            self.unsynced.0.store(true, Ordering::Release);
            // The vault itself was deleted since the commit.
            let gone = error.kind() == std::io::ErrorKind::NotFound;
            let path = if gone { self.vault.clone() } else { sibling(&self.vault, "-wal") };
            BackendError::io("sync", &path, error)
        })
    }
}

/// Opens the WAL of a vault file without following a symlink and without blocking.
pub(crate) fn open(vault: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags.bits().cast_signed());
    options.open(sibling(vault, "-wal"))
}

/// Whether an open file still has a name.
pub(crate) fn is_named(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_sync_and_its_failure() {
        let dir = tempfile::tempdir().unwrap();
        let vault = dir.path().join("vault.db");
        std::fs::write(sibling(&vault, "-wal"), "log").unwrap();
        let log = Log::of(&vault, None);
        log.syncs().is_busy = true;
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| log.sync())).collect();
            while log.syncs().waiting < 8 {
                std::thread::yield_now();
            }
            // The sync in progress started before these commits, so it does not cover them.
            log.syncs().is_busy = false;
            log.synced.notify_all();
            for thread in waiting {
                thread.join().unwrap().unwrap();
            }
        });
        let begun = log.syncs().begun;
        assert_eq!(begun, 1);
        log.unsynced.0.store(true, Ordering::Release);
        assert!(log.sync().is_err());
    }
}
