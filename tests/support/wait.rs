//! Waiting for something that must come: as long as it takes on a loaded machine, and no longer than a test may hang.

use std::time::{Duration, Instant};

/// Nothing takes this long; what does hangs, and its test should say so.
const PATIENCE: Duration = Duration::from_secs(300);

/// Looks until there is something to see; `None` if it never comes.
pub fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= give_up_at {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a condition that must come true.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(until(|| condition().then_some(())).is_some(), "waited in vain: {what}");
}
