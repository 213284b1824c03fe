//! Resolves the paths, variables and secrets of a request against the caller's environment.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use avfs_types::CommandLine;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, NameError};
use avfs_types::redact::{is_credential_name, is_credential_value};

use crate::choices::{BackendChoice, BaseChoice, CacheMode, ForkChoice, HomeMode, Retention};
use crate::config::{Config, Origin, is_variable};
use crate::confinement::{Confinement, NestedUserns};
use crate::environment::{EnvChoice, Environment};
use crate::extra::{Extra, HostPath};
use crate::limits::MEMORY_BYTES_MIN;
use crate::net::NetMode;
use crate::preset::{CI_VARIABLES, Preset, with_hosts};
use crate::reproducible::{FixedClock, Reproducible, seed};
use crate::secret::{SecretError, SecretWord};
use crate::spec::{REQUEST_BYTES_MAX, RunSpec, SpecError};
use crate::timeout::ExecutionTimeout;

/// The caller: its working directory, environment and terminal.
pub struct Outside {
    pub cwd: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    /// Whether the user can be asked.
    pub terminal: Terminal,
    /// Whether the input and output of the command would be a terminal.
    pub streams: Terminal,
}

/// Whether there is a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    There,
    None,
}

/// A request that names something that does not exist, or has an invalid value.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("invalid request: {0}")]
    Spec(#[from] SpecError),
    #[error("{option} {}: the host path does not exist", path.display())]
    NoPath { option: &'static str, path: PathBuf },
    #[error("{} contains '..'", path.display())]
    ParentDir { path: PathBuf },
    #[error("invalid variable {word:?}: expected NAME or NAME=VALUE")]
    BadEnv { word: OsString },
    #[error("cannot read the environment file {}", path.display())]
    EnvFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("line {line} of {} is not NAME=VALUE with a valid name", path.display())]
    EnvLine { path: PathBuf, line: usize },
    #[error("{option} requires a persistent fork, and the request names none")]
    NoFork { option: &'static str },
    #[error("--base touched records only the paths that a run changes; {option} needs the whole directory")]
    TouchedBase { option: &'static str },
    #[error("--pure has no effect without the cache")]
    PureWithoutCache,
    #[error("a memory limit of {bytes} bytes is too small to run any program")]
    LittleMemory { bytes: u64 },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Diagnose for ResolveError {
    fn code(&self) -> &'static str {
        match self {
            Self::Spec(_) => "request.malformed",
            Self::NoPath { .. } => "request.no_path",
            Self::ParentDir { .. } => "request.parent_dir",
            Self::BadEnv { .. } | Self::EnvFile { .. } | Self::EnvLine { .. } => "request.bad_env",
            Self::NoFork { .. } => "request.no_fork",
            Self::TouchedBase { .. } => "request.touched_base",
            Self::PureWithoutCache => "usage",
            Self::LittleMemory { .. } => "request.little_memory",
            Self::Secret(error) => error.code(),
            Self::Name(error) => error.code(),
        }
    }
}

pub fn reproducible(spec: &RunSpec) -> Reproducible {
    if spec.reproducible { Reproducible::On } else { Reproducible::Off }
}

pub fn clock(spec: &RunSpec) -> Option<FixedClock> {
    spec.clock_fixed.or(spec.reproducible.then_some(FixedClock::DEFAULT))
}

pub fn timeout(spec: &RunSpec) -> Option<ExecutionTimeout> {
    let millis = |limit: Option<u64>| limit.map_or(ExecutionTimeout::None, ExecutionTimeout::Millis);
    spec.timeout.or_else(|| spec.timeout_ms.map(millis))
}

/// Whether the command has a terminal: without its input it has none that can be used.
pub fn terminal(outside: &Outside, cache: CacheMode) -> Terminal {
    match cache {
        CacheMode::Off => outside.streams,
        CacheMode::Read | CacheMode::Write => Terminal::None,
    }
}

/// The timeout if neither the request nor a setting sets one. At a terminal, the user can end the command.
pub fn timeout_by_default(config: &Config, terminal: Terminal) -> ExecutionTimeout {
    match (&config.run_timeout.origin, terminal) {
        (Origin::Default, Terminal::There) => ExecutionTimeout::None,
        (Origin::Default | Origin::File { .. } | Origin::Variable { .. }, _) => config.run_timeout.value,
    }
}

pub fn grace(spec: &RunSpec) -> Option<ExecutionTimeout> {
    spec.grace.or_else(|| spec.grace_ms.map(ExecutionTimeout::Millis))
}

/// Rejects a tiny limit: a number without a unit is bytes, which is rarely intended.
pub fn check_memory(bytes: Option<u64>) -> Result<(), ResolveError> {
    match bytes {
        Some(bytes) if bytes < MEMORY_BYTES_MIN => Err(ResolveError::LittleMemory { bytes }),
        Some(_) | None => Ok(()),
    }
}

/// The fork from the option, else from `$AVFS_FORK`.
pub fn fork(spec: &RunSpec, outside: &Outside) -> Result<ForkChoice, NameError> {
    let is_set = |(name, value): &&(OsString, OsString)| name == "AVFS_FORK" && !value.is_empty();
    let name = match (&spec.fork, outside.environment.iter().find(is_set)) {
        (Some(name), _) => Some(name.clone()),
        (None, Some((_, value))) if spec.kept() != Retention::Apply => {
            Some(ForkName::parse(&value.to_string_lossy())?)
        }
        (None, Some(_) | None) => None,
    };
    let from = spec.from.clone();
    Ok(match name {
        Some(name) => ForkChoice::Persistent { name, from },
        None => ForkChoice::Ephemeral { from },
    })
}

/// The base of the run: from the option, else from the setting, which applies to runs that start from the directory.
pub fn base(
    spec: &RunSpec,
    config: &Config,
    fork: &ForkChoice,
    cache: CacheMode,
) -> Result<BaseChoice, ResolveError> {
    let backend = spec.backend.unwrap_or(BackendChoice::Auto);
    let option = match (fork, cache, backend) {
        (ForkChoice::Persistent { .. }, _, _) if spec.fork.is_none() => Some("AVFS_FORK"),
        (ForkChoice::Persistent { .. }, _, _) => Some("--fork"),
        (ForkChoice::Ephemeral { from: Some(_) }, _, _) => Some("--from"),
        (ForkChoice::Ephemeral { from: None }, CacheMode::Read | CacheMode::Write, _) => Some("--cache"),
        (ForkChoice::Ephemeral { from: None }, CacheMode::Off, BackendChoice::Copy) => Some("--backend copy"),
        (
            ForkChoice::Ephemeral { from: None },
            CacheMode::Off,
            BackendChoice::Auto | BackendChoice::Overlay,
        ) => None,
    };
    match (spec.base, option) {
        (Some(BaseChoice::Touched), Some(option)) => Err(ResolveError::TouchedBase { option }),
        (Some(base), _) => Ok(base),
        (None, None) => Ok(config.run_base.value),
        (None, Some(_)) => Ok(BaseChoice::Auto),
    }
}

/// The requested confinement, over that of the settings.
pub fn confinement(spec: &RunSpec, set: Confinement) -> Confinement {
    Confinement {
        seccomp: spec.seccomp.unwrap_or(set.seccomp),
        landlock: spec.landlock.unwrap_or(set.landlock),
        userns: if spec.allow_userns { NestedUserns::Allowed } else { set.userns },
    }
}

/// Whether an option `--env NAME`, without a value, passes a variable of the caller.
pub fn names_variables(spec: &RunSpec) -> bool {
    spec.env_words.iter().any(|word| !word.as_bytes().contains(&b'='))
}

/// Fails if the request keeps state for a fork that ends with the run.
pub fn check_kept(spec: &RunSpec, fork: &ForkChoice) -> Result<(), ResolveError> {
    let option = match (spec.home, spec.keep_tmp) {
        (Some(HomeMode::Persistent), _) => "--home persistent",
        (Some(HomeMode::Private) | None, true) => "--keep-tmp",
        (Some(HomeMode::Private) | None, false) => return Ok(()),
    };
    if fork.is_ephemeral() { Err(ResolveError::NoFork { option }) } else { Ok(()) }
}

fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path).components().collect()
}

