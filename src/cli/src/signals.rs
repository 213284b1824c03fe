//! Counts termination signals. The caller, which drives the workers, decides what each means.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::error::EdgeError;

/// The number of termination requests: the first finishes running commands, the second kills them, the third
/// ends this process without waiting.
pub struct Asked {
    times: Arc<AtomicUsize>,
    handle: Handle,
}

impl Asked {
    pub fn watch() -> Result<Self, EdgeError> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(EdgeError::Signals)?;
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
        watching.map_err(EdgeError::Threads)?;
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
