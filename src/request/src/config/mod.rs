//! Settings in layers: defaults, the administrator's file, the user's, the bound directory's, variables.
//!
//! Gives the text of the files a meaning; `avfs-engine` finds and reads them. A key of a
//! later layer wins over the same key of an earlier one; lists are appended. Nothing here sees the options of a
//! command, which win over all of it.

mod environment;
mod keys;
mod parse;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use avfs_types::diagnose::Diagnose;
use avfs_types::{KeepCount, Limit, Span};

use crate::choices::{CacheMode, ScratchChoice, VaultPlace};
use crate::confinement::{Confinement, LandlockMode, NestedUserns, SeccompProfile};
use crate::extra::Profile;
use crate::limits::{CpuLimit, Limits};
use crate::net::NetMode;
use crate::timeout::ExecutionTimeout;

pub use avfs_types::toml_source::{Fault, Problem};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Variable { name: &'static str },
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

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `capture.exclude`: what is never versioned, in gitignore's syntax.
    pub capture_exclude: Vec<Setting<String>>,
    /// `cache.dirs`: directories that persist between runs outside of the versions; `~/` is the user's home.
    pub cache_dirs: Vec<Setting<String>>,
    /// `run.timeout`
    pub run_timeout: Setting<ExecutionTimeout>,
    /// `run.grace`: between the polite signal and the last one.
    pub run_grace: Setting<ExecutionTimeout>,
    /// `run.net`
    pub run_net: Setting<NetMode>,
    /// `run.scratch`: where the changes of a run are held while it runs.
    pub run_scratch: Setting<ScratchChoice>,
    /// `run.env`: names of further variables that are let through.
    pub run_env: Vec<Setting<String>>,
    /// `run.ro`: further paths that are visible inside, read-only.
    pub run_ro: Vec<Setting<String>>,
    /// `run.profile`
    pub run_profile: Setting<Profile>,
    /// `run.seccomp`: which system calls are refused.
    pub run_seccomp: Setting<SeccompProfile>,
    /// `run.landlock`: whether the view is enforced a second time.
    pub run_landlock: Setting<LandlockMode>,
    /// `run.memory` and those that follow: what a run may use.
    pub run_memory: Setting<Limit>,
    pub run_cpus: Setting<CpuLimit>,
    pub run_pids: Setting<Limit>,
    pub run_disk: Setting<Limit>,
    pub run_files: Setting<Limit>,
    pub run_file_size: Setting<Limit>,
    /// `run.cache`: whether remembered results are used.
    pub run_cache: Setting<CacheMode>,
    /// `run.cache_expires`: how long a result is remembered.
    pub run_cache_expires: Setting<Span>,
    /// `fork.expires`: how long the fork of a run is kept for review.
    pub fork_expires: Setting<Span>,
    /// `checkpoint.keep`: how many automatic checkpoints a fork has at most.
    pub checkpoint_keep: Setting<KeepCount>,
    /// `vault.place`: where a new vault is made.
    pub vault_place: Setting<VaultPlace>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            capture_exclude: Vec::new(),
            cache_dirs: Vec::new(),
            run_timeout: Setting::default(ExecutionTimeout::DEFAULT),
            run_grace: Setting::default(ExecutionTimeout::Millis(5_000)),
            run_net: Setting::default(NetMode::None),
            run_scratch: Setting::default(ScratchChoice::Auto),
            run_env: Vec::new(),
            run_ro: Vec::new(),
            run_profile: Setting::default(Profile::Strict),
            run_seccomp: Setting::default(SeccompProfile::Default),
            run_landlock: Setting::default(LandlockMode::Auto),
            run_memory: Setting::default(Limit(None)),
            run_cpus: Setting::default(CpuLimit(None)),
            run_pids: Setting::default(Limit(None)),
            run_disk: Setting::default(Limit(None)),
            run_files: Setting::default(Limit(None)),
            run_file_size: Setting::default(Limit(None)),
            run_cache: Setting::default(CacheMode::Off),
            run_cache_expires: Setting::default(Span(30 * 24 * 60 * 60)),
            fork_expires: Setting::default(Span(7 * 24 * 60 * 60)),
            checkpoint_keep: Setting::default(KeepCount::DEFAULT),
            vault_place: Setting::default(VaultPlace::Workspace),
        }
    }
}

