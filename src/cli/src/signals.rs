//! Counts termination signals. The caller, which drives the workers, decides what each means.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use avfs_ops::WorkplaceError;

/// Signals that this process handles. When nothing handles them any more, they have their default effect again, which
/// the handlers of signal-hook would prevent.
pub struct Watched(());

/// The number of [`Watched`], whether it is 0, and the signals that were handled at some time.
static WATCHING: AtomicUsize = AtomicUsize::new(0);
static IS_UNWATCHED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static KNOWN: Mutex<Vec<i32>> = Mutex::new(Vec::new());

impl Watched {
    pub fn begin(signals: &[i32]) -> std::io::Result<Self> {
        WATCHING.fetch_add(1, Ordering::SeqCst);
        IS_UNWATCHED.store(false, Ordering::SeqCst);
        let watched = Self(());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in signals.iter().filter(|signal| !known.contains(signal)).copied().collect::<Vec<_>>() {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&IS_UNWATCHED))?;
            known.push(signal);
        }
        Ok(watched)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if WATCHING.fetch_sub(1, Ordering::SeqCst) == 1 {
            IS_UNWATCHED.store(true, Ordering::SeqCst);
        }
    }
}

/// The number of termination requests: the first finishes running commands, the second kills them, the third
/// ends this process without waiting.
pub struct Asked {
    times: Arc<AtomicUsize>,
    handle: Handle,
    _watched: Watched,
}

impl Asked {
    pub fn watch() -> Result<Self, WorkplaceError> {
        let watched = Watched::begin(&[SIGINT, SIGTERM]).map_err(WorkplaceError::Signals)?;
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(WorkplaceError::Signals)?;
        let (times, handle) = (Arc::new(AtomicUsize::new(0)), signals.handle());
        let count = Arc::clone(&times);
        let watching = std::thread::Builder::new().spawn(move || {
            for signal in signals.forever() {
                if count.fetch_add(1, Ordering::SeqCst) >= 2 {
                    // If the default action fails too, nothing is left to try.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                avfs_types::pause::point("asked");
            }
        });
        watching.map_err(WorkplaceError::Threads)?;
        Ok(Self { times, handle, _watched: watched })
    }

    pub fn times(&self) -> usize {
        self.times.load(Ordering::SeqCst)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.handle.close();
    }
}
