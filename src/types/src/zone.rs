//! Times in a time zone, as people read and write them.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::clock::{FileTime, Timestamp, time_of_file};

/// A time zone, passed in by the edge.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// The time zone of the process: `$TZ`, else `/etc/localtime`.
    #[must_use]
    pub fn system() -> Self {
        Self(TimeZone::system())
    }

    /// An instant as `2026-01-31 12:00:00` in this zone.
    #[must_use]
    pub fn show(&self, at: Timestamp) -> String {
        self.show_file_time(FileTime::from_nanos(at.0))
    }

    /// The time of a file as `2026-01-31 12:00:00` in this zone; `@SECONDS.NANOS` if it is outside of the calendar.
    #[must_use]
    pub fn show_file_time(&self, time: FileTime) -> String {
        match jiff::Timestamp::new(time.seconds, 0) {
            Ok(stamp) => stamp.to_zoned(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => time_of_file(time),
        }
    }

    /// The instant of a local time. A time that the clock skips or repeats is interpreted with the offset before the
    /// change.
    pub(super) fn at(&self, local: DateTime) -> Option<Timestamp> {
        let zoned = local.to_zoned(self.0.clone()).ok()?;
        i64::try_from(zoned.timestamp().as_nanosecond()).ok().map(Timestamp)
    }
}

#[cfg(test)]
impl Zone {
    /// A zone this many hours ahead of UTC.
    pub(super) fn ahead(hours: i8) -> Self {
        Self(jiff::tz::offset(hours).to_time_zone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_parsed_in_the_zone() {
        let zone = Zone::ahead(-5);
        let at = Timestamp(1_500_000_000);
        assert_eq!(zone.show(at), "1969-12-31 19:00:01");
        let read = zone.at(zone.show(at).parse().unwrap());
        assert_eq!(read, Some(Timestamp(1_000_000_000)), "to the second that is shown");
    }
}
