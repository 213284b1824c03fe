//! A complete request: one command, its fork, and its sandbox.
//!
//! A field of [`ExecutionRequest`] appears here in five places: its declaration, its default, the option that sets it,
//! its part of the digest and of the result cache's key, and its form in envelopes. The compiler checks each.

mod check;
mod resolve;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_types::CommandLine;
use avfs_types::base64::base64;
use avfs_types::command_line::shown_word;
use avfs_types::encode::put_bytes;
use avfs_types::ids::{ApprovalPrefix, BatchItem, DigestKind, RequestDigest};
use avfs_types::reference::Reference;
use avfs_types::secrets::Secrets;

use crate::choices::{
    ApprovalMode, BackendChoice, BaseChoice, CacheMode, ChangeForm, CheckpointMode, Degradation, ForkChoice,
    GitIdentity, HomeMode, OutputRetention, PolicyProfile, Purity, Retention, ScratchChoice, SecretsInFiles,
    TmpMode, Writing,
};
use crate::config::Config;
use crate::confinement::{Confinement, NestedUserns};
use crate::environment::Environment;
use crate::extra::{Extra, Profile};
use crate::limits::Limits;
use crate::net::NetMode;
use crate::preset::{Preset, is_read};
use crate::reproducible::{FixedClock, Reproducible};
use crate::secret::SecretFile;
use crate::spec::{CommandText, RequestObject, RunSpec, brought};
use crate::streams::{ProcMode, Streams};
use crate::timeout::ExecutionTimeout;

pub use check::RequestError;
pub use resolve::{Outside, ResolveError, Terminal};

/// A complete request: nothing else determines what happens.
#[derive(Clone, Debug)]
pub struct ExecutionRequest {
    pub command: CommandLine,
    pub fork: ForkChoice,
    pub retention: Retention,
    pub writing: Writing,
    pub base: BaseChoice,
    pub scratch: ScratchChoice,
    pub backend: BackendChoice,
    pub checkpoint: CheckpointMode,
    pub degradation: Degradation,
    /// Where the workspace is mounted in the sandbox; `None` for its path on the host.
    pub at: Option<PathBuf>,
    /// The working directory in the sandbox; relative to the workspace.
    pub cwd: Option<PathBuf>,
    pub timeout: ExecutionTimeout,
    pub grace: Duration,
    pub net: NetMode,
    pub proc: ProcMode,
    pub profile: Profile,
    pub git_identity: GitIdentity,
    pub extras: Vec<Extra>,
    /// The presets of the request and of the settings. What they add is already in the other fields, except for their
    /// caches.
    pub presets: Vec<Preset>,
    /// The cache directories of the settings, as they are written there. The run adds them to `extras`.
    pub cache_dirs: Vec<String>,
    /// Whether the fork keeps the home and /tmp of the command; their directories are in `extras`.
    pub home: HomeMode,
    pub tmp: TmpMode,
    pub environment: Environment,
    pub reproducible: Reproducible,
    /// The time at which the clock is frozen.
    pub clock: Option<FixedClock>,
    pub secret_files: Vec<SecretFile>,
    /// Whether files that contain the value of a secret are kept.
    pub secrets_in_files: SecretsInFiles,
    pub limits: Limits,
    pub confinement: Confinement,
    pub streams: Streams,
    /// Whether the input and output of the command are a terminal.
    pub terminal: Terminal,
    /// Whether the output of the command is kept in the vault.
    pub output: OutputRetention,
    pub cache: CacheMode,
    /// Host files and directories that the result depends on.
    pub inputs: Vec<PathBuf>,
    pub purity: Purity,
    /// How to show the changes.
    pub show: ChangeForm,
    /// Policy profiles that apply in addition to those of the policy files.
    pub policy: Vec<PolicyProfile>,
    pub approval: ApprovalMode,
    /// An approval that is presented with the request.
    pub approved: Option<ApprovalPrefix>,
    /// The item of a batch that the request is for.
    pub item: Option<BatchItem>,
    pub named: Named,
}

