//! Reproducible runs: a fixed clock, host name, umask and environment.
//!
//! Not fixed: the order of readdir, process ids, the content of /proc, addresses, the number of processors, and the
//! time that statically linked programs see.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use avfs_types::clock::FileTime;
use avfs_types::{UnitError, words};

use crate::environment::Environment;
use crate::request::ExecutionRequest;

words!(
    /// Whether a run is reproducible.
    Reproducible, "reproducible mode", {
        Off = "off",
        On = "on",
    }
);

words!(
    /// The reach of a fixed clock.
    ClockHeld, "clock reach", {
        /// The times of files, and programs that read SOURCE_DATE_EPOCH.
        Files = "files",
        /// Also the time that dynamically linked programs see.
        Programs = "files+programs",
    }
);

/// The host name and the umask of a reproducible run.
pub const HOSTNAME: &str = "avfs";
pub const UMASK: u32 = 0o022;
/// The variable from which tools read a fixed time.
pub const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Set for every reproducible run, in addition to [`EPOCH_VARIABLE`].
const SEED: [(&str, &str); 5] = [
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("TZ", "UTC"),
    ("PYTHONHASHSEED", "0"),
    ("PERL_HASH_SEED", "0"),
];

/// Where libfaketime is installed: Debian and Ubuntu, Fedora, Arch, and local builds.
const FAKETIME_DIRS: [&str; 4] = [
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/faketime",
    #[cfg(not(target_arch = "aarch64"))]
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib64/faketime",
    "/usr/lib/faketime",
    "/usr/local/lib/faketime",
];
/// The variant for threaded programs, which works for all programs.
const FAKETIME_LIBRARY: &str = "libfaketimeMT.so.1";
const PRELOAD: &str = "LD_PRELOAD";

/// The time at which the clock of a run is frozen, in whole seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedClock(u32);

impl FixedClock {
    /// 1980-01-01T00:00:00Z: the earliest time that every archive format can represent.
    pub const DEFAULT: Self = Self(315_532_800);

    #[must_use]
    pub fn time(self) -> FileTime {
        FileTime { seconds: i64::from(self.0), nanos: 0 }
    }

    #[must_use]
    pub fn epoch(self) -> String {
        self.0.to_string()
    }
}

impl FromStr for FixedClock {
    type Err = UnitError;

    /// RFC 3339, or `@` and seconds since 1970.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let seconds = match text.strip_prefix('@') {
            Some(seconds) => seconds.parse().ok(),
            None => {
                let stamp = text.parse::<jiff::Timestamp>().ok().filter(|it| it.subsec_nanosecond() == 0);
                stamp.and_then(|stamp| u32::try_from(stamp.as_second()).ok())
            }
        };
        seconds.map(Self).ok_or_else(|| UnitError::Clock(text.chars().take(40).collect()))
    }
}

impl fmt::Display for FixedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(i64::from(self.0)) {
            Ok(stamp) => write!(f, "{stamp}"),
            Err(_) => write!(f, "@{}", self.0),
        }
    }
}

/// The variables that a run gets for its fixed environment and clock.
#[must_use]
pub fn seed(reproducible: Reproducible, clock: Option<FixedClock>) -> Vec<(OsString, OsString)> {
    let fixed = match reproducible {
        Reproducible::Off => &[][..],
        Reproducible::On => &SEED,
    };
    let fixed = fixed.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let epoch = clock.map(|clock| (OsString::from(EPOCH_VARIABLE), OsString::from(clock.epoch())));
    fixed.chain(epoch).collect()
}

/// The reach of a request's clock on this host.
#[must_use]
pub fn clock_held(request: &ExecutionRequest) -> Option<ClockHeld> {
    request.clock?;
    Some(match preload(&request.environment) {
        Some(_) => ClockHeld::Programs,
        None => ClockHeld::Files,
    })
}

/// Adds the variables of libfaketime, if the host has it and the request does not set `LD_PRELOAD`.
#[must_use]
pub fn with_clock(
    mut variables: Vec<(OsString, OsString)>,
    request: &ExecutionRequest,
) -> Vec<(OsString, OsString)> {
    if let (Some(clock), Some(library)) = (request.clock, preload(&request.environment)) {
        variables.push((PRELOAD.into(), library.into()));
        let own = [
            // Seconds since 1970: a date would be interpreted in the time zone of the command.
            ("FAKETIME_FMT", "%s".to_owned()),
            ("FAKETIME", clock.epoch()),
            // Files already have fixed times. The monotonic clock stays real so that timers expire: those of Node.js,
            // for example, use it.
            ("NO_FAKE_STAT", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        variables.extend(own.map(|(name, value)| (name.into(), value.into())));
    }
    variables
}

fn preload(environment: &Environment) -> Option<PathBuf> {
    if environment.get(PRELOAD).is_some() {
        return None;
    }
    FAKETIME_DIRS.iter().map(|dir| Path::new(dir).join(FAKETIME_LIBRARY)).find(|library| library.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rfc_3339_or_seconds() {
        for (text, shown) in [
            ("1980-01-01T00:00:00Z", "1980-01-01T00:00:00Z"),
            ("@315532800", "1980-01-01T00:00:00Z"),
            ("2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00Z"),
            ("@0", "1970-01-01T00:00:00Z"),
        ] {
            let clock: FixedClock = text.parse().unwrap();
            assert_eq!(clock.to_string(), shown);
            assert_eq!(clock.to_string().parse(), Ok(clock));
        }
        assert_eq!("1980-01-01T00:00:00Z".parse(), Ok(FixedClock::DEFAULT));
        for bad in ["", "now", "@", "@-1", "@4294967296", "1969-12-31T23:59:59Z", "2026-03-01T12:00:00.5Z"] {
            assert!(bad.parse::<FixedClock>().is_err(), "{bad} was accepted");
        }
    }
}