/// The changes to the view, and the resolved paths of `--ro`.
pub fn extras(spec: &RunSpec, cwd: &Path) -> Result<(Vec<Extra>, Vec<PathBuf>), ResolveError> {
    let all = |paths: &[PathBuf]| paths.iter().map(|path| absolute(cwd, path)).collect::<Vec<_>>();
    // `..` leads elsewhere in the sandbox than here: the policy would judge a different path.
    let climbs = |path: &&PathBuf| path.components().any(|part| part == Component::ParentDir);
    let (tmpfs, hide) = (all(&spec.tmpfs), all(&spec.hide));
    if let Some(path) = tmpfs.iter().chain(&hide).find(climbs) {
        return Err(ResolveError::ParentDir { path: path.clone() });
    }
    let shown = |option, paths: &[PathBuf]| {
        let resolve = |path: PathBuf| {
            HostPath::resolve(path.clone()).map_err(|_| ResolveError::NoPath { option, path })
        };
        all(paths).into_iter().map(resolve).collect::<Result<Vec<_>, _>>()
    };
    let (ro, rw) = (shown("--ro", &spec.ro)?, shown("--rw", &spec.rw)?);
    let named_ro = ro.iter().map(|shown| shown.real.clone()).collect();
    let mut extras: Vec<Extra> = tmpfs.into_iter().map(Extra::Tmpfs).collect();
    for extra in ro.into_iter().map(Extra::ReadOnly).chain(rw.into_iter().map(Extra::ReadWrite)) {
        if !extras.contains(&extra) {
            extras.push(extra);
        }
    }
    extras.extend(hide.into_iter().map(Extra::Hide));
    Ok((extras, named_ro))
}

