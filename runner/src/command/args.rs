//! The command line of `avfs-run`: read once, turned into a request.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Parser};

use avfs_request::choices::PolicyProfile;
use avfs_request::config::Config;
use avfs_request::{
    ApprovalMode, BackendChoice, BaseChoice, CacheMode, ChangeForm, CheckpointMode, Confinement, CpuLimit,
    Degradation, EnvChoice, Environment, ExecutionRequest, ExecutionTimeout, Extra, FixedClock, ForkChoice,
    HostPath, LandlockMode, Limits, Named, NestedUserns, NetMode, ProcMode, Profile, Purity, Reproducible,
    Retention, ScratchChoice, SeccompProfile, SecretWord, SecretsInFiles, Streams, Writing,
};
use avfs_types::diagnose::vault_words;
use avfs_types::ids::{ApprovalPrefix, BatchItem, ForkName};
use avfs_types::reference::Reference;
use avfs_types::{CommandLine, Limit, Size};

use crate::command::error::RunError;

/// Run one command over a fork of the workspace, in a sandbox
///
/// The command sees the workspace at its own path, the system read-only, an empty home and no network. What
/// it changes becomes a version in the vault; the host is not touched.
///
/// Without --fork the directory's present state is the start, and changes are kept for review: avfs diff,
/// avfs apply, avfs discard.
///
/// Before anything else a policy decides. What only looks, writes or deletes inside is run. What needs a network it
/// is not given waits for an approval (avfs approvals), what reaches beyond the sandbox is denied. Why: avfs policy
/// explain -- COMMAND.
///
/// Exit codes: the command's own; 128+N killed by signal N; 120 an approval is required; 121 the sandbox could
/// not be set up; 122 denied; 123 capture failed (avfs recover finishes it); 124 timed out; 125
/// avfs-run's own error; 126 not executable; 127 not found.
#[derive(Parser, Clone, Debug)]
#[command(name = "avfs-run", version, max_term_width = 100)]
#[command(override_usage = "\
avfs-run [OPTIONS] [--] <COMMAND>...
       avfs-run [OPTIONS] --shell <LINE>
       avfs-run [OPTIONS] --request <FILE|->")]
#[command(group = ArgGroup::new("what").required(true).args(["command", "shell", "request", "probe", "man", "serve"]))]
#[command(after_help = "\
Examples:
  avfs-run -- make test
  avfs-run --apply -- cargo fmt
  avfs-run --fork fix-1 --net host --shell 'npm install && npm test'
  avfs-run --json -- python3 script.py
  avfs-run --json --request request.json
  avfs-run --cache write -- make test
  avfs-run --reproducible --fork work -- make dist
  avfs-run --policy agent --approval wait --net host -- npm ci
  avfs-run --net host --secret GITHUB_TOKEN -- gh pr list
  avfs-run --net host --secret NPM_TOKEN --secret KEY=deploy.pem --shell 'sign --key $KEY_FILE'")]
pub struct Args {
    /// A line for /bin/sh -c, in place of a command
    #[arg(long, value_name = "LINE")]
    pub shell: Option<OsString>,
    /// A request in JSON, from a file or from standard input; options win over what it says
    #[arg(long, value_name = "FILE|-")]
    pub request: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// The vault: a path, or the name of one in $XDG_DATA_HOME/avfs/vaults [default: $AVFS_VAULT, else the
    /// nearest .avfs/vault.db, else a new one in ./.avfs]
    #[arg(long, value_name = "PATH|NAME", help_heading = "Workspace")]
    pub vault: Option<OsString>,
    /// Work on this fork, and move it on; made on first use [default: $AVFS_FORK, else one of its own]
    #[arg(long, value_name = "NAME", help_heading = "Workspace")]
    pub fork: Option<ForkName>,
    /// Begin from this version: a fork that is new, or the one of its own that a run without --fork is given [default:
    /// the directory as it is now]
    #[arg(long, value_name = "REF", help_heading = "Workspace")]
    pub from: Option<String>,
    /// Where the workspace is seen inside [default: its own path]
    #[arg(long, value_name = "DIR", help_heading = "Workspace")]
    pub at: Option<PathBuf>,
    /// The working directory, from the workspace's root [default: the same as outside]
    #[arg(long, value_name = "DIR", help_heading = "Workspace")]
    pub cwd: Option<PathBuf>,
    /// What lies beneath a run without --fork: the directory itself or a copy [default: auto] [possible values:
    /// auto, live, cached]
    #[arg(long, value_name = "BASE", hide_possible_values = true, help_heading = "Workspace")]
    pub base: Option<BaseChoice>,