/// What the request itself asks for, without what the settings add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// A vault other than the one that would be found.
    pub vault: Option<NamedVault>,
    /// Resolved paths of `--ro`, and of `--env-file`.
    pub ro: Vec<PathBuf>,
    pub env_files: Vec<PathBuf>,
    /// Whether the request itself sets the network, even to none.
    pub net: bool,
    pub presets: Vec<Preset>,
    /// Whether an option `--env NAME` passes a variable of the caller.
    pub variables: bool,
    pub profile: Option<Profile>,
    /// The confinement without the settings.
    pub confinement: Confinement,
}

impl ExecutionRequest {
    /// A request for this command, with defaults for everything else.
    #[must_use]
    pub fn of(command: CommandLine) -> Self {
        Self {
            command,
            fork: ForkChoice::Ephemeral { from: None },
            retention: Retention::Review,
            writing: Writing::Allowed,
            base: BaseChoice::Auto,
            scratch: ScratchChoice::Auto,
            backend: BackendChoice::Auto,
            checkpoint: CheckpointMode::Auto,
            degradation: Degradation::Refused,
            at: None,
            cwd: None,
            timeout: ExecutionTimeout::DEFAULT,
            grace: Duration::from_secs(5),
            net: NetMode::None,
            proc: ProcMode::Private,
            profile: Profile::Strict,
            git_identity: GitIdentity::Host,
            extras: Vec::new(),
            presets: Vec::new(),
            cache_dirs: Vec::new(),
            home: HomeMode::Private,
            tmp: TmpMode::Private,
            environment: Environment::default(),
            reproducible: Reproducible::Off,
            clock: None,
            secret_files: Vec::new(),
            secrets_in_files: SecretsInFiles::Refused,
            limits: Limits::default(),
            confinement: Confinement::DEFAULT,
            streams: Streams::Passed,
            terminal: Terminal::None,
            output: OutputRetention::Dropped,
            cache: CacheMode::Off,
            inputs: Vec::new(),
            purity: Purity::Unknown,
            show: ChangeForm::Summary,
            policy: Vec::new(),
            approval: ApprovalMode::Fail,
            approved: None,
            item: None,
            named: Named::default(),
        }
    }

