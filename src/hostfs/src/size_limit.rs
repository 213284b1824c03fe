//! Handles the shell's limit on file sizes (`ulimit -f`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::SIGXFSZ;

static MET: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns exceeding the limit into an ordinary error that can be reported; by default the signal would kill the
/// process silently. The signal is handled, not ignored: an executed program inherits no handlers, so it gets the
/// original disposition.
pub fn handle_sigxfsz() {
    // On failure the disposition stays unchanged.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::clone(MET.get_or_init(Arc::default)));
}

/// Whether the limit was hit.
#[must_use]
pub fn met() -> bool {
    MET.get().is_some_and(|met| met.load(Ordering::SeqCst))
}
