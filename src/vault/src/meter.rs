//! How far long work has come, for somebody else to show; and a way to ask it to stop.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Somebody who looks on while others wait for long work.
pub trait Onlooker: std::fmt::Debug + Send + Sync {
    /// From now on somebody waits.
    fn wait_begins(&self);
    /// Called often, by the threads that do the work; also while nobody waits.
    fn looks(&self, meter: &Meter);
    /// Nobody waits any more.
    fn wait_ends(&self, meter: &Meter);
    /// Something that is worth knowing before the work begins.
    fn announces(&self, lines: &[String]);
}

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
    /// The signal that asked to stop; 0 for none.
    signal: AtomicI32,
    onlooker: Option<Box<dyn Onlooker>>,
}

impl Meter {
    /// A meter that somebody looks at.
    #[must_use]
    pub fn watched(onlooker: Box<dyn Onlooker>) -> Self {
        Self { onlooker: Some(onlooker), ..Self::default() }
    }

    /// Does work that somebody waits for.
    pub fn waited_for<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Ends the wait also if the work panics.
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

    /// Lets whoever looks on look now.
    pub fn look(&self) {
        if let Some(onlooker) = &self.onlooker {
            onlooker.looks(self);
        }
    }

    /// Tells whoever looks on something at once.
    pub fn announce(&self, lines: &[String]) {
        if let Some(onlooker) = &self.onlooker {
            onlooker.announces(lines);
        }
    }

    /// Begins to count anew, for other work.
    pub fn restart(&self) {
        for counter in [&self.files, &self.bytes, &self.files_total, &self.bytes_total] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// As [`Self::stop`], because of a signal.
    pub fn stop_for(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
        self.stop();
    }

    /// The signal that asked to stop, if one did.
    #[must_use]
    pub fn stopped_by(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    pub(crate) fn add(&self, files: u64, bytes: u64) {
        avfs_types::pause::point("work");
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.look();
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