    /// Resolves a specification to a request; unset fields are taken from the settings.
    pub fn resolve(spec: &RunSpec, outside: &Outside, config: &Config) -> Result<Self, ResolveError> {
        let default = Self::of(spec.command_line()?);
        let set = (config.limits(), config.confinement());
        let (reproducible, clock) = (resolve::reproducible(spec), resolve::clock(spec));
        let (extras, named_ro) = resolve::extras(spec, &outside.cwd)?;
        let cache = spec.cache.unwrap_or(config.run_cache.value);
        let terminal = resolve::terminal(outside, cache);
        let (presets, net) = (resolve::presets(spec, config), resolve::net(spec, config));
        let around = resolve::Around { outside, config, net: &net, cache };
        let (mut environment, env_files) = resolve::environment(spec, &around)?;
        let secret_files = environment.take_secret_files();
        let names = || outside.environment.iter().map(|(name, _)| name);
        if resolve::may_use_variables(&default.command)
            || names().any(|name| name.to_str().is_some_and(is_read))
        {
            environment.withhold(names());
        }
        let memory = spec.memory.map_or(set.0.memory, |limit| limit.0);
        resolve::check_memory(memory)?;
        let cache = spec.cache.unwrap_or(config.run_cache.value);
        let fork = resolve::fork(spec, outside)?;
        resolve::check_kept(spec, &fork)?;
        let base = resolve::base(spec, config, &fork, cache)?;
        Ok(Self {
            fork,
            retention: spec.kept(),
            writing: if spec.readonly { Writing::Refused } else { default.writing },
            base,
            scratch: spec.scratch.unwrap_or(config.run_scratch.value),
            backend: spec.backend.unwrap_or(default.backend),
            checkpoint: spec.checkpoint.unwrap_or(default.checkpoint),
            degradation: if spec.allow_degraded { Degradation::Allowed } else { default.degradation },
            at: spec.at.clone(),
            cwd: spec.cwd.clone(),
            timeout: resolve::timeout(spec).unwrap_or_else(|| resolve::timeout_by_default(config, terminal)),
            terminal,
            grace: resolve::grace(spec).unwrap_or(config.run_grace.value).duration().unwrap_or(Duration::MAX),
            net,
            presets,
            cache_dirs: config.cache_dirs.iter().map(|setting| setting.value.clone()).collect(),
            profile: spec.profile.unwrap_or(config.run_profile.value),
            // The result must not depend on the user.
            git_identity: match (reproducible, cache) {
                (Reproducible::Off, CacheMode::Off) => {
                    spec.git_identity.unwrap_or(config.run_git_identity.value)
                }
                (Reproducible::On, _) | (_, CacheMode::Read | CacheMode::Write) => GitIdentity::None,
            },
            extras,
            home: spec.home.unwrap_or(default.home),
            tmp: if spec.keep_tmp { TmpMode::Kept } else { default.tmp },
            environment,
            reproducible,
            clock,
            secret_files,
            secrets_in_files: match spec.allow_secret_files {
                true => SecretsInFiles::Allowed,
                false => default.secrets_in_files,
            },
            limits: Limits {
                memory,
                cpus: spec.cpus.map_or(set.0.cpus, |limit| limit.0),
                pids: spec.pids.map_or(set.0.pids, |limit| limit.0),
                disk: spec.disk.map_or(set.0.disk, |limit| limit.0),
                files: spec.files.map_or(set.0.files, |limit| limit.0),
                file_size: spec.file_size.map_or(set.0.file_size, |limit| limit.0),
            },
            confinement: resolve::confinement(spec, set.1),
            output: if spec.keep_output { OutputRetention::Kept } else { default.output },
            cache,
            inputs: resolve::inputs(spec, &outside.cwd)?,
            purity: if spec.pure { Purity::Declared } else { default.purity },
            policy: spec.policy.clone(),
            approval: spec.approval.unwrap_or(match outside.terminal {
                Terminal::There => ApprovalMode::Ask,
                Terminal::None => default.approval,
            }),
            approved: spec.approved.clone(),
            named: Named {
                vault: None,
                ro: named_ro,
                env_files,
                net: spec.net.is_some() || !spec.preset.is_empty(),
                presets: spec.preset.clone(),
                variables: resolve::names_variables(spec),
                profile: spec.profile,
                confinement: resolve::confinement(spec, Confinement::DEFAULT),
            },
            ..default
        })
    }

    /// Puts the mounts of the settings below those of the request; a mount in both is not repeated.
    pub fn put_beneath(&mut self, mut settings: Vec<Extra>) {
        let own = std::mem::take(&mut self.extras);
        settings.extend(own.into_iter().filter(|extra| !settings.contains(extra)).collect::<Vec<_>>());
        self.extras = settings;
    }

