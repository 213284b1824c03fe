//! Settings in layers: defaults, the system file, the user's file, the bound directory's file, variables.
//!
//! Interprets the text of the files; `avfs-engine` finds and reads them. A key in a later layer overrides the same key
//! in an earlier one; lists are appended. The options of a command, which override all settings, are not handled here.

mod environment;
mod given;
mod parse;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use avfs_types::diagnose::Diagnose;
use avfs_types::{KeepCount, Limit, Span};

use crate::choices::{BaseChoice, CacheMode, GitIdentity, ScratchChoice, VaultPlace};
use crate::confinement::{Confinement, LandlockMode, NestedUserns, SeccompProfile};
use crate::extra::Profile;
use crate::limits::{CpuLimit, Limits};
use crate::net::NetMode;
use crate::preset::Preset;
use crate::timeout::ExecutionTimeout;

use given::Given;
use value::{is_absolute, is_ignore_pattern, is_path, is_preset, is_variable_pattern};

pub use avfs_types::toml_source::{Fault, Problem};
pub use environment::UnknownVariable;
#[cfg(test)]
pub(crate) use value::is_path as is_path_in_tests;
pub(crate) use value::is_variable;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Variable { name: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Setting<T> {
    const fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}

/// What a directory's file, which may come from an untrusted author, may do with a key.
enum DirectoryMay<T> {
    /// Set any value: the key affects only this workspace.
    Choose,
    /// Only tighten the user's value: true if the second value (the directory's) is at least as strict as the first
    /// (the user's).
    Tighten(fn(&T, &T) -> bool),
}

/// Declares every setting once: its field, key, type and default; its accepted values; and what a directory may do with
/// it.
macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident $key:literal: $type:ty = $default:expr, $kind:ident($($takes:expr),+), $may:expr;)+) => {
        /// All settings.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl Config {
            /// Every key, in the order of the documentation.
            pub const KEYS: &'static [&'static str] = &[$($key),+];

            /// Every key with its values.
            #[must_use]
            pub fn shown(&self) -> Vec<Shown> {
                vec![$(self.$field.shown($key)),+]
            }

            /// Sets the field of a key; lists are appended to.
            fn set<G: Given>(&mut self, given: &G) -> Result<(), G::Error> {
                match given.key() {
                    $($key => self.$field.lay(given.$kind($($takes),+)?),)+
                    _ => return Err(given.unread()),
                }
                Ok(())
            }

            /// Reverts the keys that a directory may not set this way, and returns them.
            fn hold_to(&mut self, own: Self) -> Vec<&'static str> {
                let mut refused = Vec::new();
                $(
                    let may: DirectoryMay<$type> = $may;
                    if let DirectoryMay::Tighten(is_tighter) = may
                        && !is_tighter(&own.$field, &self.$field)
                    {
                        self.$field = own.$field;
                        refused.push($key);
                    }
                )+
                refused
            }

            /// True if a directory's file may only tighten the user's value.
            #[must_use]
            pub fn can_only_tighten(key: &str) -> bool {
                match key {
                    $($key => {
                        let may: DirectoryMay<$type> = $may;
                        matches!(may, DirectoryMay::Tighten(_))
                    })+
                    _ => false,
                }
            }
        }
    };
}

use DirectoryMay::{Choose, Tighten};

const SIZE: &str = "a size such as 512MiB, or none";
const COUNT: &str = "a number, or none";

/// The default of `cache.max`.
const CACHE_BYTES_MAX: u64 = 10 << 30;
/// The default of `import.warn_files`.
const IMPORT_WARN_FILES: u64 = 100_000;
/// The default of `import.warn_bytes`.
const IMPORT_WARN_BYTES: u64 = 2 << 30;

