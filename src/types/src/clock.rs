//! The time, injected: nothing else in the library reads the machine's clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 in UTC, as stored in a vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Nanoseconds in one second.
    pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

    /// The time `seconds` later, or earlier if negative; saturates at the ends of the range.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(Self::NANOS_PER_SECOND)))
    }
}

/// A time in the kernel's form: whole seconds, and nanoseconds that always count forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds after `seconds`: 0 to 999,999,999.
    pub nanos: u32,
}

impl FileTime {
    /// Converts nanoseconds since 1970.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Self {
        let seconds = nanos.div_euclid(1_000_000_000);
        let rest = nanos.rem_euclid(1_000_000_000);
        Self { seconds, nanos: u32::try_from(rest).unwrap_or(0) }
    }

    /// Nanoseconds since 1970, clamped to the range of 64 bits (the years 1677 to 2262).
    #[must_use]
    pub fn saturating_nanos(self) -> i64 {
        self.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos))
    }
}

/// The time as RFC 3339 in UTC.
#[must_use]
pub fn time_text(at: Timestamp) -> String {
    time_of_file(FileTime::from_nanos(at.0))
}

/// Parses the text of [`time_text`].
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let stamp: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(stamp.as_nanosecond()).ok().map(Timestamp)
}

/// The time as RFC 3339 in UTC, or as `@` and seconds since 1970 outside of the calendar's range.
#[must_use]
pub fn time_of_file(time: FileTime) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    match jiff::Timestamp::new(time.seconds, nanos) {
        Ok(stamp) => stamp.to_string(),
        Err(_) => format!("@{}.{:09}", time.seconds, time.nanos),
    }
}

/// A duration in milliseconds, rounded to microseconds, as in results.
#[must_use]
pub fn millis(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// A source of the current time. Code takes a clock as an argument, so that tests control the time.
pub trait Clock: Send + Sync {
    /// The current time.
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

/// A clock that advances one microsecond with each call, so that consecutive records stay in order.
#[derive(Debug)]
pub struct SteppingClock(std::sync::atomic::AtomicI64);

impl SteppingClock {
    /// Starts at `at`; each call of [`Clock::now`] is one microsecond later than the one before.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_nanoseconds() {
        assert_eq!(time_text(Timestamp(1_500_000_000)), "1970-01-01T00:00:01.5Z");
        let far = FileTime { seconds: i64::MAX, nanos: 1 };
        assert_eq!(time_of_file(far), "@9223372036854775807.000000001");
    }
}