    /// The digest that an approval of this request is bound to: everything requested, in the directory `cwd`. The
    /// values of secrets are not part of it, since the digest is stored; nor is the form of the answer.
    #[must_use]
    pub fn digest(&self, cwd: &Path) -> RequestDigest {
        // Destructured, so that the compiler reports a new field that is not handled.
        let Self {
            command,
            fork,
            retention,
            writing,
            base,
            scratch,
            backend,
            checkpoint,
            degradation,
            at,
            // The directory it resolves to is `cwd`.
            cwd: _,
            timeout,
            grace,
            net,
            proc,
            profile,
            // A name is not a permission.
            git_identity: _,
            extras,
            // What they add is in the other fields.
            presets: _,
            // The caches and the directories that the fork keeps are in `extras`.
            cache_dirs: _,
            home: _,
            tmp: _,
            environment,
            reproducible,
            clock,
            secret_files,
            secrets_in_files,
            limits,
            confinement,
            streams: _,
            terminal: _,
            output: _,
            // A cached result is the result of running the same request.
            cache: _,
            inputs,
            purity: _,
            show: _,
            policy,
            approval: _,
            approved: _,
            item: _,
            // The rest is already included.
            named:
                Named { vault, ro: _, env_files: _, net: _, presets: _, variables: _, profile: _, confinement: _ },
        } = self;
        let mut bytes = Vec::with_capacity(1024);
        let mut put = |field: &[u8]| put_bytes(&mut bytes, field);
        let (mode, words) = match command {
            CommandLine::Argv(words) => ("argv", words.as_slice()),
            CommandLine::Shell(line) => ("shell", std::slice::from_ref(line)),
        };
        put(mode.as_bytes());
        put(&words.len().to_be_bytes());
        words.iter().for_each(|word| put(word.as_bytes()));
        let (fork, from) = match fork {
            ForkChoice::Ephemeral { from } => ("", from.as_ref()),
            ForkChoice::Persistent { name, from } => (name.as_str(), from.as_ref()),
        };
        put(fork.as_bytes());
        put(from.map_or("", Reference::text).as_bytes());
        for word in [
            retention.word(),
            writing.word(),
            base.word(),
            scratch.word(),
            backend.word(),
            checkpoint.word(),
            degradation.word(),
            &net.to_string(),
            proc.word(),
            profile.word(),
            secrets_in_files.word(),
            confinement.seccomp.word(),
            confinement.landlock.word(),
            confinement.userns.word(),
        ] {
            put(word.as_bytes());
        }
        put(at.as_ref().map_or(&b""[..], |at| at.as_os_str().as_bytes()));
        put(cwd.as_os_str().as_bytes());
        put(timeout.to_string().as_bytes());
        put(&grace.as_millis().to_be_bytes());
        put_limits(limits, &mut put);
        put(&secret_files.len().to_be_bytes());
        for file in secret_files {
            put(file.name.as_bytes());
            put(file.source.as_ref().map_or(&b""[..], |source| source.as_os_str().as_bytes()));
        }
        put(&policy.len().to_be_bytes());
        policy.iter().for_each(|profile| put(profile.word().as_bytes()));
        put_extras(extras, &mut put);
        for (name, value) in environment.pairs() {
            // A secret must not have the digest of an empty variable: the approval of one does not cover the other.
            let (kind, value) = match environment.is_secret(&name) {
                true => ("secret", &b""[..]),
                false => ("value", value.as_bytes()),
            };
            put(name.as_bytes());
            put(kind.as_bytes());
            put(value);
        }
        // After the variables, in the same form but of another kind: a request without them keeps the digest it always
        // had.
        if let Some(clock) = clock {
            [&b"clock"[..], b"fixed", clock.epoch().as_bytes()].into_iter().for_each(&mut put);
        }
        match reproducible {
            Reproducible::Off => {}
            Reproducible::On => [&b"reproducible"[..], b"on", b""].into_iter().for_each(&mut put),
        }
        if let Some(NamedVault { path, .. }) = vault {
            [&b"vault"[..], b"named", path.as_os_str().as_bytes()].into_iter().for_each(&mut put);
        }
        for path in inputs {
            [&b"input"[..], b"named", path.as_os_str().as_bytes()].into_iter().for_each(&mut put);
        }
        RequestDigest(DigestKind::Request.digest(&bytes))
    }

