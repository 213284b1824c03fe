//! Counts the bytes written to a cache since it was last measured. Adding to the count costs one small file; measuring
//! the cache again would cost a walk over every entry.
//!
//! ```text
//! CACHE/account    the size and the limit at the last measurement, and the bytes written since
//! CACHE/checked    empty; its mtime is the time of the last measurement
//! ```
//!
//! The account only decides when the cache is measured: a lost or wrong account costs one measurement.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::make;

const FORMAT: &str = "avfs-account 1";
/// Timeout for the lock on the account.
const PATIENCE: Duration = Duration::from_secs(5);
/// A cache that stays above its limit is measured again once 1/16 of the limit has been written.
const RETRY_PART: u64 = 16;

/// Counts the bytes written to a cache between two measurements.
#[derive(Clone, Debug)]
pub struct Account {
    dir: PathBuf,
    /// Whether this process has written to the cache.
    wrote: Arc<AtomicBool>,
    /// Whether this process has found the disk full.
    disk_full: Arc<AtomicBool>,
}

/// The content of an account file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Balance {
    measured: u64,
    limit: u64,
    written: u64,
}

/// A measurement in progress.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Bytes written when the measurement started.
    written: u64,
}

impl Account {
    pub(crate) fn new(cache_dir: &Path) -> Self {
        Self { dir: cache_dir.to_owned(), wrote: Arc::default(), disk_full: Arc::default() }
    }

    fn file(&self) -> PathBuf {
        self.dir.join("account")
    }

    fn checked(&self) -> PathBuf {
        self.dir.join("checked")
    }

    /// Adds written bytes. A failure to update the account is ignored: the next measurement corrects it.
    pub fn add(&self, bytes: u64) {
        self.wrote.store(true, Ordering::Relaxed);
        // An unreadable account stays unreadable, since the earlier total is unknown: it makes the next caller measure.
        let added = |before: Option<Balance>| {
            before.map(|balance| Balance { written: balance.written.saturating_add(bytes), ..balance })
        };
        if let Err(error) = self.update(added) {
            tracing::debug!(%error, "cannot update the account of the cache");
        }
    }

    /// True if this process has written to the cache.
    #[must_use]
    pub fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }

    /// Records that the disk is full, so that the next cache maintenance frees space.
    pub fn note_disk_full(&self) {
        self.disk_full.store(true, Ordering::Relaxed);
    }

    /// Returns whether this process has found the disk full, and resets the flag.
    #[must_use]
    pub fn take_disk_full(&self) -> bool {
        self.disk_full.swap(false, Ordering::Relaxed)
    }

    /// True if the cache may be larger than `limit`.
    #[must_use]
    pub fn may_exceed(&self, limit: u64) -> bool {
        let Some(balance) = self.read() else { return true };
        let Balance { measured, limit: known, written } = balance;
        let retried = written > limit / RETRY_PART || known > limit;
        measured.saturating_add(written) > limit && retried
    }

    /// When the cache was last measured; `None` if it never was.
    #[must_use]
    pub fn measured_at(&self) -> Option<SystemTime> {
        std::fs::metadata(self.checked()).and_then(|meta| meta.modified()).ok()
    }

    /// Starts a measurement.
    #[must_use]
    pub fn begin(&self) -> Measurement {
        Measurement { written: self.read().unwrap_or_default().written }
    }

    /// Records a measured size, and the limit it was compared with.
    pub fn settle(&self, begun: Measurement, measured: u64, limit: u64) -> std::io::Result<()> {
        let settled = |before: Option<Balance>| {
            let written = before.unwrap_or_default().written.saturating_sub(begun.written);
            Some(Balance { measured, limit, written })
        };
        self.update(settled).map_err(std::io::Error::other)?;
        std::fs::write(self.checked(), "")
    }

    fn read(&self) -> Option<Balance> {
        parse(&std::fs::read_to_string(self.file()).ok()?)
    }

    /// Replaces the balance, unless `change` returns `None`.
    fn update(&self, change: impl FnOnce(Option<Balance>) -> Option<Balance>) -> Result<(), LockError> {
        let file = self.file();
        let failed = |source| LockError::Open { path: file.clone(), source };
        make::private_dirs(&self.dir).map_err(failed)?;
        let _turn = FileLock::acquire(&file, Mode::Exclusive, PATIENCE)?;
        let Some(Balance { measured, limit, written }) = change(self.read()) else { return Ok(()) };
        // The text has a fixed length, so that it can be written in place: ext4 flushes a truncated file to disk on
        // close, which would cost a millisecond in every run.
        let text = format!("{FORMAT}\nmeasured {measured:020}\nlimit {limit:020}\nwritten {written:020}\n");
        let mut account = std::fs::OpenOptions::new().write(true).open(&file).map_err(failed)?;
        account.write_all(text.as_bytes()).map_err(failed)
    }
}

fn parse(text: &str) -> Option<Balance> {
    let mut lines = text.lines();
    if lines.next()? != FORMAT {
        return None;
    }
    let mut number = |key: &str| lines.next()?.strip_prefix(key)?.parse().ok();
    Some(Balance { measured: number("measured ")?, limit: number("limit ")?, written: number("written ")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_measured_only_when_it_may_exceed_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::new(dir.path());
        assert!(account.may_exceed(1000), "never measured");
        assert!(!account.wrote());
        account.settle(account.begin(), 600, 1000).unwrap();
        assert!(!account.may_exceed(1000));
        account.add(400);
        assert!(!account.may_exceed(1000), "at the limit");
        account.add(1);
        assert!(account.may_exceed(1000) && account.wrote());
        assert!(!account.may_exceed(2000), "a higher limit");
    }

    #[test]
    fn bytes_written_during_a_measurement_count_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::new(dir.path());
        account.settle(account.begin(), 0, 1000).unwrap();
        account.add(70);
        let begun = account.begin();
        account.add(300);
        account.settle(begun, 800, 1000).unwrap();
        assert_eq!(account.read(), Some(Balance { measured: 800, limit: 1000, written: 300 }));
        assert!(account.may_exceed(1000));
    }

    #[test]
    fn a_cache_that_stays_above_its_limit_is_not_measured_after_each_run() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::new(dir.path());
        account.settle(account.begin(), 5000, 1600).unwrap();
        account.add(100);
        assert!(!account.may_exceed(1600));
        account.add(1);
        assert!(account.may_exceed(1600));
        account.settle(account.begin(), 1500, 1600).unwrap();
        assert!(account.may_exceed(800), "a lower limit applies immediately");
    }

    #[test]
    fn an_unreadable_account_causes_a_measurement() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::new(dir.path());
        std::fs::write(account.file(), "avfs-account 1\nmeasured x\n").unwrap();
        account.add(1);
        assert!(account.may_exceed(u64::MAX));
    }
}
