//! A limit of the shell on the size of files (`ulimit -f`), outlived.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::SIGXFSZ;

static MET: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A file that would grow beyond the limit is an error like any other, which can be told; the signal would end us without
/// a word. Handled and not ignored: who is executed inherits no handlers, and has it as it was.
pub fn handle_sigxfsz() {
    // What cannot be had leaves things as they were.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::clone(MET.get_or_init(Arc::default)));
}

/// Whether a file was kept from growing.
#[must_use]
pub fn met() -> bool {
    MET.get().is_some_and(|met| met.load(Ordering::SeqCst))
}