    /// The part of the result cache's key that covers the confinement of the command.
    #[must_use]
    pub fn sandbox_key(&self, umask: u32, home: Option<&Path>) -> Vec<u8> {
        // Destructured, so that the compiler reports a new field that is not handled.
        let Self {
            writing,
            scratch,
            backend,
            degradation,
            timeout,
            grace,
            net,
            proc,
            profile,
            extras,
            // The caches and the directories that the fork keeps are in `extras`.
            cache_dirs: _,
            home: _,
            tmp: _,
            secrets_in_files,
            limits,
            confinement,
            reproducible,
            clock,
            // Their caches are in `extras`.
            presets: _,
            // Separate parts of the key.
            command: _,
            environment: _,
            inputs: _,
            // The directories they resolve to are in the part for places.
            at: _,
            cwd: _,
            // The run starts from the base, regardless of its origin.
            fork: _,
            base: _,
            // What happens to the changes, and how they are shown.
            item: _,
            retention: _,
            checkpoint: _,
            streams: _,
            terminal: _,
            output: _,
            show: _,
            // Whether the request may run.
            policy: _,
            approval: _,
            approved: _,
            named: _,
            // Always none if results are cached.
            git_identity: _,
            // A run with secret files is never cached.
            secret_files: _,
            // Whether the result may be cached.
            cache: _,
            purity: _,
        } = self;
        let mut bytes = Vec::with_capacity(512);
        let mut put = |field: &[u8]| put_bytes(&mut bytes, field);
        for word in [
            writing.word(),
            scratch.word(),
            backend.word(),
            degradation.word(),
            &timeout.to_string(),
            &net.to_string(),
            proc.word(),
            profile.word(),
            secrets_in_files.word(),
            confinement.seccomp.word(),
            confinement.landlock.word(),
            confinement.userns.word(),
            reproducible.word(),
            &clock.map(|clock| clock.to_string()).unwrap_or_default(),
        ] {
            put(word.as_bytes());
        }
        put(&grace.as_millis().to_be_bytes());
        put(&umask.to_be_bytes());
        put(home.map_or(&b""[..], |home| home.as_os_str().as_bytes()));
        put_limits(limits, &mut put);
        put_extras(extras, &mut put);
        bytes
    }

    /// The values that must not appear in stored or displayed data.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        let variables = self.environment.secret_values();
        let variables = variables.map(|(name, value)| (shown_word(name), value.as_bytes()));
        let files = self.secret_files.iter().map(|file| (shown_word(&file.name), file.bytes.as_slice()));
        Secrets::new(variables.chain(files))
    }

    /// Names of everything of the caller that the request hands over. A host file is also listed by its path, since the
    /// request chooses the name.
    #[must_use]
    pub fn handed_over(&self) -> Vec<String> {
        let mut names = self.environment.handed_over();
        for file in &self.secret_files {
            names.push(shown_word(&file.name));
            names.extend(file.source.as_ref().map(|source| shown_word(source.as_os_str())));
        }
        names
    }

    /// The command on one line, without the values of secrets.
    #[must_use]
    pub fn shown_command(&self) -> String {
        let secrets = self.secrets();
        self.command.shown_with(|word| secrets.scrub_text(word))
    }
}

fn put_limits(limits: &Limits, put: &mut impl FnMut(&[u8])) {
    let limits: Vec<_> = limits.set().collect();
    put(&limits.len().to_be_bytes());
    for (kind, value) in limits {
        put(kind.word().as_bytes());
        put(&value.to_be_bytes());
    }
}

fn put_extras(extras: &[Extra], put: &mut impl FnMut(&[u8])) {
    put(&extras.len().to_be_bytes());
    for extra in extras {
        put(extra.kind().as_bytes());
        put(extra.path().as_os_str().as_bytes());
        put(extra.source().as_os_str().as_bytes());
    }
}

/// The request without a command: what each key means if it is absent.
impl Default for RequestObject {
    fn default() -> Self {
        Self::of(&ExecutionRequest::of(CommandLine::Argv(Vec::new())), None)
    }
}

