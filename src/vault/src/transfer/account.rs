//! How much was written to a cache since somebody last looked at all of it: adding up costs one small file, walking
//! the cache would cost a look at every entry.
//!
//! ```text
//! CACHE/account    what was there when it was last measured, the limit then, and what was written since
//! CACHE/checked    empty; its time is that of the last measurement
//! ```
//!
//! The account decides when the cache is measured, nothing else: an account that is lost or wrong costs a
//! measurement.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::make;

const FORMAT: &str = "avfs-account 1";
/// How long to wait for others who write the account.
const PATIENCE: Duration = Duration::from_secs(5);
/// A cache that cannot be brought within its limit is measured again after this part of the limit was written.
const RETRY_PART: u64 = 16;

/// Counts what is written to a cache between two measurements.
#[derive(Clone, Debug)]
pub struct Account {
    dir: PathBuf,
    /// Whether this process has written to the cache.
    wrote: Arc<AtomicBool>,
    /// Whether this process has found the disk full.
    disk_full: Arc<AtomicBool>,
}

/// What an account says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Balance {
    measured: u64,
    limit: u64,
    written: u64,
}

/// A measurement that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// What had been written when it began.
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

    /// Adds what was written. An account that cannot be written is no reason to fail: the next measurement corrects it.
    pub fn add(&self, bytes: u64) {
        self.wrote.store(true, Ordering::Relaxed);
        // What was there before an account that cannot be read is not known: the next look at it measures the cache.
        let added = |before: Option<Balance>| {
            before.map(|balance| Balance { written: balance.written.saturating_add(bytes), ..balance })
        };
        if let Err(error) = self.update(added) {
            tracing::debug!(%error, "the account of the cache was not written");
        }
    }

    /// True if this process has written to the cache.
    #[must_use]
    pub fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }

    /// Notes that the disk is full: whoever looks after the cache next makes room.
    pub fn note_disk_full(&self) {
        self.disk_full.store(true, Ordering::Relaxed);
    }

    /// True, once, if this process has found the disk full.
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

    /// Begins a measurement.
    #[must_use]
    pub fn begin(&self) -> Measurement {
        Measurement { written: self.read().unwrap_or_default().written }
    }

    /// Writes down what was measured, and the limit that it was held to.
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

    /// Replaces the balance, unless nothing is to be written.
    fn update(&self, change: impl FnOnce(Option<Balance>) -> Option<Balance>) -> Result<(), LockError> {
        let file = self.file();
        let failed = |source| LockError::Open { path: file.clone(), source };
        make::private_dirs(&self.dir).map_err(failed)?;
        let _turn = FileLock::acquire(&file, Mode::Exclusive, PATIENCE)?;
        let Some(Balance { measured, limit, written }) = change(self.read()) else { return Ok(()) };
        // Always of one length, so that it can be written in place: ext4 writes a file that was truncated to the disk
        // when it is closed, which takes a millisecond of every run.
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
    fn a_cache_is_measured_when_it_may_be_too_large_and_not_before() {
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
    fn what_is_written_during_a_measurement_counts_after_it() {
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
    fn a_cache_in_use_that_stays_too_large_is_not_measured_after_each_run() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::new(dir.path());
        account.settle(account.begin(), 5000, 1600).unwrap();
        account.add(100);
        assert!(!account.may_exceed(1600));
        account.add(1);
        assert!(account.may_exceed(1600));
        account.settle(account.begin(), 1500, 1600).unwrap();
        assert!(account.may_exceed(800), "a lower limit holds at once");
    }

    #[test]
    fn an_account_that_cannot_be_read_leads_to_a_measurement() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::new(dir.path());
        std::fs::write(account.file(), "avfs-account 1\nmeasured x\n").unwrap();
        account.add(1);
        assert!(account.may_exceed(u64::MAX));
    }
}
