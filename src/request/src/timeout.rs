//! The timeout of a command.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use avfs_types::{Span, UnitError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionTimeout {
    None,
    Millis(u64),
}

impl ExecutionTimeout {
    pub const DEFAULT: Self = Self::Millis(300_000);

    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Millis(millis) => Some(Duration::from_millis(millis)),
        }
    }

    /// The shorter of the two timeouts.
    #[must_use]
    pub fn at_most(self, max: Self) -> Self {
        match (self, max) {
            (_, Self::None) => self,
            (Self::None, Self::Millis(_)) => max,
            (Self::Millis(asked), Self::Millis(max)) => Self::Millis(asked.min(max)),
        }
    }

    #[must_use]
    pub fn millis(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Millis(millis) => Some(millis),
        }
    }
}

/// `none`, or a duration with its unit; milliseconds too, since a timeout may be short.
impl FromStr for ExecutionTimeout {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "none" {
            return Ok(Self::None);
        }
        let bad = || UnitError::Span(text.chars().take(40).collect());
        if let Some(number) = text.strip_suffix("ms") {
            return number.parse().map(Self::Millis).map_err(|_| bad());
        }
        let Span(seconds) = text.parse()?;
        let millis = u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
        millis.map(Self::Millis).ok_or_else(bad)
    }
}

impl fmt::Display for ExecutionTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Millis(millis) if millis.is_multiple_of(1000) => write!(f, "{}s", millis / 1000),
            Self::Millis(millis) => write!(f, "{millis}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_round_trip_through_text() {
        for text in ["250ms", "120s", "none"] {
            assert_eq!(text.parse::<ExecutionTimeout>().unwrap().to_string(), text);
        }
        assert_eq!("2m".parse(), Ok(ExecutionTimeout::Millis(120_000)));
        let (short, long) = (ExecutionTimeout::Millis(1), ExecutionTimeout::Millis(2));
        assert_eq!((long.at_most(short), short.at_most(long)), (short, short));
        assert_eq!(ExecutionTimeout::None.at_most(long), long.at_most(ExecutionTimeout::None));
        assert!("5".parse::<ExecutionTimeout>().is_err() && "-1s".parse::<ExecutionTimeout>().is_err());
    }
}