    /// Write the changes to the host's directory if the command exits with 0
    #[arg(long, conflicts_with_all = ["discard", "readonly", "fork"], help_heading = "Changes")]
    pub apply: bool,
    /// Keep nothing but the record of the run
    #[arg(long, help_heading = "Changes")]
    pub discard: bool,
    /// Refuse every write to the workspace
    #[arg(long, help_heading = "Changes")]
    pub readonly: bool,
    /// When to save checkpoints of a run that changed something. auto: after it, and before it unless the policy
    /// says that it only looks; always: both; never [default: auto] [possible values: auto, always, never]
    #[arg(long, value_name = "WHEN", help_heading = "Changes")]
    pub checkpoint: Option<CheckpointMode>,

    /// Whether remembered results are used. read: one that is there is taken, and nothing is executed; write: that,
    /// and what is executed is remembered. The command's standard input is empty with both. Why one is found or not:
    /// avfs cache explain [default: off] [possible values: off, read, write]
    #[arg(long, value_name = "HOW", help_heading = "Cache")]
    pub cache: Option<CacheMode>,
    /// A file or directory of the host that the result depends on: other content is another result
    #[arg(long, value_name = "PATH", help_heading = "Cache")]
    pub input: Vec<PathBuf>,
    /// Remember the result although the command may use the network or what is shown of the host: whoever says this
    /// vouches that they make no difference
    #[arg(long, help_heading = "Cache")]
    pub pure: bool,

    /// Hold to this policy profile too. agent: network, secrets, --rw and less of a sandbox only by approval; ci:
    /// nobody is asked, what would be is denied [possible values: agent, ci]
    #[arg(long, value_name = "PROFILE", help_heading = "Policy")]
    pub policy: Vec<PolicyProfile>,
    /// What to do where an approval is required. fail: exit with 120; wait: until somebody answers with avfs
    /// approvals; ask: at the terminal [default: ask on a terminal without --json, else fail] [possible values:
    /// fail, wait, ask]
    #[arg(long, value_name = "HOW", help_heading = "Policy")]
    pub approval: Option<ApprovalMode>,
    /// Use this approval; exit with 122 if it is not good for this very request
    #[arg(long, value_name = "ID", help_heading = "Policy")]
    pub approved: Option<ApprovalPrefix>,