settings! {
    /// Patterns of paths that are never versioned, in gitignore syntax.
    capture_exclude "capture.exclude": Vec<Setting<String>> = Vec::new(),
        list(is_ignore_pattern, "a gitignore pattern"), Choose;
    /// Directories outside of the versions that persist between runs; `~/` is the user's home. Those in a directory's
    /// file must be in the workspace.
    cache_dirs "cache.dirs": Vec<Setting<String>> = Vec::new(), list(is_path, "a path without '..'"), Choose;
    /// The maximum size of the cache. All workspaces of the user share it, so a directory cannot change it.
    cache_max "cache.max": Setting<Limit> = Setting::default(Limit(Some(CACHE_BYTES_MAX))),
        amount(SIZE), Tighten(|own, new| new == own);
    /// The number of files, or bytes, from which a first import is announced with its cost.
    import_warn_files "import.warn_files": Setting<Limit> = Setting::default(Limit(Some(IMPORT_WARN_FILES))),
        amount(COUNT), Choose;
    import_warn_bytes "import.warn_bytes": Setting<Limit> = Setting::default(Limit(Some(IMPORT_WARN_BYTES))),
        amount(SIZE), Choose;
    run_timeout "run.timeout": Setting<ExecutionTimeout> = Setting::default(ExecutionTimeout::DEFAULT),
        one("a duration such as 300s, or none"), Tighten(is_shorter);
    /// The time between SIGTERM and SIGKILL.
    run_grace "run.grace": Setting<ExecutionTimeout> = Setting::default(ExecutionTimeout::Millis(5_000)),
        one("a duration such as 5s, or none"), Tighten(is_shorter);
    run_net "run.net": Setting<NetMode> = Setting::default(NetMode::None),
        one("none, host or allow=DOMAIN,…"), Tighten(|own, new| own.value.covers(&new.value));
    /// The base of a run that starts from the directory.
    run_base "run.base": Setting<BaseChoice> = Setting::default(BaseChoice::Auto),
        one("auto, live, cached or touched"), Choose;
    /// Where the changes of a run are held while it runs.
    run_scratch "run.scratch": Setting<ScratchChoice> = Setting::default(ScratchChoice::Auto),
        one("auto, memory or disk"), Choose;
    /// Names of additional variables to pass; `NAME*` for all with this prefix, except credentials.
    run_env "run.env": Vec<Setting<String>> = Vec::new(),
        list(is_variable_pattern, "a variable name, or NAME*"), Tighten(|own, new| new == own);
    /// Caches, hosts and variables for the tools of a language.
    run_preset "run.preset": Vec<Setting<String>> = Vec::new(),
        list(is_preset, "node, python, rust, go or java"), Tighten(|own, new| new == own);
    /// Additional host paths that are visible, read-only.
    run_ro "run.ro": Vec<Setting<String>> = Vec::new(),
        list(is_absolute, "an absolute path, or a path that starts with ~/"), Tighten(|own, new| new == own);
    run_profile "run.profile": Setting<Profile> = Setting::default(Profile::Strict),
        one("strict or host"), Tighten(|own, new| new.value == Profile::Strict || new == own);
    /// The git identity of commits if the repository sets none.
    run_git_identity "run.git_identity": Setting<GitIdentity> = Setting::default(GitIdentity::Host),
        one("host or none"), Tighten(|own, new| new.value == GitIdentity::None || new == own);
    /// The seccomp filter.
    run_seccomp "run.seccomp": Setting<SeccompProfile> = Setting::default(SeccompProfile::Default),
        one("default, strict or off"), Tighten(|own, new| new.value >= own.value);
    /// Whether Landlock also enforces file access.
    run_landlock "run.landlock": Setting<LandlockMode> = Setting::default(LandlockMode::Auto),
        one("auto, required or off"), Tighten(|own, new| new.value >= own.value);
    /// The limits of a run, up to `run.file_size`.
    run_memory "run.memory": Setting<Limit> = Setting::default(Limit(None)),
        amount(SIZE), Tighten(is_lower);
    run_cpus "run.cpus": Setting<CpuLimit> = Setting::default(CpuLimit(None)),
        amount("a number of processors such as 1.5, or none"),
        Tighten(|own, new| is_at_most(new.value.0, own.value.0));
    run_pids "run.pids": Setting<Limit> = Setting::default(Limit(None)),
        amount(COUNT), Tighten(is_lower);
    run_disk "run.disk": Setting<Limit> = Setting::default(Limit(None)),
        amount(SIZE), Tighten(is_lower);
    run_files "run.files": Setting<Limit> = Setting::default(Limit(None)),
        amount(COUNT), Tighten(is_lower);
    run_file_size "run.file_size": Setting<Limit> = Setting::default(Limit(None)),
        amount(SIZE), Tighten(is_lower);
    /// Whether cached results are used. A directory may not enable it: the results would come from its own vault.
    run_cache "run.cache": Setting<CacheMode> = Setting::default(CacheMode::Off),
        one("off, read or write"), Tighten(|own, new| new.value <= own.value);
    /// How long a result is cached.
    run_cache_expires "run.cache_expires": Setting<Span> = Setting::default(Span(30 * 24 * 60 * 60)),
        one("a duration such as 30d"), Choose;
    /// How long the fork of a run is kept for review.
    fork_expires "fork.expires": Setting<Span> = Setting::default(Span(7 * 24 * 60 * 60)),
        one("a duration such as 7d"), Choose;
    /// The maximum number of automatic checkpoints of a fork.
    checkpoint_keep "checkpoint.keep": Setting<KeepCount> = Setting::default(KeepCount::DEFAULT),
        number("a number of at least 2"), Choose;
    /// Where a new vault is created.
    vault_place "vault.place": Setting<VaultPlace> = Setting::default(VaultPlace::Workspace),
        one("workspace or data"), Tighten(|own, new| new == own);
}

