//! Sizes and durations as people write them, parsed once at the edge.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;

use crate::clock::Timestamp;
use crate::diagnose::Diagnose;
use crate::zone::Zone;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// A text that is not the expected quantity. Holds the first 40 characters of the text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnitError {
    /// Not a size in bytes.
    #[error("invalid size {0:?}: expected a number, or a size such as 500K or 20MiB")]
    Size(String),
    /// A limit of zero.
    #[error("invalid limit {0:?}: expected more than 0, or none for no limit")]
    Nothing(String),
    /// Not a number of processors.
    #[error("invalid number of processors {0:?}: expected at least 0.001, such as 2 or 0.5")]
    Cpus(String),
    /// Not a duration.
    #[error("invalid duration {0:?}: expected a number with a unit, such as 90s, 30m or 7d")]
    Span(String),
    /// Neither a duration nor a time.
    #[error("invalid time {0:?}: expected a duration or a time")]
    Since(String),
    /// Not a time since 1970 in whole seconds.
    #[error(
        "invalid time {0:?}: expected whole seconds since 1970, such as 2026-01-31T12:00:00Z or @1769860800"
    )]
    Clock(String),
}

impl Diagnose for UnitError {
    fn code(&self) -> &'static str {
        "value.invalid"
    }
}

/// Splits a number from the unit after it.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

/// A size in bytes: a plain number, or a number with K, M, G or T (powers of 1024; `KB` is 1000 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Size(text.chars().take(40).collect());
        let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(bad)
    }
}

/// A limit, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

impl FromStr for Limit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse()? {
            // In some kernel interfaces 0 means no limit.
            Size(0) => Err(UnitError::Nothing(text.to_owned())),
            Size(number) => Ok(Self(Some(number))),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// A duration in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub i64);

/// Uses the largest unit that represents the duration exactly.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seconds) = *self;
        for (unit, length) in [("d", SECONDS_PER_DAY), ("h", 60 * 60), ("m", 60)] {
            if seconds != 0 && seconds % length == 0 {
                return write!(f, "{}{unit}", seconds / length);
            }
        }
        write!(f, "{seconds}s")
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Span(text.chars().take(40).collect());
        let (number, unit) = number_and_unit(text).ok_or_else(bad)?;
        let factor = match unit {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 60 * 60,
            "d" => SECONDS_PER_DAY,
            "w" => 7 * SECONDS_PER_DAY,
            _ => return Err(bad()),
        };
        i64::try_from(number).ok().and_then(|n| n.checked_mul(factor)).map(Self).ok_or_else(bad)
    }
}

/// A point in the past: a duration before now, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// This long before now.
    Ago(Span),
    /// An instant.
    At(Timestamp),
    /// A time in the caller's time zone.
    Local(DateTime),
}

impl Since {
    /// The instant, given the current time and the caller's time zone. Fails for a local time outside of the range.
    pub fn at(self, now: Timestamp, zone: &Zone) -> Result<Timestamp, UnitError> {
        match self {
            Self::Ago(Span(seconds)) => Ok(now.plus_seconds(-seconds)),
            Self::At(at) => Ok(at),
            Self::Local(local) => zone.at(local).ok_or_else(|| UnitError::Since(local.to_string())),
        }
    }
}

impl FromStr for Since {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if let Ok(span) = text.parse::<Span>() {
            return Ok(Self::Ago(span));
        }
        let bad = || UnitError::Since(text.chars().take(40).collect());
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return i64::try_from(time.as_nanosecond())
                .map(|nanos| Self::At(Timestamp(nanos)))
                .map_err(|_| bad());
        }
        text.parse::<DateTime>().map(Self::Local).map_err(|_| bad())
    }
}

/// A size for people: `17 B`, `1.5 KiB`.
#[must_use]
pub fn show_bytes_size(bytes: u64) -> impl fmt::Display {
    struct Shown(u64);
    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
            if self.0 < 1024 {
                return f.pad(&format!("{} B", self.0));
            }
            let mut step = 0;
            // Tenths as integers: floats would lose digits of large sizes.
            let mut tenths = u128::from(self.0) * 10 / 1024;
            while tenths >= 10_240 && step + 1 < UNITS.len() {
                tenths /= 1024;
                step += 1;
            }
            f.pad(&format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[step]))
        }
    }
    Shown(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_in_their_largest_unit() {
        for (span, shown) in [(7 * SECONDS_PER_DAY, "7d"), (90, "90s"), (0, "0s"), (7200, "2h")] {
            assert_eq!(Span(span).to_string(), shown);
        }
    }

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("2K", 2048), ("1 MiB", 1 << 20), ("3GB", 3_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "-1", "1X", "K", "99999999999T"] {
            assert!(bad.parse::<Size>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!("none".parse(), Ok(Limit(None)));
        assert_eq!("1".parse(), Ok(Limit(Some(1))));
        for nothing in ["0", "00", "0K"] {
            assert_eq!(nothing.parse::<Limit>(), Err(UnitError::Nothing(nothing.to_owned())));
        }
    }

    #[test]
    fn durations_are_parsed_with_their_units() {
        assert_eq!("90s".parse(), Ok(Span(90)));
        assert_eq!("2w".parse(), Ok(Span(14 * SECONDS_PER_DAY)));
        for bad in ["", "7", "1y", "d", "-1d"] {
            assert!(bad.parse::<Span>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(Since::At(Timestamp(1_000_000_000))));
        let zone = Zone::ahead(2);
        let at = |text: &str| text.parse::<Since>().unwrap().at(Timestamp(5_000_000_000), &zone).unwrap();
        assert_eq!(at("1s"), Timestamp(4_000_000_000));
        assert_eq!(at("1970-01-01T02:00:03+02:00"), Timestamp(3_000_000_000));
        assert_eq!(at("1970-01-01 02:00:03"), Timestamp(3_000_000_000));
        assert_eq!(at("1970-01-02"), at("1970-01-01T22:00:00Z"));
        for bad in ["yesterday", "12:00", "1970-13-01", "9999-12-31T23:59:59Z"] {
            assert!(bad.parse::<Since>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        let shown = |bytes| show_bytes_size(bytes).to_string();
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1536), "1.5 KiB");
        assert_eq!(shown(10 << 30), "10.0 GiB");
        assert_eq!(shown(u64::MAX), "15.9 EiB");
    }
}