    /// The network: loopback only, the host's, or places of a list through a proxy that programs find by HTTP_PROXY
    /// and the like. A place is DOMAIN, *.DOMAIN (not DOMAIN itself) or ADDRESS[/PREFIX], with :PORT or else for ports
    /// 80 and 443; a private address needs a place of its own [default: none] [possible values: none, host,
    /// allow=PLACE,...]
    #[arg(long, value_name = "NET", help_heading = "Sandbox")]
    pub net: Option<NetMode>,
    /// How much of the host is seen [default: strict] [possible values: strict, host]
    #[arg(long, value_name = "PROFILE", help_heading = "Sandbox")]
    pub profile: Option<Profile>,
    /// Show a path of the host, read-only
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub ro: Vec<PathBuf>,
    /// Show a path of the host, for reading and writing
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub rw: Vec<PathBuf>,
    /// Put an empty directory in memory there
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub tmpfs: Vec<PathBuf>,
    /// Hide a path
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub hide: Vec<PathBuf>,
    /// Pass a variable on, or set it
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Sandbox")]
    pub env: Vec<OsString>,
    /// Set the variables of a file of NAME=VALUE lines
    #[arg(long, value_name = "FILE", help_heading = "Sandbox")]
    pub env_file: Vec<PathBuf>,
    /// Give a secret: the variable NAME; with =file its value as the file /run/secrets/NAME instead, with =PATH that
    /// file of the host as one; NAME_FILE tells where it is. It is never written down, taken out of what --json
    /// captures (what streams is not touched), and files that hold it are not kept
    #[arg(long, value_name = "NAME[=file|=PATH]", help_heading = "Sandbox")]
    pub secret: Vec<OsString>,
    /// Keep files in which the value of a secret is found
    #[arg(long, help_heading = "Sandbox")]
    pub allow_secret_files: bool,
    /// Which system calls are refused; avfs doctor --explain-denials lists them [default: default] [possible values:
    /// default, strict, off]
    #[arg(long, value_name = "PROFILE", help_heading = "Sandbox")]
    pub seccomp: Option<SeccompProfile>,
    /// Whether Landlock enforces what is seen a second time [default: auto] [possible values: auto, required, off]
    #[arg(long, value_name = "MODE", help_heading = "Sandbox")]
    pub landlock: Option<LandlockMode>,
    /// Let the command make user namespaces of its own, as nested sandboxes do
    #[arg(long, help_heading = "Sandbox")]
    pub allow_userns: bool,
    /// Where what the command writes goes first [default: auto] [possible values: auto, memory, disk]
    #[arg(long, value_name = "SCRATCH", help_heading = "Sandbox")]
    pub scratch: Option<ScratchChoice>,
    /// How the workspace is made writable [default: auto] [possible values: auto, overlay, copy]
    #[arg(long, value_name = "BACKEND", help_heading = "Sandbox")]
    pub backend: Option<BackendChoice>,
    /// Make the run come out the same again: a fixed host name, mask and environment (of the caller's only PATH, HOME
    /// and what --env names) and --clock-fixed. The order of directories, process ids, addresses and the number of
    /// processors are not fixed
    #[arg(long, help_heading = "Sandbox")]
    pub reproducible: bool,
    /// Make this the present: SOURCE_DATE_EPOCH and the times of everything the command writes, and what programs see
    /// where the host has libfaketime; as 2026-01-31T12:00:00Z or @SECONDS [default: 1980-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "@315532800")]
    #[arg(help_heading = "Sandbox")]
    pub clock_fixed: Option<FixedClock>,
    /// Run with less isolation where the host refuses a piece, and say so
    #[arg(long, help_heading = "Sandbox")]
    pub allow_degraded: bool,

    /// How long the command may run: 90s, 10m, 2h, or none [default: 300s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub timeout: Option<ExecutionTimeout>,
    /// How long it has to end after SIGTERM [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub grace: Option<ExecutionTimeout>,
    /// How much memory all its processes may use together: 512MiB, 2GiB, or none
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub memory: Option<Limit>,
    /// How many processors it may use: 2, 0.5, or none; less than a whole one needs control groups
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub cpus: Option<CpuLimit>,
    /// How many processes and threads there may be at once, or none
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub pids: Option<Limit>,
    /// How much it may write to the workspace, and to each file system in memory such as /tmp, or none; what --rw
    /// and caches take is not counted
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub disk: Option<Limit>,
    /// How many files it may make or delete in the workspace, or none; directories and links count
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub files: Option<Limit>,
    /// How large one file may become, or none; a file of the workspace that is larger cannot be changed
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub file_size: Option<Limit>,
    /// How much of each stream is kept with --json
    #[arg(long, value_name = "SIZE", default_value = "10MiB", help_heading = "Limits")]
    pub output_max: Size,

