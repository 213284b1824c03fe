//! Progress of a long operation, shown by an observer, and a way to cancel the operation.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// An observer of a long operation.
pub trait Onlooker: std::fmt::Debug + Send + Sync {
    /// Called when a caller starts to wait.
    fn wait_begins(&self);
    /// Called often by the working threads, even if no caller waits.
    fn looks(&self, meter: &Meter);
    /// Called when the caller stops waiting.
    fn wait_ends(&self, meter: &Meter);
    /// Shows lines to the user before the work starts.
    fn announces(&self, lines: &[String]);
}

/// The progress of a long operation, shared with the thread that shows or cancels it.
#[derive(Debug, Default)]
pub struct Meter {
    /// Files completed.
    pub files: AtomicU64,
    /// Bytes completed.
    pub bytes: AtomicU64,
    /// Total number of files; 0 if unknown.
    pub files_total: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    stop: AtomicBool,
    /// The signal that requested the stop, or 0.
    signal: AtomicI32,
    onlooker: Option<Box<dyn Onlooker>>,
}

impl Meter {
    /// A meter with an observer.
    #[must_use]
    pub fn watched(onlooker: Box<dyn Onlooker>) -> Self {
        Self { onlooker: Some(onlooker), ..Self::default() }
    }

    /// Runs work that a caller waits for.
    pub fn waited_for<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Ends the wait even if the work panics.
        struct Waits<'a>(&'a Meter);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                if let Some(onlooker) = &self.0.onlooker {
                    onlooker.wait_ends(self.0);
                }
            }
        }
        if let Some(onlooker) = &self.onlooker {
            onlooker.wait_begins();
        }
        let _waits = Waits(self);
        work()
    }

    /// Notifies the observer.
    pub fn look(&self) {
        if let Some(onlooker) = &self.onlooker {
            onlooker.looks(self);
        }
    }

    /// Passes lines to the observer immediately.
    pub fn announce(&self, lines: &[String]) {
        if let Some(onlooker) = &self.onlooker {
            onlooker.announces(lines);
        }
    }

    /// Resets the counters for another operation.
    pub fn restart(&self) {
        for counter in [&self.files, &self.bytes, &self.files_total, &self.bytes_total] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Like [`Self::stop`], because of a signal.
    pub fn stop_for(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
        self.stop();
    }

    /// The signal that requested the stop; `None` if it was not a signal.
    #[must_use]
    pub fn stopped_by(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Counts completed work.
    pub fn add(&self, files: u64, bytes: u64) {
        avfs_types::pause::point("work");
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.look();
    }

    pub(crate) fn expect(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Ordering::Relaxed);
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }

    /// Requests that the operation clean up and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        avfs_types::pause::point("stopped");
    }

    /// True once a stop was requested.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