/// One key as it is shown: its values, each with where it came from.
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
    /// Lays a file over what is known so far.
    pub fn with(mut self, file: &Path, text: &str) -> Result<Self, ConfigError> {
        parse::lay_over(&mut self, file, text)?;
        Ok(self)
    }

    /// Lays the user's variables over it, which may say anything.
    pub fn with_variables(mut self, variables: &BTreeMap<OsString, OsString>) -> Result<Self, SettingsError> {
        environment::lay_over(&mut self, variables)?;
        Ok(self)
    }

    /// Lays the file of a directory over it, which may come from anybody: what would let a command see or reach
    /// more of the host is not taken, and named.
    pub fn with_directory(self, file: &Path, text: &str) -> Result<(Self, Vec<&'static str>), ConfigError> {
        let mut theirs = self.clone().with(file, text)?;
        let mut refused = Vec::new();
        for (key, theirs, own) in [
            ("run.timeout", &mut theirs.run_timeout, &self.run_timeout),
            ("run.grace", &mut theirs.run_grace, &self.run_grace),
        ] {
            if theirs.value.at_most(own.value) != theirs.value {
                *theirs = own.clone();
                refused.push(key);
            }
        }
        let own_dirs = self.cache_dirs.len();
        let elsewhere = |dir: &Setting<String>| dir.value.starts_with(['/', '~']);
        if theirs.cache_dirs[own_dirs..].iter().any(elsewhere) {
            let mut at = 0;
            theirs.cache_dirs.retain(|dir| {
                at += 1;
                at <= own_dirs || !elsewhere(dir)
            });
            refused.push("cache.dirs");
        }
        if theirs.vault_place != self.vault_place {
            theirs.vault_place = self.vault_place;
            refused.push("vault.place");
        }
        if !self.run_net.value.covers(&theirs.run_net.value) {
            theirs.run_net = self.run_net;
            refused.push("run.net");
        }
        if theirs.run_profile.value == Profile::Host && theirs.run_profile != self.run_profile {
            theirs.run_profile = self.run_profile;
            refused.push("run.profile");
        }
        if theirs.run_seccomp.value < self.run_seccomp.value {
            theirs.run_seccomp = self.run_seccomp;
            refused.push("run.seccomp");
        }
        if theirs.run_landlock.value < self.run_landlock.value {
            theirs.run_landlock = self.run_landlock;
            refused.push("run.landlock");
        }
        // Its own vault would have the answers.
        if theirs.run_cache.value > self.run_cache.value {
            theirs.run_cache = self.run_cache;
            refused.push("run.cache");
        }
        for (key, theirs, own) in [
            ("run.memory", &mut theirs.run_memory, &self.run_memory),
            ("run.pids", &mut theirs.run_pids, &self.run_pids),
            ("run.disk", &mut theirs.run_disk, &self.run_disk),
            ("run.files", &mut theirs.run_files, &self.run_files),
            ("run.file_size", &mut theirs.run_file_size, &self.run_file_size),
        ] {
            if is_more(theirs.value.0, own.value.0) {
                *theirs = own.clone();
                refused.push(key);
            }
        }
        if is_more(theirs.run_cpus.value.0, self.run_cpus.value.0) {
            theirs.run_cpus = self.run_cpus;
            refused.push("run.cpus");
        }
        if theirs.run_env != self.run_env {
            theirs.run_env = self.run_env;
            refused.push("run.env");
        }
        if theirs.run_ro != self.run_ro {
            theirs.run_ro = self.run_ro;
            refused.push("run.ro");
        }
        Ok((theirs, refused))
    }

    /// What a run may use, unless it says otherwise.
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

    /// What a run is confined by, unless it says otherwise.
    #[must_use]
    pub fn confinement(&self) -> Confinement {
        Confinement {
            seccomp: self.run_seccomp.value,
            landlock: self.run_landlock.value,
            userns: NestedUserns::Refused,
        }
    }

    /// Every key, in the order of the documentation.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        fn one<T: std::fmt::Display>(key: &'static str, setting: &Setting<T>) -> Shown {
            let shown = Setting { value: setting.value.to_string(), origin: setting.origin.clone() };
            Shown { key, arity: Arity::One, values: vec![shown] }
        }
        let list =
            |key, values: &Vec<Setting<String>>| Shown { key, arity: Arity::List, values: values.clone() };
        let span = |setting: &Setting<Span>| Setting {
            value: value::span_text(setting.value),
            origin: setting.origin.clone(),
        };
        vec![
            list("capture.exclude", &self.capture_exclude),
            list("cache.dirs", &self.cache_dirs),
            one("run.timeout", &self.run_timeout),
            one("run.grace", &self.run_grace),
            one("run.net", &self.run_net),
            one("run.scratch", &self.run_scratch),
            list("run.env", &self.run_env),
            list("run.ro", &self.run_ro),
            one("run.profile", &self.run_profile),
            one("run.seccomp", &self.run_seccomp),
            one("run.landlock", &self.run_landlock),
            one("run.memory", &self.run_memory),
            one("run.cpus", &self.run_cpus),
            one("run.pids", &self.run_pids),
            one("run.disk", &self.run_disk),
            one("run.files", &self.run_files),
            one("run.file_size", &self.run_file_size),
            one("run.cache", &self.run_cache),
            one("run.cache_expires", &span(&self.run_cache_expires)),
            one("fork.expires", &span(&self.fork_expires)),
            one("checkpoint.keep", &self.checkpoint_keep),
            one("vault.place", &self.vault_place),
        ]
    }
}

