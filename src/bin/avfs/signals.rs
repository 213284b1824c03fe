//! Signals: wishes to end, counted, of which who drives workers decides what each means; and a limit that is outlived.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};

use crate::error::EdgeError;

/// As a shell says of a program that ^C ended.
pub const INTERRUPTED: u8 = 130;

static FILE_SIZE_LIMIT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A file that grows beyond what a limit of the shell allows (ulimit -f) is an error like any other, which can be told;
/// the signal would end us without a word. Handled and not ignored, since that would be passed on to who is started.
pub fn outlive_file_size_limit() {
    // What cannot be had leaves things as they were.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::clone(FILE_SIZE_LIMIT.get_or_init(Arc::default)));
}

/// Whether a file was kept from growing.
pub fn met_file_size_limit() -> bool {
    FILE_SIZE_LIMIT.get().is_some_and(|met| met.load(Ordering::SeqCst))
}

/// How often somebody asked to end: the first time what runs is finished, the second time it is killed, the third
/// time nothing is waited for.
pub struct Asked {
    times: Arc<AtomicUsize>,
    handle: Handle,
}

impl Asked {
    pub fn watch() -> Result<Self, EdgeError> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(EdgeError::Signals)?;
        let (times, handle) = (Arc::new(AtomicUsize::new(0)), signals.handle());
        let count = Arc::clone(&times);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if count.fetch_add(1, Ordering::SeqCst) >= 2 {
                    // Nothing is left to try if the default action cannot be had.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        });
        Ok(Self { times, handle })
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