/// The real paths of `--input`: the policy judges the files that are read.
pub fn inputs(spec: &RunSpec, cwd: &Path) -> Result<Vec<PathBuf>, ResolveError> {
    let real = |path: PathBuf| match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(_) => Err(ResolveError::NoPath { option: "--input", path }),
    };
    spec.input.iter().map(|path| real(absolute(cwd, path))).collect()
}

/// The inputs of the environment besides the specification.
pub struct Around<'a> {
    pub outside: &'a Outside,
    pub config: &'a Config,
    pub net: &'a NetMode,
    pub cache: CacheMode,
}

impl Outside {
    fn has(&self, name: &str) -> bool {
        self.environment.iter().any(|(set, _)| set == name)
    }
}

/// The presets from the settings and from the request.
pub fn presets(spec: &RunSpec, config: &Config) -> Vec<Preset> {
    let mut presets = config.presets();
    presets.extend(&spec.preset);
    presets.sort_unstable();
    presets.dedup();
    presets
}

/// The network with the hosts of the presets added. `none` in the request excludes all of these hosts, `none` in a
/// setting excludes the hosts of presets from settings.
pub fn net(spec: &RunSpec, config: &Config) -> NetMode {
    match &spec.net {
        Some(NetMode::None) => NetMode::None,
        Some(net) => with_hosts(net.clone(), &presets(spec, config)),
        None if config.run_net.value == NetMode::None && config.run_net.origin != Origin::Default => {
            with_hosts(NetMode::None, &spec.preset)
        }
        None => with_hosts(config.run_net.value.clone(), &presets(spec, config)),
    }
}

/// The variables that describe a CI job, if the caller is one. Not if a result is cached: the result would be valid
/// for one job only.
fn ci_variables(spec: &RunSpec, around: &Around<'_>) -> Vec<EnvChoice> {
    let is_ci = around.outside.environment.iter().any(|(name, value)| name == "CI" && value == "true");
    if !is_ci || spec.reproducible || around.cache != CacheMode::Off {
        return Vec::new();
    }
    let set = CI_VARIABLES.iter().filter(|name| around.outside.has(name));
    set.map(|name| EnvChoice::PassBySetting(name.into())).collect()
}