/// True if a limit lets through more than another one; nothing is no limit.
fn is_more<T: Ord>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(one), Some(other)) => one > other,
    }
}

/// What is wrong with a file, and where.
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

fn hint_of(problem: &Problem) -> String {
    match problem {
        Problem::Syntax(_) => "the file is TOML: see https://toml.io".to_owned(),
        Problem::UnknownKey { known, .. } => format!("known are: {known}"),
        Problem::WrongType { .. } | Problem::BadValue { .. } => {
            "see every key and its value with: avfs config show, after correcting this one".to_owned()
        }
    }
}

impl Diagnose for ConfigError {
    fn code(&self) -> &'static str {
        code_of(&self.0.problem)
    }

    fn hint(&self) -> Option<String> {
        Some(hint_of(&self.0.problem))
    }
}

/// What is wrong with one of the layers.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    #[error(transparent)]
    File(#[from] ConfigError),
    #[error("${name}: {problem}")]
    Variable { name: &'static str, problem: Problem },
}

impl Diagnose for SettingsError {
    fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Variable { problem, .. } => code_of(problem),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::File(error) => error.hint(),
            Self::Variable { problem, .. } => Some(hint_of(problem)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_cannot_open_its_own_sandbox() {
        let user = Config::default().with(Path::new("user"), "[run]\nenv = [\"A\"]\n").unwrap();
        let text = "[run]\nnet = \"host\"\ncache = \"read\"\nprofile = \"host\"\nenv = [\"TOKEN\"]\nro = [\"~/.ssh\"]\n\
                    timeout = \"5s\"\n[capture]\nexclude = [\"*.tmp\"]\n";
        let (config, refused) = user.clone().with_directory(Path::new("dir"), text).unwrap();
        assert_eq!(refused, ["run.net", "run.profile", "run.cache", "run.env", "run.ro"]);
        assert_eq!(
            (&config.run_net, &config.run_env, &config.run_ro),
            (&user.run_net, &user.run_env, &user.run_ro)
        );
        assert_eq!(config.run_timeout.value, ExecutionTimeout::Millis(5_000));
        assert_eq!(config.capture_exclude.len(), 1);
        // Tighter than the user's is fine.
        let open = Config::default().with(Path::new("user"), "[run]\nnet = \"host\"\n").unwrap();
        let (config, refused) = open.with_directory(Path::new("dir"), "[run]\nnet = \"none\"\n").unwrap();
        assert_eq!((config.run_net.value, refused.len()), (NetMode::None, 0));
    }

    /// What the file of a directory, which may come from anybody, may do with a key.
    #[derive(Clone, Copy)]
    enum DirectoryMay {
        /// Only ask for less than the user does.
        Tighten,
        /// Anything: it concerns this workspace alone.
        Choose,
    }

    /// Every key, in the order of the documentation.
    const FROM_A_DIRECTORY: [(&str, DirectoryMay); 22] = [
        ("capture.exclude", DirectoryMay::Choose),
        ("cache.dirs", DirectoryMay::Choose),
        ("run.timeout", DirectoryMay::Tighten),
        ("run.grace", DirectoryMay::Tighten),
        ("run.net", DirectoryMay::Tighten),
        ("run.scratch", DirectoryMay::Choose),
        ("run.env", DirectoryMay::Tighten),
        ("run.ro", DirectoryMay::Tighten),
        ("run.profile", DirectoryMay::Tighten),
        ("run.seccomp", DirectoryMay::Tighten),
        ("run.landlock", DirectoryMay::Tighten),
        ("run.memory", DirectoryMay::Tighten),
        ("run.cpus", DirectoryMay::Tighten),
        ("run.pids", DirectoryMay::Tighten),
        ("run.disk", DirectoryMay::Tighten),
        ("run.files", DirectoryMay::Tighten),
        ("run.file_size", DirectoryMay::Tighten),
        ("run.cache", DirectoryMay::Tighten),
        ("run.cache_expires", DirectoryMay::Choose),
        ("fork.expires", DirectoryMay::Choose),
        ("checkpoint.keep", DirectoryMay::Choose),
        ("vault.place", DirectoryMay::Tighten),
    ];

    #[test]
    fn every_key_says_what_a_directory_may_do_with_it() {
        // For each key a value that is wider than the user's below, or simply another.
        let user = "[run]\nmemory = '1GiB'\ncpus = 1\npids = 10\ndisk = '1GiB'\nfiles = 10\nfile_size = '1GiB'\n\
                    seccomp = 'strict'\nlandlock = 'required'";
        let wider = [
            ("capture.exclude", "['x']"),
            ("cache.dirs", "['x']"),
            ("run.timeout", "'none'"),
            ("run.grace", "'1h'"),
            ("run.net", "'host'"),
            ("run.scratch", "'disk'"),
            ("run.env", "['X']"),
            ("run.ro", "['/x']"),
            ("run.profile", "'host'"),
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
        let keys: Vec<&str> = Config::default().shown().iter().map(|shown| shown.key).collect();
        assert_eq!(keys, wider.map(|(key, _)| key));
        assert_eq!(keys, FROM_A_DIRECTORY.map(|(key, _)| key));
        // Of cache directories those of the workspace alone.
        let text = "cache.dirs = ['/usr/bin', 'target', '~/.cargo']";
        let (config, refused) = Config::default().with_directory(Path::new("dir"), text).unwrap();
        assert_eq!((config.cache_dirs.len(), refused), (1, vec!["cache.dirs"]));
        let page = include_str!("../../../../docs/CONTRACT.md");
        for ((key, value), (_, may)) in wider.iter().zip(FROM_A_DIRECTORY) {
            let own = Config::default().with(Path::new("user"), user).unwrap();
            let (_, refused) = own.with_directory(Path::new("dir"), &format!("{key} = {value}")).unwrap();
            let (expected, may): (&[&str], &str) = match may {
                DirectoryMay::Tighten => (&[key], "only tighten"),
                DirectoryMay::Choose => (&[], "choose"),
            };
            assert_eq!(refused, expected, "{key}");
            assert!(page.contains(&format!("| `{key}` | {may} |")), "docs/CONTRACT.md lacks {key}");
        }
    }

    #[test]
    fn a_directory_may_shorten_the_list_of_places_and_not_widen_it() {
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