    /// How to tell the changes [default: summary] [possible values: summary, tree, stat, patch]
    #[arg(long, value_name = "FORM", help_heading = "Output")]
    pub show: Option<ChangeForm>,
    /// Print one JSON envelope to stdout, the command's output in it
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write the JSON envelope to this descriptor; the command's output streams
    #[arg(long, value_name = "FD", conflicts_with = "json", help_heading = "Output")]
    pub json_fd: Option<i32>,
    /// No summary on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Say what would be done, and do nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Say whether a remembered result would be taken, and do nothing (for avfs cache explain)
    #[arg(long, hide = true)]
    pub explain_cache: bool,
    /// Print the manual page
    #[arg(long, hide = true)]
    pub man: bool,
    /// Try each piece of the sandbox and print what came of it (for avfs doctor)
    #[arg(long, hide = true)]
    pub probe: bool,
    /// Take orders from standard input, one line of JSON each, and answer each with one (for avfs batch)
    #[arg(long, hide = true)]
    pub serve: bool,
    /// The item of a batch that the command is run for; only an order names one
    #[arg(skip)]
    pub item: Option<BatchItem>,
}

/// What the edge knows beside the words.
pub struct Outside {
    pub cwd: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    /// What is given as secrets.
    pub secrets: Vec<EnvChoice>,
    pub terminal: Terminal,
}

/// Whether a person can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    There,
    None,
}

impl Args {
    /// What names the vault in commands that are told to call.
    pub fn vault_words(&self) -> String {
        vault_words(self.vault.as_deref())
    }

    pub fn command_line(&self) -> CommandLine {
        match &self.shell {
            Some(line) => CommandLine::Shell(line.clone()),
            None => CommandLine::Argv(self.command.clone()),
        }
    }

    /// The fork from the option, else from `$AVFS_FORK`.
    fn fork_choice(&self, outside: &Outside) -> Result<ForkChoice, RunError> {
        let from_env =
            outside.environment.iter().find(|(name, value)| name == "AVFS_FORK" && !value.is_empty());
        let name = match (&self.fork, from_env) {
            (Some(name), _) => Some(name.clone()),
            (None, Some((_, value))) if !self.apply => Some(ForkName::parse(&value.to_string_lossy())?),
            (None, Some(_) | None) => None,
        };
        let from = self
            .from
            .as_deref()
            .map(Reference::parse)
            .transpose()
            .map_err(|error| RunError::Reference(error.into()))?;
        Ok(match name {
            Some(name) => ForkChoice::Persistent { name, from },
            None => ForkChoice::Ephemeral { from },
        })
    }

    pub fn reproducibility(&self) -> Reproducible {
        if self.reproducible { Reproducible::On } else { Reproducible::Off }
    }

    pub fn clock(&self) -> Option<FixedClock> {
        self.clock_fixed.or(self.reproducible.then_some(FixedClock::DEFAULT))
    }

    /// What the words say, else what the settings say.
    fn limits(&self, config: &Config) -> Limits {
        let set = config.limits();
        let limit = |word: Option<Limit>, set| word.map_or(set, |limit| limit.0);
        Limits {
            memory: limit(self.memory, set.memory),
            cpus: self.cpus.map_or(set.cpus, |limit| limit.0),
            pids: limit(self.pids, set.pids),
            disk: limit(self.disk, set.disk),
            files: limit(self.files, set.files),
            file_size: limit(self.file_size, set.file_size),
        }
    }

    fn confinement(&self, config: &Config) -> Confinement {
        let set = config.confinement();
        Confinement {
            seccomp: self.seccomp.unwrap_or(set.seccomp),
            landlock: self.landlock.unwrap_or(set.landlock),
            userns: if self.allow_userns { NestedUserns::Allowed } else { set.userns },
        }
    }

    /// What becomes of the output: JSON holds it.
    fn streams(&self) -> Streams {
        match self.json {
            true => Streams::Captured { bytes_max: usize::try_from(self.output_max.0).unwrap_or(usize::MAX) },
            false => Streams::Passed,
        }
    }

    /// The secrets, understood and read: once, since a file may be a pipe.
    pub fn secrets(&self, cwd: &Path) -> Result<Vec<EnvChoice>, RunError> {
        let words = self.secret.iter().map(|word| Ok(SecretWord::parse(word)?.choice(cwd)?));
        words.collect()
    }