/// The variables of the presets. Those of a preset in the request count as named by the request, as with `--env`.
fn preset_variables(spec: &RunSpec, around: &Around<'_>) -> Vec<EnvChoice> {
    let mut choices = Vec::new();
    let by_setting: &[Preset] = &if spec.reproducible { Vec::new() } else { around.config.presets() };
    for (presets, choice) in [
        (by_setting, EnvChoice::PassBySetting as fn(OsString) -> EnvChoice),
        (spec.preset.as_slice(), EnvChoice::Pass),
    ] {
        for data in presets.iter().map(|preset| preset.data()) {
            let passed = data.pass.iter().filter(|name| around.outside.has(name));
            choices.extend(passed.map(|name| choice(name.into())));
            let with_list = match around.net {
                NetMode::Allow(_) => data.set_with_list,
                NetMode::None | NetMode::Host => &[],
            };
            let set = data.set.iter().chain(with_list);
            choices.extend(set.map(|(name, value)| EnvChoice::Set(name.into(), value.into())));
        }
    }
    choices
}

/// The variables and secrets of the command, and the files that some of them come from. Later sources override earlier
/// ones: settings, files, JSON, options, secrets.
pub fn environment(spec: &RunSpec, around: &Around<'_>) -> Result<(Environment, Vec<PathBuf>), ResolveError> {
    let Around { outside, config, .. } = around;
    // Variables from the settings are also the caller's, and are not named for this run.
    let settings = config.run_env.iter().filter(|_| !spec.reproducible);
    let named = settings.flat_map(|name| {
        expanded(OsStr::new(&name.value), outside).into_iter().map(EnvChoice::PassBySetting)
    });
    let mut choices: Vec<EnvChoice> = ci_variables(spec, around);
    choices.extend(preset_variables(spec, around));
    choices.extend(named);
    let mut files = Vec::new();
    for file in &spec.env_file {
        let (variables, real) = env_file(file)?;
        choices.extend(variables);
        files.push(real);
    }
    choices.extend(spec.env.iter().map(|(name, value)| EnvChoice::Set(name.into(), value.into())));
    let (reproducible, clock) = (reproducible(spec), clock(spec));
    // The names in an envelope are those of all variables that the command had, including those with a fixed value.
    let fixed = seed(reproducible, clock);
    let is_passed = |name: &&String| {
        !spec.secrets.contains(name)
            && !spec.env.contains_key(*name)
            && !fixed.iter().any(|(fixed, _)| fixed == name.as_str())
            && outside.environment.iter().any(|(set, _)| set == name.as_str())
    };
    choices.extend(spec.environment.iter().filter(is_passed).map(|name| EnvChoice::Pass(name.into())));
    for word in &spec.env_words {
        let bad = || ResolveError::BadEnv { word: word.clone() };
        let choice = env_word(word).ok_or_else(bad)?;
        let EnvChoice::Pass(name) = &choice else {
            choices.push(choice);
            continue;
        };
        if name.as_bytes().contains(&b'*') && !is_pattern(name) {
            return Err(bad());
        }
        match expanded(name, outside) {
            // A pattern without a match is reported in a note.
            found if found.is_empty() => choices.push(choice),
            found => choices.extend(found.into_iter().map(EnvChoice::Pass)),
        }
    }
    for word in secret_words(spec) {
        choices.push(SecretWord::parse(&word)?.choice(&outside.cwd)?);
    }
    let variables = outside.environment.iter().cloned();
    let mut environment = Environment::choose_over(variables, reproducible, clock, &choices);
    environment.only_credentials = environment
        .missing
        .iter()
        .filter_map(|name| Some((name.clone(), held_back(name, outside)?)))
        .collect();
    let is_secret = |name: &&OsString| {
        choices.iter().any(|choice| match choice {
            EnvChoice::Secret(secret) | EnvChoice::SecretInFile(secret) => secret == *name,
            EnvChoice::Pass(_)
            | EnvChoice::PassBySetting(_)
            | EnvChoice::Set(..)
            | EnvChoice::SetByFile(..)
            | EnvChoice::SecretFile(_) => false,
        })
    };
    match environment.missing.iter().find(is_secret) {
        Some(name) => Err(SecretError::Unset { name: name.to_string_lossy().into_owned() }.into()),
        None => Ok((environment, files)),
    }
}

/// Secrets in the form of the option. Envelopes contain only the names of secrets that are files.
fn secret_words(spec: &RunSpec) -> Vec<OsString> {
    let as_file = |secret: &String| match secret.contains('=') {
        true => secret.into(),
        false => format!("{secret}=file").into(),
    };
    let mut words = spec.secret.clone();
    words.extend(spec.secrets.iter().map(OsString::from));
    words.extend(spec.secret_files.iter().map(as_file));
    words
}

