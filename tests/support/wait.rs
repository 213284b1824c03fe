//! Waits for an expected event: long enough for a loaded machine, and no longer than a test may hang.

use std::time::{Duration, Instant};

/// Longer than any operation takes; after it the test fails as hung.
const PATIENCE: Duration = Duration::from_secs(300);

/// Polls until there is a result; `None` after the timeout.
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

/// Waits for a condition that must become true.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(until(|| condition().then_some(())).is_some(), "timed out: {what}");
}