/// A field of [`Config`]: one value, or a list.
trait Layered {
    /// Replaces this value by `new`; a list is appended to.
    fn lay(&mut self, new: Self);
    fn shown(&self, key: &'static str) -> Shown;
}

impl<T: std::fmt::Display> Layered for Setting<T> {
    fn lay(&mut self, new: Self) {
        *self = new;
    }

    fn shown(&self, key: &'static str) -> Shown {
        let value = Setting { value: self.value.to_string(), origin: self.origin.clone() };
        Shown { key, arity: Arity::One, values: vec![value] }
    }
}

impl Layered for Vec<Setting<String>> {
    fn lay(&mut self, new: Self) {
        self.extend(new);
    }

    fn shown(&self, key: &'static str) -> Shown {
        Shown { key, arity: Arity::List, values: self.clone() }
    }
}

/// A key as it is shown: its values, each with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub key: &'static str,
    pub arity: Arity,
    pub values: Vec<Setting<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    One,
    List,
}

impl Config {
    /// Applies a file on top of these settings.
    pub fn with(mut self, file: &Path, text: &str) -> Result<Self, ConfigError> {
        parse::lay_over(&mut self, file, text)?;
        Ok(self)
    }

    /// Applies the user's variables, which may set any value.
    pub fn with_variables(mut self, variables: &BTreeMap<OsString, OsString>) -> Result<Self, SettingsError> {
        environment::lay_over(&mut self, variables)?;
        Ok(self)
    }

    /// The variables that have the form of a setting and set none.
    #[must_use]
    pub fn unknown_variables(variables: &BTreeMap<OsString, OsString>) -> Vec<UnknownVariable> {
        environment::unknown(variables)
    }

    /// Applies a directory's file, which may come from an untrusted author: settings that would let a command see or
    /// reach more of the host are ignored, and their keys are returned.
    pub fn with_directory(self, file: &Path, text: &str) -> Result<(Self, Vec<&'static str>), ConfigError> {
        let mut theirs = self.clone().with(file, text)?;
        let own_dirs = self.cache_dirs.len();
        let mut refused = theirs.hold_to(self);
        let elsewhere = |dir: &Setting<String>| dir.value.starts_with(['/', '~']);
        if theirs.cache_dirs[own_dirs..].iter().any(elsewhere) {
            let new = theirs.cache_dirs.split_off(own_dirs);
            theirs.cache_dirs.extend(new.into_iter().filter(|dir| !elsewhere(dir)));
            refused.push("cache.dirs");
        }
        Ok((theirs, refused))
    }

    /// The default limits of a run.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            memory: self.run_memory.value.0,
            cpus: self.run_cpus.value.0,
            pids: self.run_pids.value.0,
            disk: self.run_disk.value.0,
            files: self.run_files.value.0,
            file_size: self.run_file_size.value.0,
        }
    }

    /// The presets of every run.
    #[must_use]
    pub fn presets(&self) -> Vec<Preset> {
        // Each was checked when it was read.
        self.run_preset.iter().filter_map(|setting| setting.value.parse().ok()).collect()
    }

    /// The default confinement of a run.
    #[must_use]
    pub fn confinement(&self) -> Confinement {
        Confinement {
            seccomp: self.run_seccomp.value,
            landlock: self.run_landlock.value,
            userns: NestedUserns::Refused,
        }
    }
}

fn is_shorter(own: &Setting<ExecutionTimeout>, new: &Setting<ExecutionTimeout>) -> bool {
    new.value.at_most(own.value) == new.value
}

fn is_lower(own: &Setting<Limit>, new: &Setting<Limit>) -> bool {
    is_at_most(new.value.0, own.value.0)
}

/// True if limit `one` is at most limit `other`; `None` is no limit.
fn is_at_most<T: Ord>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(one), Some(other)) => one <= other,
    }
}

/// An error in a settings file, and its position.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(transparent)]
pub struct ConfigError(#[from] pub Fault);

const fn code_of(problem: &Problem) -> &'static str {
    match problem {
        Problem::Syntax(_) => "config.syntax",
        Problem::UnknownKey { .. } => "config.unknown_key",
        Problem::WrongType { .. } => "config.wrong_type",
        Problem::BadValue { .. } => "config.bad_value",
    }
}

impl Diagnose for ConfigError {
    fn code(&self) -> &'static str {
        code_of(&self.0.problem)
    }
}

/// An error in one of the layers.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    #[error(transparent)]
    File(#[from] ConfigError),
    #[error("${name}: {problem}")]
    Variable { name: String, problem: Problem },
}