/// `NAME*`.
fn is_pattern(name: &OsStr) -> bool {
    name.to_str().and_then(|name| name.strip_suffix('*')).is_some_and(is_variable)
}

/// The caller's variables that match `NAME*`; any other name matches itself. A variable that looks like a credential,
/// by its name or by its value, has to be named in full.
fn expanded(name: &OsStr, outside: &Outside) -> Vec<OsString> {
    let Some(start) = name.to_str().and_then(|name| name.strip_suffix('*')) else {
        return vec![name.to_owned()];
    };
    let is_meant = |(name, value): &&(OsString, OsString)| {
        let value = value.to_string_lossy();
        name.to_str().is_some_and(|name| name.starts_with(start) && !is_credential_name(name))
            && !is_credential_value(&value)
    };
    outside.environment.iter().filter(is_meant).map(|(name, _)| name.clone()).collect()
}

/// A variable of the caller that a pattern would pass if it did not look like a credential.
fn held_back(name: &OsStr, outside: &Outside) -> Option<OsString> {
    let start = name.to_str()?.strip_suffix('*')?;
    let names = outside.environment.iter().map(|(name, _)| name);
    names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(start))).min().cloned()
}

/// True if a shell may expand variables in the command.
pub fn may_use_variables(command: &CommandLine) -> bool {
    match command {
        CommandLine::Shell(line) => line.as_bytes().contains(&b'$'),
        CommandLine::Argv(words) => words.iter().any(|word| word.as_bytes().contains(&b'$')),
    }
}

/// `NAME` or `NAME=VALUE`.
fn env_word(word: &OsStr) -> Option<EnvChoice> {
    let bytes = word.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(0) => None,
        Some(at) => Some(EnvChoice::Set(
            OsString::from_vec(bytes[..at].to_vec()),
            OsString::from_vec(bytes[at + 1..].to_vec()),
        )),
        None if bytes.is_empty() => None,
        None => Some(EnvChoice::Pass(word.to_owned())),
    }
}

/// A line of a file of variables, as files that a shell reads have it: `NAME=VALUE` or `export NAME=VALUE`, where VALUE
/// can be in one pair of quotes. Nothing in VALUE is expanded.
fn file_variable(line: &[u8]) -> Option<(OsString, OsString)> {
    let line = match line.strip_prefix(b"export") {
        Some(rest) if rest.first().is_some_and(u8::is_ascii_whitespace) => rest.trim_ascii_start(),
        Some(_) | None => line,
    };
    let at = line.iter().position(|byte| *byte == b'=')?;
    let name = std::str::from_utf8(&line[..at]).ok().filter(|name| is_variable(name))?;
    let value = &line[at + 1..];
    let inside = match value {
        [first @ (b'"' | b'\''), inside @ .., last] if first == last && !inside.contains(first) => inside,
        _ => value,
    };
    Some((name.into(), OsString::from_vec(inside.to_vec())))
}

/// Parses the lines of a file of variables; empty lines and lines that start with `#` are ignored.
///
/// Opens the file once: the resolved path, which the policy judges, is that of the file that was read.
fn env_file(path: &Path) -> Result<(Vec<EnvChoice>, PathBuf), ResolveError> {
    let read = || -> std::io::Result<(Vec<u8>, PathBuf)> {
        let file = std::fs::File::open(path)?;
        let mut text = Vec::new();
        // A device or a pipe may never end.
        (&file).take(REQUEST_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
        if text.len() > REQUEST_BYTES_MAX {
            let problem = format!("longer than {REQUEST_BYTES_MAX} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, problem));
        }
        Ok((text, std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?))
    };
    let (text, real) = read().map_err(|source| ResolveError::EnvFile { path: path.to_owned(), source })?;
    let mut choices = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let bad = || ResolveError::EnvLine { path: path.to_owned(), line: number + 1 };
        let (name, value) = file_variable(line).ok_or_else(bad)?;
        choices.push(EnvChoice::SetByFile(name, value));
    }
    Ok((choices, real))
}
