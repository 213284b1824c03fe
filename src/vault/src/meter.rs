//! How far long work has come, for somebody else to show; and a way to ask it to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of a long operation, shared with the thread that shows it or stops it.
#[derive(Debug, Default)]
pub struct Meter {
    /// Files that are done.
    pub files: AtomicU64,
    /// Bytes that are done.
    pub bytes: AtomicU64,
    /// 0 while it is not known.
    pub files_total: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    stop: AtomicBool,
}

impl Meter {
    pub(crate) fn add(&self, files: u64, bytes: u64) {
        avfs_types::pause::point("work");
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Ordering::Relaxed);
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }

    /// Asks the work to clean up and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        avfs_types::pause::point("stopped");
    }

    /// True once somebody asked the operation to stop.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
