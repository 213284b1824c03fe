//! Resource limits of a command, and the mechanisms that enforce them.
//!
//! Values only: nothing here sets a limit.

use std::fmt;
use std::str::FromStr;

use avfs_types::{UnitError, show_bytes_size, words};

/// No program starts with less memory.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;

words!(
    /// The limited resource.
    LimitKind, "limit", {
        Memory = "memory",
        Cpus = "cpus",
        Pids = "pids",
        /// All bytes written.
        Disk = "disk",
        /// The number of created files.
        Files = "files",
        /// The size of one file.
        FileSize = "file_size",
    }
);

words!(
    /// The mechanism that enforces a limit.
    Mechanism, "mechanism", {
        Cgroup2 = "cgroup2",
        Cgroup1 = "cgroup1",
        Rlimit = "rlimit",
        /// `pid_max` of the pid namespace.
        PidMax = "pid_max",
        /// The size of a tmpfs.
        Tmpfs = "tmpfs",
        Affinity = "affinity",
        /// The supervisor polls the usage, and kills the command.
        Watch = "watch",
    }
);

/// Processors, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(pub u64);

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:03}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl FromStr for Cpus {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Cpus(text.chars().take(40).collect());
        let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(rest) || rest.len() > 3 {
            return Err(bad());
        }
        let thousandths: u64 = format!("{rest:0<3}").parse().map_err(|_| bad())?;
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let cpus = whole.checked_mul(1000).and_then(|it| it.checked_add(thousandths)).ok_or_else(bad)?;
        if cpus == 0 { Err(bad()) } else { Ok(Self(cpus)) }
    }
}

/// A number of processors, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit(pub Option<Cpus>);

impl FromStr for CpuLimit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|cpus| Self(Some(cpus))) }
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cpus) => cpus.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// The limits of one run; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory: Option<u64>,
    pub cpus: Option<Cpus>,
    pub pids: Option<u64>,
    pub disk: Option<u64>,
    pub files: Option<u64>,
    pub file_size: Option<u64>,
}

impl Limits {
    /// All limits that are set.
    pub fn set(&self) -> impl Iterator<Item = (LimitKind, u64)> {
        let Self { memory, cpus, pids, disk, files, file_size } = *self;
        [
            (LimitKind::Memory, memory),
            (LimitKind::Cpus, cpus.map(|cpus| cpus.0)),
            (LimitKind::Pids, pids),
            (LimitKind::Disk, disk),
            (LimitKind::Files, files),
            (LimitKind::FileSize, file_size),
        ]
        .into_iter()
        .filter_map(|(kind, value)| Some((kind, value?)))
    }
}

impl Limits {
    /// The value of one limit; processors in thousandths.
    #[must_use]
    pub fn get(&self, kind: LimitKind) -> Option<u64> {
        self.set().find(|(set, _)| *set == kind).map(|(_, value)| value)
    }

    /// Returns the limits with one of them replaced.
    #[must_use]
    pub fn with(mut self, kind: LimitKind, value: Option<u64>) -> Self {
        match kind {
            LimitKind::Memory => self.memory = value,
            LimitKind::Cpus => self.cpus = value.map(Cpus),
            LimitKind::Pids => self.pids = value,
            LimitKind::Disk => self.disk = value,
            LimitKind::Files => self.files = value,
            LimitKind::FileSize => self.file_size = value,
        }
        self
    }

    /// Returns the lower value of each limit in `self` and `max`.
    #[must_use]
    pub fn at_most(&self, max: &Self) -> Self {
        max.set().fold(*self, |limits, (kind, max)| {
            let lower = limits.get(kind).map_or(max, |value| value.min(max));
            limits.with(kind, Some(lower))
        })
    }

    /// The maximum size of a tmpfs of the command.
    #[must_use]
    pub fn tmpfs_bytes(&self) -> Option<u64> {
        [self.memory, self.disk].into_iter().flatten().min()
    }
}

impl LimitKind {
    /// The option that sets the limit, without its dashes.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::FileSize => "file-size",
            Self::Memory | Self::Cpus | Self::Pids | Self::Disk | Self::Files => self.word(),
        }
    }

    /// Describes how a command exceeded the limit.
    #[must_use]
    pub fn exceeded(self, value: u64) -> String {
        let value = self.show(value);
        let what = match self {
            Self::Memory => format!("used more than {value} of memory"),
            Self::Cpus => format!("used more than {value} processors"),
            Self::Pids => format!("had more than {value} processes"),
            Self::Disk => format!("wrote more than {value}"),
            Self::Files => format!("created more than {value} files"),
            Self::FileSize => format!("wrote a file larger than {value}"),
        };
        format!("{what} (--{})", self.option())
    }

    /// A value of the limit, for people.
    #[must_use]
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Memory | Self::Disk | Self::FileSize => show_bytes_size(value).to_string(),
            Self::Cpus => Cpus(value).to_string(),
            Self::Pids | Self::Files => value.to_string(),
        }
    }
}

/// An enforced limit, and its mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnforcedLimit {
    pub kind: LimitKind,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
    pub mechanism: Mechanism,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, cpus, shown) in [("2", 2000, "2"), ("0.5", 500, "0.5"), ("1.250", 1250, "1.25")] {
            assert_eq!(text.parse(), Ok(Cpus(cpus)), "{text}");
            assert_eq!(Cpus(cpus).to_string(), shown);
        }
        for bad in ["", "0", "0.0", ".5", "1.", "-1", "1.2345", "x", "99999999999999999999"] {
            assert!(bad.parse::<Cpus>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!("none".parse(), Ok(CpuLimit(None)));
    }

    #[test]
    fn the_lower_limit_applies() {
        let asked = Limits { memory: Some(10), pids: Some(3), cpus: Some(Cpus(500)), ..Limits::default() };
        let max = Limits { memory: Some(5), pids: Some(7), disk: Some(9), ..Limits::default() };
        let expected = Limits {
            memory: Some(5),
            pids: Some(3),
            cpus: Some(Cpus(500)),
            disk: Some(9),
            ..Limits::default()
        };
        assert_eq!(asked.at_most(&max), expected);
        assert_eq!(max.at_most(&asked), expected);
        assert_eq!(asked.at_most(&Limits::default()), asked);
        assert_eq!(expected.tmpfs_bytes(), Some(5));
        for kind in LimitKind::ALL {
            assert_eq!(Limits::default().with(*kind, Some(8)).get(*kind), Some(8));
            assert_eq!(expected.with(*kind, None).get(*kind), None);
        }
    }

    #[test]
    fn exceeded_limits_name_their_option() {
        assert_eq!(LimitKind::Memory.exceeded(512 << 20), "used more than 512.0 MiB of memory (--memory)");
        assert_eq!(LimitKind::FileSize.exceeded(1), "wrote a file larger than 1 B (--file-size)");
    }

    #[test]
    fn only_limits_that_are_set_are_listed() {
        let limits = Limits { pids: Some(5), cpus: Some(Cpus(1500)), ..Limits::default() };
        let set: Vec<_> = limits.set().map(|(kind, value)| (kind.word(), kind.show(value))).collect();
        assert_eq!(set, [("cpus", "1.5".to_owned()), ("pids", "5".to_owned())]);
    }
}