impl Diagnose for SettingsError {
    fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Variable { problem, .. } => code_of(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_cannot_loosen_its_own_sandbox() {
        let user = Config::default().with(Path::new("user"), "[run]\nenv = [\"A\"]\n").unwrap();
        let text = "[run]\nnet = \"host\"\ncache = \"read\"\nprofile = \"host\"\nenv = [\"TOKEN\"]\nro = [\"~/.ssh\"]\n\
                    timeout = \"5s\"\n[capture]\nexclude = [\"*.tmp\"]\n";
        let (config, refused) = user.clone().with_directory(Path::new("dir"), text).unwrap();
        assert_eq!(refused, ["run.net", "run.env", "run.ro", "run.profile", "run.cache"]);
        assert_eq!(
            (&config.run_net, &config.run_env, &config.run_ro),
            (&user.run_net, &user.run_env, &user.run_ro)
        );
        assert_eq!(config.run_timeout.value, ExecutionTimeout::Millis(5_000));
        assert_eq!(config.capture_exclude.len(), 1);
        // A stricter value than the user's is accepted.
        let open = Config::default().with(Path::new("user"), "[run]\nnet = \"host\"\n").unwrap();
        let (config, refused) = open.with_directory(Path::new("dir"), "[run]\nnet = \"none\"\n").unwrap();
        assert_eq!((config.run_net.value, refused.len()), (NetMode::None, 0));
    }

    #[test]
    fn every_key_declares_what_a_directory_may_set() {
        // For each key, a value that is wider than the user's below, or different.
        let user = "[run]\nmemory = '1GiB'\ncpus = 1\npids = 10\ndisk = '1GiB'\nfiles = 10\nfile_size = '1GiB'\n\
                    seccomp = 'strict'\nlandlock = 'required'\ngit_identity = 'none'";
        let wider = [
            ("capture.exclude", "['x']"),
            ("cache.dirs", "['x']"),
            ("cache.max", "'1KiB'"),
            ("import.warn_files", "1"),
            ("import.warn_bytes", "'1KiB'"),
            ("run.timeout", "'none'"),
            ("run.grace", "'1h'"),
            ("run.net", "'host'"),
            ("run.base", "'touched'"),
            ("run.scratch", "'disk'"),
            ("run.env", "['X']"),
            ("run.preset", "['node']"),
            ("run.ro", "['/x']"),
            ("run.profile", "'host'"),
            ("run.git_identity", "'host'"),
            ("run.seccomp", "'off'"),
            ("run.landlock", "'off'"),
            ("run.memory", "'none'"),
            ("run.cpus", "8"),
            ("run.pids", "99"),
            ("run.disk", "'9GiB'"),
            ("run.files", "99"),
            ("run.file_size", "'9GiB'"),
            ("run.cache", "'write'"),
            ("run.cache_expires", "'1d'"),
            ("fork.expires", "'1d'"),
            ("checkpoint.keep", "9"),
            ("vault.place", "'data'"),
        ];
        assert_eq!(Config::KEYS, wider.map(|(key, _)| key));
        // Only cache directories in the workspace are accepted.
        let text = "cache.dirs = ['/usr/bin', 'target', '~/.cargo']";
        let (config, refused) = Config::default().with_directory(Path::new("dir"), text).unwrap();
        assert_eq!((config.cache_dirs.len(), refused), (1, vec!["cache.dirs"]));
        for (key, value) in wider {
            let own = Config::default().with(Path::new("user"), user).unwrap();
            let (_, refused) = own.with_directory(Path::new("dir"), &format!("{key} = {value}")).unwrap();
            assert_eq!(refused == [key], Config::can_only_tighten(key), "{key}");
            assert!(refused.is_empty() || refused == [key], "{key}: {refused:?}");
        }
    }

    #[test]
    fn a_directory_can_only_narrow_the_allow_list() {
        let user = |net: &str| {
            let text = format!("[run]\nnet = \"{net}\"\n");
            Config::default().with(Path::new("user"), &text).unwrap()
        };
        for (users, theirs, holds) in [
            ("none", "allow=a.org", "none"),
            ("allow=a.org,b.org", "allow=a.org", "allow=a.org"),
            ("allow=*.a.org", "allow=x.a.org:443", "allow=x.a.org:443"),
            ("allow=a.org", "allow=a.org,b.org", "allow=a.org"),
            ("allow=a.org", "allow=a.org:22", "allow=a.org"),
            ("allow=a.org", "host", "allow=a.org"),
            ("allow=a.org", "none", "none"),
            ("host", "allow=a.org", "allow=a.org"),
        ] {
            let text = format!("[run]\nnet = \"{theirs}\"\n");
            let (config, refused) = user(users).with_directory(Path::new("dir"), &text).unwrap();
            assert_eq!(config.run_net.value.to_string(), holds, "{users} {theirs}");
            assert_eq!(refused.is_empty(), holds == theirs, "{users} {theirs}");
        }
    }
}
