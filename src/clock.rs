//! The time, injected: nothing else in the library asks the machine for it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 in UTC, as stored in a vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(Self::NANOS_PER_SECOND)))
    }
}

pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}

/// A clock that moves one microsecond at each look, so that records made one after the other stay in order.
#[derive(Debug)]
pub struct SteppingClock(std::sync::atomic::AtomicI64);

impl SteppingClock {
    #[must_use]
    pub fn starting_at(at: Timestamp) -> Self {
        Self(std::sync::atomic::AtomicI64::new(at.0))
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1_000, std::sync::atomic::Ordering::Relaxed))
    }
}