impl RequestObject {
    #[must_use]
    pub fn of(request: &ExecutionRequest, vault: Option<&std::path::Path>) -> Self {
        let path = |path: &std::path::PathBuf| path.display().to_string();
        let paths = |wanted: fn(&Extra) -> bool| {
            let chosen = request.extras.iter().filter(|extra| wanted(extra));
            chosen.map(|extra| extra.path().display().to_string()).collect::<Vec<_>>()
        };
        let words = request.command.words();
        let is_text = words.iter().all(|word| word.to_str().is_some());
        let secrets = request.secrets();
        let scrubbed = |word: &OsString| secrets.scrub(word.as_encoded_bytes().to_vec());
        let bytes = || words.iter().map(|word| base64(&scrubbed(word))).collect();
        let shown = |word: &OsString| secrets.scrub_text(shown_word(word));
        let (command, command_mode) = match &request.command {
            CommandLine::Argv(words) => (CommandText::Argv(words.iter().map(shown).collect()), "argv"),
            CommandLine::Shell(line) => (CommandText::Shell(shown(line)), "shell"),
        };
        Self {
            command,
            command_mode: command_mode.into(),
            command_base64: (!is_text).then(bytes),
            vault: vault.map(|vault| vault.display().to_string()),
            vault_named: request.named.vault.is_some(),
            fork: match &request.fork {
                ForkChoice::Ephemeral { .. } => None,
                ForkChoice::Persistent { name, .. } => Some(name.to_string()),
            },
            from: request.fork.from().map(|from| from.text().to_owned()),
            cwd: request.cwd.as_ref().map(path),
            at: request.at.as_ref().map(path),
            readonly: request.writing == Writing::Refused,
            timeout_ms: request.timeout.millis(),
            grace_ms: u64::try_from(request.grace.as_millis()).unwrap_or(u64::MAX),
            checkpoint_mode: request.checkpoint.word().into(),
            net: request.net.to_string(),
            retention: request.retention.word().into(),
            base: request.base.word().into(),
            scratch: request.scratch.word().into(),
            backend: request.backend.word().into(),
            profile: request.profile.word().into(),
            git_identity: match request.git_identity {
                GitIdentity::None
                    if request.reproducible == Reproducible::Off && request.cache == CacheMode::Off =>
                {
                    Some(GitIdentity::None.word().into())
                }
                GitIdentity::None | GitIdentity::Host => None,
            },
            allow_degraded: request.degradation == Degradation::Allowed,
            ro: paths(|extra| matches!(extra, Extra::ReadOnly(_))),
            rw: paths(|extra| matches!(extra, Extra::ReadWrite(_))),
            preset: request.named.presets.iter().map(|preset| preset.word().into()).collect(),
            links: request
                .extras
                .iter()
                .filter_map(|extra| match extra {
                    Extra::ReadOnly(shown) | Extra::ReadWrite(shown) if shown.path != shown.real => {
                        Some((path(&shown.path), path(&shown.real)))
                    }
                    Extra::ReadOnly(_)
                    | Extra::ReadWrite(_)
                    | Extra::Tmpfs(_)
                    | Extra::Hide(_)
                    | Extra::Cache { .. } => None,
                })
                .collect(),
            ro_named: request.named.ro.iter().map(path).collect(),
            tmpfs: paths(|extra| matches!(extra, Extra::Tmpfs(_))),
            hide: paths(|extra| matches!(extra, Extra::Hide(_))),
            home: Some(request.home.word().into()).filter(|_| request.home == HomeMode::Persistent),
            keep_tmp: request.tmp == TmpMode::Kept,
            cache: paths(|extra| matches!(extra, Extra::Cache { .. })),
            env: brought(request, &secrets),
            env_files: request.named.env_files.iter().map(path).collect(),
            reproducible: request.reproducible == Reproducible::On,
            clock_fixed: request.clock.map(|clock| clock.to_string()),
            environment: request.environment.names(),
            secrets: request.environment.secret_names(),
            secret_files: request
                .secret_files
                .iter()
                .map(|file| match &file.source {
                    Some(source) => format!("{}={}", shown_word(&file.name), source.display()),
                    None => shown_word(&file.name),
                })
                .collect(),
            allow_secret_files: request.secrets_in_files == SecretsInFiles::Allowed,
            memory: request.limits.memory,
            cpus: request.limits.cpus.map(|cpus| cpus.to_string()),
            pids: request.limits.pids,
            disk: request.limits.disk,
            files: request.limits.files,
            file_size: request.limits.file_size,
            seccomp: request.confinement.seccomp.word().into(),
            landlock: request.confinement.landlock.word().into(),
            allow_userns: request.confinement.userns == NestedUserns::Allowed,
            policy: request.policy.iter().map(|profile| profile.word().into()).collect(),
            cache_mode: request.cache.word().into(),
            inputs: request.inputs.iter().map(path).collect(),
            keep_output: request.output == OutputRetention::Kept,
            pure: request.purity == Purity::Declared,
            later: serde_json::Map::new(),
        }
    }
}

/// A vault that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVault {
    pub path: PathBuf,
    /// The user created or trusts it, so approvals in it are the user's.
    pub is_trusted: bool,
}
