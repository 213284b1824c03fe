//! The values a key may have, and how they are read and shown.

use std::fmt;
use std::str::FromStr;

use crate::runtime::Span;

/// How long something may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// For ever.
    None,
    Millis(u64),
}

impl FromStr for TimeLimit {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(number) = text.strip_suffix("ms") {
            return number.parse().map(Self::Millis).map_err(|_| ());
        }
        let Span(seconds) = text.parse().map_err(|_| ())?;
        let millis = u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
        millis.map(Self::Millis).ok_or(())
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Millis(millis) if millis.is_multiple_of(1000) => write!(f, "{}s", millis / 1000),
            Self::Millis(millis) => write!(f, "{millis}ms"),
        }
    }
}

/// What of the network a run sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Net {
    /// Nothing but loopback.
    None,
    Host,
    /// These domains.
    Allow(Vec<String>),
}

impl FromStr for Net {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_domain = |name: &str| {
            let known = |b: u8| b.is_ascii_alphanumeric() || b"-.*".contains(&b);
            !name.is_empty() && name.bytes().all(known)
        };
        match (text, text.strip_prefix("allow=")) {
            ("none", _) => Ok(Self::None),
            ("host", _) => Ok(Self::Host),
            (_, Some(domains)) if domains.split(',').all(is_domain) => {
                Ok(Self::Allow(domains.split(',').map(str::to_owned).collect()))
            }
            (_, Some(_) | None) => Err(()),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Host => f.write_str("host"),
            Self::Allow(domains) => write!(f, "allow={}", domains.join(",")),
        }
    }
}

/// How closely a run is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Strict,
    Host,
}

impl FromStr for Profile {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "strict" => Ok(Self::Strict),
            "host" => Ok(Self::Host),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Host => "host",
        })
    }
}

/// A span in the largest unit that says it exactly.
pub fn span_text(Span(seconds): Span) -> String {
    for (unit, length) in [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60)] {
        if seconds != 0 && seconds % length == 0 {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

/// A pattern of gitignore that means something.
pub fn is_ignore_pattern(text: &str) -> bool {
    let meaningful = !text.trim().is_empty() && !text.contains('\n');
    meaningful && ignore::gitignore::GitignoreBuilder::new("").add_line(None, text).is_ok()
}

/// A name that an environment variable may have.
pub fn is_variable(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    text.bytes().next().is_some_and(first) && text.bytes().all(|b| first(b) || b.is_ascii_digit())
}

/// An absolute path, or one in the user's home.
pub fn is_absolute(text: &str) -> bool {
    is_path(text) && (text.starts_with('/') || text.starts_with("~/"))
}

/// A path that stays where it begins.
pub fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0') && text.split('/').all(|name| name != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_shown_alike() {
        for text in ["none", "300s", "1500ms"] {
            assert_eq!(text.parse::<TimeLimit>().unwrap().to_string(), text);
        }
        assert_eq!("5m".parse(), Ok(TimeLimit::Millis(300_000)));
        for bad in ["", "5", "ms", "-1s", "never"] {
            assert!(bad.parse::<TimeLimit>().is_err(), "{bad:?} was taken");
        }
        for text in ["none", "host", "allow=crates.io,*.example.org"] {
            assert_eq!(text.parse::<Net>().unwrap().to_string(), text);
        }
        for bad in ["", "all", "allow=", "allow=a,,b", "allow=a b"] {
            assert!(bad.parse::<Net>().is_err(), "{bad:?} was taken");
        }
        assert_eq!(span_text(Span(7 * 24 * 60 * 60)), "7d");
        assert_eq!(span_text(Span(90)), "90s");
        assert_eq!(span_text(Span(0)), "0s");
    }

    #[test]
    fn names_and_paths_are_checked() {
        assert!(is_variable("CARGO_HOME") && is_variable("_x1"));
        assert!(!is_variable("") && !is_variable("1X") && !is_variable("A=B") && !is_variable("A B"));
        assert!(is_path("target") && is_path("a/b") && !is_path("") && !is_path("../up"));
        assert!(is_absolute("/opt/x") && is_absolute("~/.cargo/registry") && !is_absolute("opt"));
        assert!(is_ignore_pattern("*.tmp") && !is_ignore_pattern(" ") && !is_ignore_pattern("a\nb"));
    }
}
