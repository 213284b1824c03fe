//! Progress of a long operation, shown by an observer, and a way to cancel the operation.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Result, VaultError};

/// Entries that a loop passes before it looks for a signal.
pub const ENTRIES_PER_LOOK: u32 = 256;

/// An observer of a long operation.
pub trait Onlooker: std::fmt::Debug + Send + Sync {
    /// Called when a caller starts to wait.
    fn wait_begins(&self);
    /// Called often by the working threads, even if no caller waits.
    fn looks(&self, meter: &Meter);
    /// Called regularly by loops: looks for a signal.
    fn checks(&self, meter: &Meter) {
        self.looks(meter);
    }
    /// Called when the caller stops waiting.
    fn wait_ends(&self, meter: &Meter);
    /// Shows lines to the user immediately.
    fn announces(&self, lines: &[String]);
}

/// The text of an announcement for a number of files and bytes; `None` if they need none.
pub struct Announcement(pub Box<dyn Fn(u64, u64) -> Option<Vec<String>> + Send + Sync>);

impl std::fmt::Debug for Announcement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcement").finish_non_exhaustive()
    }
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
    /// Entries that a loop has passed.
    passed: AtomicU32,
    stop: AtomicBool,
    /// The signal that requested the stop, or 0.
    signal: AtomicI32,
    pending: Mutex<Option<Announcement>>,
    /// Of an operation that will know its size when it starts.
    expected: Mutex<Option<Announcement>>,
    announced: OnceLock<Vec<String>>,
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
                self.0.announce_if_due();
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

    /// Announces lines as soon as the counters of the current operation need it.
    pub fn announce_when_due(&self, announcement: Announcement) {
        *self.pending() = Some(announcement);
    }

    fn pending(&self) -> MutexGuard<'_, Option<Announcement>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines of the announcement, if the counters need it now.
    fn due(&self, pending: Option<&Announcement>) -> Option<Vec<String>> {
        let Announcement(lines) = pending?;
        lines(self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// True if the counters need an announcement that was not passed to the observer yet.
    #[must_use]
    pub fn is_announcement_due(&self) -> bool {
        self.due(self.pending().as_ref()).is_some()
    }

    /// Passes the announcement to the observer if the counters need it now; once.
    pub fn announce_if_due(&self) {
        let mut pending = self.pending();
        let Some(lines) = self.due(pending.as_ref()) else { return };
        *pending = None;
        drop(pending);
        self.announce(lines);
    }

    fn announce(&self, lines: Vec<String>) {
        let lines = self.announced.get_or_init(|| lines);
        if let Some(onlooker) = &self.onlooker {
            onlooker.announces(lines);
        }
    }

    /// Announces lines if the next operation that knows its size in advance needs it.
    pub fn announce_if_expected(&self, announcement: Announcement) {
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = Some(announcement);
    }

    /// The lines that were announced.
    #[must_use]
    pub fn announced(&self) -> Option<&[String]> {
        self.announced.get().map(Vec::as_slice)
    }

    /// Resets the counters for another operation, which has nothing to announce.
    pub fn restart(&self) {
        *self.pending() = None;
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.recount();
    }

    /// Resets the counters for another attempt of the operation.
    pub(crate) fn recount(&self) {
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
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lines) = expected.and_then(|Announcement(lines)| lines(files, bytes)) {
            self.announce(lines);
        }
    }

    /// Requests that the operation clean up and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        avfs_types::pause::point("stopped");
    }

    /// Fails if a stop was requested. Loops call this for each entry, so that they end soon.
    pub fn require_going(&self) -> Result<()> {
        if self.passed.fetch_add(1, Ordering::Relaxed) % ENTRIES_PER_LOOK == ENTRIES_PER_LOOK - 1 {
            avfs_types::pause::point("look");
            if let Some(onlooker) = &self.onlooker {
                onlooker.checks(self);
            }
        }
        match self.stopped() {
            true => Err(VaultError::Interrupted),
            false => Ok(()),
        }
    }

    /// True once a stop was requested.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