    /// What is given as variables, and the files that some of it comes from.
    fn env_choices(&self, config: &Config) -> Result<(Vec<EnvChoice>, Vec<PathBuf>), RunError> {
        // What the settings let in is the caller's too, and nobody named it for this run.
        let settings = config.run_env.iter().filter(|_| !self.reproducible);
        let named = settings.map(|name| EnvChoice::PassBySetting(OsString::from(&name.value)));
        let mut choices: Vec<EnvChoice> = named.collect();
        let mut files = Vec::new();
        for file in &self.env_file {
            let (variables, real) = env_file(file)?;
            choices.extend(variables);
            files.push(real);
        }
        for word in &self.env {
            choices.push(env_word(word).ok_or_else(|| RunError::BadEnv { word: word.clone() })?);
        }
        Ok((choices, files))
    }

    /// The request, complete: what no word says is as the settings have it. `extras` come from them too, and
    /// lie beneath what the words ask for.
    pub fn request(
        &self,
        outside: &Outside,
        config: &Config,
        mut extras: Vec<Extra>,
    ) -> Result<ExecutionRequest, RunError> {
        let absolute = |path: &PathBuf| outside.cwd.join(path).components().collect::<PathBuf>();
        // Where `..` leads inside is not where it leads here: such a path would be judged as another one.
        let climbs = |path: &PathBuf| path.components().any(|part| part == Component::ParentDir);
        if let Some(path) = self.tmpfs.iter().chain(&self.hide).map(absolute).find(climbs) {
            return Err(RunError::ParentDir { path });
        }
        extras.extend(self.tmpfs.iter().map(|path| Extra::Tmpfs(absolute(path))));
        let mut named_ro = Vec::new();
        for (paths, kind) in
            [(&self.ro, Extra::ReadOnly as fn(HostPath) -> Extra), (&self.rw, Extra::ReadWrite)]
        {
            for path in paths {
                let path = absolute(path);
                let shown = HostPath::resolve(path.clone()).map_err(|_| RunError::NoPath { path })?;
                let real = shown.real.clone();
                // What the settings show already is not shown twice.
                let wanted = kind(shown);
                if matches!(wanted, Extra::ReadOnly(_)) {
                    named_ro.push(real);
                }
                if !extras.contains(&wanted) {
                    extras.push(wanted);
                }
            }
        }
        extras.extend(self.hide.iter().map(|path| Extra::Hide(absolute(path))));
        let inputs: Vec<PathBuf> = self.input.iter().map(absolute).collect();
        if let Some(path) = inputs.iter().find(|path| !path.exists()) {
            return Err(RunError::NoPath { path: path.clone() });
        }
        let (mut choices, env_files) = self.env_choices(config)?;
        choices.extend(outside.secrets.iter().cloned());
        let (reproducible, clock) = (self.reproducibility(), self.clock());
        let variables = outside.environment.iter().cloned();
        let mut environment = Environment::choose_over(variables, reproducible, clock, &choices);
        let secret_files = environment.take_secret_files();
        Ok(ExecutionRequest {
            command: self.command_line(),
            fork: self.fork_choice(outside)?,
            retention: match (self.apply, self.discard) {
                (true, _) => Retention::Apply,
                (false, true) => Retention::Discard,
                (false, false) => Retention::Review,
            },
            writing: if self.readonly { Writing::Refused } else { Writing::Allowed },
            base: self.base.unwrap_or(BaseChoice::Auto),
            scratch: self.scratch.unwrap_or(config.run_scratch.value),
            backend: self.backend.unwrap_or(BackendChoice::Auto),
            checkpoint: self.checkpoint.unwrap_or(CheckpointMode::Auto),
            degradation: if self.allow_degraded { Degradation::Allowed } else { Degradation::Refused },
            at: self.at.clone(),
            cwd: self.cwd.clone(),
            timeout: self.timeout.unwrap_or(config.run_timeout.value),
            grace: self.grace.unwrap_or(config.run_grace.value).duration().unwrap_or(Duration::MAX),
            net: self.net.clone().unwrap_or_else(|| config.run_net.value.clone()),
            proc: ProcMode::Private,
            profile: self.profile.unwrap_or(config.run_profile.value),
            extras,
            environment,
            reproducible,
            clock,
            secret_files,
            secrets_in_files: match self.allow_secret_files {
                true => SecretsInFiles::Allowed,
                false => SecretsInFiles::Refused,
            },
            limits: self.limits(config),
            confinement: self.confinement(config),
            streams: self.streams(),
            cache: self.cache.unwrap_or(config.run_cache.value),
            inputs,
            purity: if self.pure { Purity::Declared } else { Purity::Unknown },
            show: self.show.unwrap_or(ChangeForm::Summary),
            policy: self.policy.clone(),
            approval: self.approval.unwrap_or(match outside.terminal {
                // Who reads JSON is no person.
                Terminal::There if !self.json => ApprovalMode::Ask,
                Terminal::There | Terminal::None => ApprovalMode::Fail,
            }),
            approved: self.approved.clone(),
            item: self.item.clone(),
            named: Named { vault: None, ro: named_ro, env_files, net: self.net.is_some() },
        })
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

/// Lines of `NAME=VALUE`; empty ones and those that begin with `#` mean nothing.
///
/// Opened once: the real path, by which it is judged, is that of the file that was read.
fn env_file(path: &Path) -> Result<(Vec<EnvChoice>, PathBuf), RunError> {
    let read = || -> std::io::Result<(Vec<u8>, PathBuf)> {
        let mut file = std::fs::File::open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok((text, std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?))
    };
    let (text, real) = read().map_err(|source| RunError::EnvFile { path: path.to_owned(), source })?;
    let mut choices = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        match env_word(OsStr::from_bytes(line)) {
            Some(EnvChoice::Set(name, value)) => choices.push(EnvChoice::SetByFile(name, value)),
            Some(
                EnvChoice::Pass(_)
                | EnvChoice::SetByFile(..)
                | EnvChoice::PassBySetting(_)
                | EnvChoice::Secret(_)
                | EnvChoice::SecretInFile(_)
                | EnvChoice::SecretFile(_),
            )
            | None => {
                return Err(RunError::EnvLine { path: path.to_owned(), line: number + 1 });
            }
        }
    }
    Ok((choices, real))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside() -> Outside {
        Outside {
            cwd: "/w".into(),
            environment: vec![("PATH".into(), "/bin".into())],
            secrets: Vec::new(),
            terminal: Terminal::None,
        }
    }

    #[test]
    fn a_word_after_two_dashes_is_never_an_option() {
        let args = Args::try_parse_from(["avfs-run", "--json", "--", "ls", "--json", "--fork"]).unwrap();
        assert_eq!(args.command, ["ls", "--json", "--fork"]);
        assert!(args.fork.is_none());
    }

    #[test]
    fn one_command_or_one_line_is_required() {
        assert!(Args::try_parse_from(["avfs-run"]).is_err());
        assert!(Args::try_parse_from(["avfs-run", "--shell", "x", "--", "y"]).is_err());
        assert!(Args::try_parse_from(["avfs-run", "--shell", "a && b"]).is_ok());
    }

    #[test]
    fn variables_are_passed_or_set() {
        let args = Args::try_parse_from(["avfs-run", "--env", "A=b=c", "--env", "PATH", "true"]).unwrap();
        let request = args.request(&outside(), &Config::default(), Vec::new()).unwrap();
        assert_eq!(request.environment.get("A"), Some(OsStr::new("b=c")));
        let bad = Args::try_parse_from(["avfs-run", "--env", "=x", "true"]).unwrap();
        assert!(matches!(
            bad.request(&outside(), &Config::default(), Vec::new()),
            Err(RunError::BadEnv { .. })
        ));
    }

    /// Every option, and what the profile `agent` and the caps say of it: the rule that asks and the key that holds
    /// it, or why it needs neither.
    const EFFECTS: &[(&str, &str)] = &[
        ("command", "the rules are about it"),
        ("shell", "the rules are about it"),
        ("request", "each of its keys is one of these options"),
        ("vault", "profile.agent.vault caps.vault profile.agent.new_vault caps.new_vault"),
        ("fork", "the rules are about it"),
        ("from", "any version of the vault"),
        ("at", "profile.agent.at caps.at"),
        ("cwd", "a directory of the view"),
        ("base", "the same files by another way"),
        ("apply", "profile.agent.apply caps.apply"),
        ("discard", "keeps less"),
        ("readonly", "gives less"),
        ("checkpoint", "what is kept"),
        ("cache", "a remembered result of the same request"),
        ("input", "is compared, and not shown"),
        ("pure", "whether a result is remembered"),
        ("policy", "only adds strictness"),
        ("approval", "how an answer is waited for"),
        ("approved", "names an approval, which is checked"),
        ("net", "profile.agent.net caps.net"),
        ("profile", "profile.agent.profile caps.profile"),
        ("ro", "profile.agent.ro caps.ro"),
        ("rw", "profile.agent.rw caps.rw"),
        ("tmpfs", "profile.agent.cover caps.cover"),
        ("hide", "profile.agent.cover caps.cover"),
        ("env", "profile.agent.secrets caps.secrets"),
        ("env_file", "profile.agent.env_file caps.env_file"),
        ("secret", "profile.agent.secrets caps.secrets"),
        ("allow_secret_files", "keeps what the command was given already"),
        ("seccomp", "profile.agent.confinement caps.seccomp"),
        ("landlock", "profile.agent.confinement caps.landlock"),
        ("allow_userns", "profile.agent.confinement caps.userns"),
        ("scratch", "where changes wait"),
        ("backend", "the same files by another way"),
        ("reproducible", "gives less"),
        ("clock_fixed", "a time"),
        ("allow_degraded", "profile.agent.degraded caps.degraded"),
        ("timeout", "caps.timeout"),
        ("grace", "caps.timeout"),
        ("memory", "caps.memory"),
        ("cpus", "caps.cpus"),
        ("pids", "caps.pids"),
        ("disk", "caps.disk"),
        ("files", "caps.files"),
        ("file_size", "caps.file_size"),
        ("output_max", "how much of the output is kept"),
        ("show", "how changes are printed"),
        ("json", "how the answer is given"),
        ("json_fd", "how the answer is given"),
        ("quiet", "how the answer is given"),
        ("dry_run", "runs nothing"),
        ("explain_cache", "runs nothing"),
        ("man", "runs nothing"),
        ("probe", "runs nothing of the caller"),
        ("serve", "each order is a request"),
        ("help", "runs nothing"),
        ("version", "runs nothing"),
    ];

    #[test]
    fn every_option_has_a_stated_effect_on_profile_and_caps() {
        use clap::CommandFactory;
        let mut command = Args::command();
        command.build();
        let declared: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        for name in &declared {
            assert!(EFFECTS.iter().any(|(option, _)| option == name), "no effect is stated for --{name}");
        }
        let page = include_str!("../../../docs/POLICY.md");
        for (option, effect) in EFFECTS {
            assert!(declared.contains(option), "there is no --{option}");
            for rule in effect.split(' ').filter(|word| word.contains('.')) {
                assert!(page.contains(&format!("`{rule}`")), "docs/POLICY.md does not explain {rule}");
            }
        }
    }

    #[test]
    fn a_run_of_its_own_can_begin_anywhere() {
        let args = Args::try_parse_from(["avfs-run", "--from", "main~1", "true"]).unwrap();
        let request = args.request(&outside(), &Config::default(), Vec::new()).unwrap();
        assert_eq!(request.fork, ForkChoice::Ephemeral { from: Some(Reference::parse("main~1").unwrap()) });
    }
}
