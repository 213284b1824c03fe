//! The context of this process: the vault, the settings and the host, found once. Requests are resolved against it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{
    CacheKeeper, CacheOwners, ExecuteError, Executed, ForkDirs, LocateError, Located, Look, Machine,
    MemoSite, NewVault, Note, NoteDelivery, Outcome, PolicyTexts, ProxyRuntime, Reason, RememberFor, Site,
    Surroundings, UNBOUND_PATH, VAULT_SKIPPED, VaultSource, WarnAbove, batch_lock, bound_dir, cache_line,
    check_request, look, make_first_vault, stat_cache_path, why_not_remembered,
};
use avfs_hostfs::held::HeldFile;
use avfs_hostfs::{lock, machine, mask, owner};
use avfs_policy::{Opening, Policy};
use avfs_present::Avfs;
use avfs_request::config::Config;
use avfs_request::request::NamedVault;
use avfs_request::{ExecutionRequest, Extra, ForkChoice, HomeMode, Outside, Retention, Terminal, TmpMode};
use avfs_types::clock::SystemClock;
use avfs_types::ids::BatchId;
use avfs_types::{VAULT_DIR, VAULT_FILE, pause};
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::{Context, Vault, VaultError};

use crate::command::approve::AtTerminal;
use crate::command::args::Args;
use crate::command::error::RunError;
use crate::command::run::Asked;
use crate::command::waiting::{Audience, Waiting};
use crate::command::{render, settings};
use crate::sandbox::HostSandboxes;

pub struct Invocation {
    pub around: Surroundings,
    pub vault: Vault,
    /// The vault, if it is not the one that would be found from the working directory.
    named: Option<NamedVault>,
    bound: Option<PathBuf>,
    config: Config,
    /// Settings of the directory that were ignored.
    notes: Vec<Note>,
    vault_id: String,
    cache_dir: PathBuf,
    layers: BaseCache,
    boot_id: String,
    umask: u32,
    machine: Machine,
    /// The audience for progress during an import.
    audience: Audience,
    delivery: NoteDelivery,
    /// The `avfs` command in notes and questions.
    avfs: Avfs,
}

impl Invocation {
    /// Opens the selected vault, or creates one.
    pub fn open(args: &Args, around: Surroundings) -> Result<Self, RunError> {
        let vault = VaultAt::find(args, &around)?;
        let settings = read_config(&around, vault.bound()?.as_deref())?;
        Self::at(vault, settings, args, around)
    }

    /// The same for a vault and settings that are already known.
    fn at(
        vault: VaultAt,
        (config, mut notes): (Config, Vec<Note>),
        args: &Args,
        around: Surroundings,
    ) -> Result<Self, RunError> {
        let option = args.spec.vault.as_ref().map(|vault| vault.as_os_str());
        for skipped in around.skipped_vaults(option) {
            if !args.quiet {
                render::say([format!("avfs-run: warning: {skipped}")]);
            }
            notes.push(Note::new(VAULT_SKIPPED, skipped.to_string()));
        }
        notes.extend(vault.note());
        let (vault, named) = vault.open(args, &around)?;
        let bound = bound_dir(&vault)?;
        let boot_id = machine::boot_id()
            .map_err(|source| RunError::Host { operation: "read the machine's boot id", source })?;
        let (vault_id, cache_dir) = (vault.id()?, around.cache_dir()?);
        let vault = vault.noting(Unfinished::new(&cache_dir)).knowing(around.listed_vaults());
        Ok(Self {
            avfs: args.avfs(),
            around,
            vault,
            named,
            bound,
            config,
            notes,
            vault_id,
            layers: BaseCache::new(&cache_dir, &boot_id),
            cache_dir,
            boot_id,
            umask: mask::set_umask(),
            machine: Machine::default(),
            audience: match (
                args.serve || args.quiet || args.json.is_some(),
                avfs_terminal::stderr_is_terminal(),
            ) {
                (true, _) => Audience::Nobody,
                (false, true) => Audience::Terminal,
                (false, false) => Audience::Log,
            },
            delivery: match args.json.is_some() || args.json_fd.is_some() || !args.quiet {
                true if !args.serve => NoteDelivery::Shown,
                true | false => NoteDelivery::Dropped,
            },
        })
    }

    /// Creates the request, and its vault. A request that can never run is rejected before a vault is created.
    pub fn ask(args: &Args, asked: &mut Option<Asked>) -> Result<(Self, ExecutionRequest), RunError> {
        let around = surroundings()?;
        let outside = outside(args, &around);
        let vault = VaultAt::find(args, &around)?;
        let settings = read_config(&around, vault.bound()?.as_deref())?;
        let mut request = args.request(&outside, &settings.0)?;
        *asked = Some(Asked::of(&request, None));
        request.check(arguments_bytes_max()).map_err(ExecuteError::Request)?;
        check_request(&request, vault.bound()?.as_deref()).map_err(ExecuteError::WorkspaceRoot)?;
        if let (VaultAt::Nowhere(_), ForkChoice::Persistent { name, .. }) = (&vault, &request.fork) {
            name.check_new().map_err(VaultError::from)?;
        }
        let invocation = Self::at(vault, settings, args, around)?;
        invocation.complete(&mut request)?;
        *asked = Some(Asked::of(&request, invocation.vault.path()));
        Ok((invocation, request))
    }

    /// Resolves the arguments into a request.
    pub fn request(&self, args: &Args) -> Result<ExecutionRequest, RunError> {
        let mut request = args.request(&outside(args, &self.around), &self.config)?;
        self.complete(&mut request)?;
        Ok(request)
    }

    /// Adds the parts of the request that depend on the vault.
    fn complete(&self, request: &mut ExecutionRequest) -> Result<(), RunError> {
        if let ForkChoice::Persistent { name, .. } = &request.fork
            && let Err(error) = name.check_new()
            && self.vault.read()?.fork(name).map_err(VaultError::from)?.is_none()
        {
            return Err(VaultError::from(error).into());
        }
        let workspace = request.at.as_deref().or(self.bound.as_deref());
        let is_kept = request.home == HomeMode::Persistent || request.tmp == TmpMode::Kept;
        if is_kept || !request.cache_dirs.is_empty() || !request.presets.is_empty() {
            CacheOwners::new(&self.cache_dir).register(&self.vault_id, self.vault.path());
        }
        let extras = settings::extras(
            &self.config,
            request,
            &self.vault_id,
            workspace,
            &self.around,
            &self.cache_dir,
        )?;
        request.put_beneath(extras);
        let kept = self.kept_dirs(request)?;
        request.extras.splice(0..0, kept);
        request.named.vault = self.named.clone();
        Ok(())
    }

    /// The persistent home and /tmp of a fork, if the request asks for them. They are mounted below all other extras.
    fn kept_dirs(&self, request: &ExecutionRequest) -> Result<Vec<Extra>, RunError> {
        let ForkChoice::Persistent { name, .. } = &request.fork else { return Ok(Vec::new()) };
        let (home, tmp) = (request.home == HomeMode::Persistent, request.tmp == TmpMode::Kept);
        if !home && !tmp {
            return Ok(Vec::new());
        }
        let io = |source| RunError::Host { operation: "create a directory for the fork", source };
        let dirs = ForkDirs::new(&self.cache_dir, &self.vault_id);
        if matches!(self.vault.fork(name), Err(VaultError::NoFork { .. })) {
            // A new fork does not inherit the directories of an earlier fork with the same name.
            dirs.remove(name).map_err(io)?;
        }
        let workspace = request.at.as_deref().or(self.bound.as_deref()).unwrap_or(Path::new(UNBOUND_PATH));
        let mut kept = Vec::new();
        if let Some(path) = request.kept_home(self.around.home.as_deref(), workspace) {
            kept.push(Extra::Cache { source: dirs.home(name).map_err(io)?, path: path.to_owned() });
        }
        if tmp {
            kept.push(Extra::Cache { source: dirs.tmp(name).map_err(io)?, path: "/tmp".into() });
        }
        Ok(kept)
    }

    /// Executes a request. The policy is read again each time: the user may have answered "always" in the meantime.
    pub fn execute(&self, request: &ExecutionRequest) -> Result<Executed, RunError> {
        let around = &self.around;
        let policy = policy(around, self.vault.path())?;
        let meter = Meter::watched(Box::new(Waiting::new(self.audience)));
        let site = self.site(&meter);
        let workspace = site.bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH));
        let place = RememberFor { around, vault: self.vault.path(), workspace };
        let runtime = ProxyRuntime {
            site: &site,
            policy: &policy,
            approver: &AtTerminal { place, avfs: &self.avfs, reports: self.audience != Audience::Nobody },
            launcher: &HostSandboxes::of_this_program(),
        };
        let mut executed = runtime.execute(request);
        if let Ok(Outcome::Ran(result)) = &mut executed.outcome {
            result.notes.splice(0..0, self.notes.iter().cloned());
            if request.retention == Retention::Review && result.version_after.is_some() {
                result.notes.extend(self.note_git_clean());
            }
        }
        Ok(executed)
    }

    /// Emitted once for a vault in a Git repository: `git clean -x` would delete it, with every run that was not
    /// applied.
    fn note_git_clean(&self) -> Option<Note> {
        let (dir, vault) = (self.bound.as_deref()?, self.vault.path()?);
        let home = vault.parent()?;
        let is_cleaned = home.starts_with(dir) && dir.ancestors().any(|above| above.join(".git").exists());
        if !is_cleaned {
            return None;
        }
        let noted = home.join("git-clean-noted");
        match vault.metadata().and_then(|vault| owner::create_like(&noted, &vault, 0o666)) {
            Ok(_) => {
                let text = format!(
                    "git clean -x would delete {}, including every run that is not applied; \
                     vault.place = \"data\" in your avfs.toml stores new vaults elsewhere",
                    home.display()
                );
                Some(Note::new("vault.git_clean", text))
            }
            Err(error) => {
                if error.kind() != std::io::ErrorKind::AlreadyExists {
                    tracing::debug!(%error, "cannot record that the note about git clean was shown");
                }
                None
            }
        }
    }

    /// Whether a batch has started this process: then it has inherited the lock. Only the items of that batch count.
    pub fn is_worker_of(&self, batch: &BatchId) -> bool {
        lock::is_inherited(&batch_lock(&self.cache_dir, batch)).unwrap_or(false)
    }

    /// Maintains the cache after a run was answered.
    pub fn cache_keeper(&self) -> CacheKeeper {
        CacheKeeper {
            dir: self.cache_dir.clone(),
            layers: self.layers.clone(),
            bytes_max: self.config.cache_max.value.0,
            vault: Some((self.vault_id.clone(), self.vault.path().map(Path::to_owned))),
        }
    }

    /// Whether a cached result would be used for the request. Writes nothing.
    pub fn look(&self, request: &ExecutionRequest) -> Result<Look, RunError> {
        let (meter, policy) = (Meter::default(), policy(&self.around, self.vault.path())?);
        Ok(look(&self.site(&meter), &policy, request).map_err(ExecuteError::from)?)
    }

    /// Why the result of a request would not be cached, as far as known before a run.
    pub fn why_not_remembered(&self, request: &ExecutionRequest) -> Vec<Reason> {
        why_not_remembered(request, self.bound.as_deref())
    }

    fn site<'a>(&'a self, meter: &'a Meter) -> Site<'a> {
        let (around, config, bound) = (&self.around, &self.config, self.bound.clone());
        Site {
            vault: &self.vault,
            vault_id: self.vault_id.clone(),
            stat_cache: bound.as_ref().map(|dir| stat_cache_path(&self.cache_dir, &self.vault_id, dir)),
            exclude: config
                .capture_exclude
                .iter()
                .map(|pattern| pattern.value.clone())
                .chain(bound.as_ref().and_then(|dir| cache_line(&self.cache_dir, dir)))
                .collect(),
            bound,
            cwd: around.cwd.clone(),
            home: around.home.clone(),
            git_configs: around.git_configs(),
            layers: self.layers.clone(),
            cache_dir: self.cache_dir.clone(),
            private_paths: around.private_paths(),
            boot_id: self.boot_id.clone(),
            warn_above: WarnAbove {
                files: config.import_warn_files.value.0,
                bytes: config.import_warn_bytes.value.0,
            },
            expires_seconds: config.fork_expires.value.0,
            arguments_bytes_max: arguments_bytes_max(),
            checkpoints_keep: config.checkpoint_keep.value,
            memo: MemoSite {
                machine: &self.machine,
                umask: self.umask,
                expires_seconds: config.run_cache_expires.value.0,
            },
            meter,
            notes: self.delivery,
        }
    }
}

/// The effective policy.
pub fn policy(around: &Surroundings, vault: Option<&Path>) -> Result<Policy, RunError> {
    Ok(PolicyTexts::read(around, vault)?.policy()?)
}

/// The kernel's limit on the size of arguments and environment: a quarter of the stack limit, at most 6 MiB.
pub fn arguments_bytes_max() -> usize {
    const MOST: u64 = 6 << 20;
    // The kernel always allows at least this much.
    const LEAST: u64 = 128 << 10;
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    usize::try_from(stack.map_or(MOST, |stack| (stack / 4).clamp(LEAST, MOST))).unwrap_or(usize::MAX)
}

/// The caller's terminals. With `--json` the caller is treated as a program, not a person.
pub fn outside(args: &Args, around: &Surroundings) -> Outside {
    use std::io::IsTerminal;
    let there = |is_terminal: bool| if is_terminal { Terminal::There } else { Terminal::None };
    let types = args.json.is_none() && std::io::stdin().is_terminal();
    Outside {
        cwd: around.cwd.clone(),
        environment: machine::environment(),
        terminal: there(types && avfs_terminal::stderr_is_terminal()),
        streams: there(types && avfs_terminal::stdout_is_terminal()),
    }
}

/// The settings of the user and of the directory, with a note for each ignored setting of the directory and each
/// variable that sets nothing.
pub fn read_config(around: &Surroundings, bound: Option<&Path>) -> Result<(Config, Vec<Note>), RunError> {
    let texts = ConfigTexts::read(around, bound)?;
    let (config, refused) = texts.for_a_run()?;
    let unknown = Config::unknown_variables(&texts.variables);
    let unknown = unknown.iter().map(|it| Note::new("config.unknown_variable", it.to_string()));
    let file = texts.directory.map(|file| file.path.display().to_string()).unwrap_or_default();
    let note = |key: &str| {
        let text = format!("ignored {key} in {file}: a directory cannot weaken its own sandbox");
        Note::new("config.not_trusted", text)
    };
    Ok((config, refused.into_iter().map(note).chain(unknown).collect()))
}

pub fn surroundings() -> Result<Surroundings, RunError> {
    let cwd = std::env::current_dir();
    let cwd = cwd.map_err(|source| RunError::Host { operation: "find the working directory", source })?;
    Ok(Surroundings::of(cwd, machine::environment()))
}

/// The selected vault.
pub enum VaultAt {
    There {
        vault: Box<Vault>,
        named: Option<NamedVault>,
        source: VaultSource,
        /// That it was bound to the new path of its directory.
        rebound: Option<Note>,
    },
    /// No vault exists: a new one would be created here, for this directory.
    Nowhere(NewVault),
}

impl VaultAt {
    /// Opens an existing vault; does not create one.
    pub fn find(args: &Args, around: &Surroundings) -> Result<Self, RunError> {
        match around.locate(args.spec.vault.as_ref().map(|vault| vault.as_os_str())) {
            Ok(located) => {
                let (path, source) = (&located.path, located.source);
                let (vault, named) = match source {
                    VaultSource::Option => open_judged(path, around, OpenOptions::default(), context())?,
                    VaultSource::Environment | VaultSource::Nearest => {
                        (Vault::open(path, OpenOptions::default(), context())?, None)
                    }
                };
                let rebound = around.confirm::<RunError>(&located, &vault)?;
                if let Some(rollback) = vault.older_copy() {
                    // Also with --quiet and --json, and if the command is not run: the vault reports it only once.
                    render::say([format!(
                        "avfs-run: warning: the vault was replaced by an older copy: it lacks {rollback}"
                    )]);
                }
                Ok(Self::There { vault: Box::new(vault), named, source, rebound })
            }
            Err(LocateError::NoneNear { .. }) if !args.explain_cache => {
                let place = read_config(around, None)?.0.vault_place.value;
                let new = around.new_vault(place)?;
                check_new_vault(args, around)?;
                Ok(Self::Nowhere(new))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub fn bound(&self) -> Result<Option<PathBuf>, RunError> {
        match self {
            Self::There { vault, .. } => Ok(bound_dir(vault)?),
            Self::Nowhere(new) => Ok(Some(new.dir.clone())),
        }
    }

    fn note(&self) -> Option<Note> {
        match self {
            Self::There { rebound, .. } => rebound.clone(),
            Self::Nowhere(_) => None,
        }
    }

    /// Creates the vault if it does not exist.
    fn open(self, args: &Args, around: &Surroundings) -> Result<(Vault, Option<NamedVault>), RunError> {
        let say = |text: String| {
            if !args.quiet {
                render::say([text]);
            }
        };
        match self {
            Self::There { vault, named, source, .. } => {
                let path = vault.path().unwrap_or(Path::new(""));
                if source != VaultSource::Option && path != around.cwd.join(VAULT_DIR).join(VAULT_FILE) {
                    say(format!("avfs-run: using the vault {}", path.display()));
                }
                Ok((*vault, named))
            }
            Self::Nowhere(NewVault { path, dir }) => {
                let (vault, made) =
                    make_first_vault::<RunError>(around, (&path, &dir), OpenOptions::default(), &context())?;
                if made && dir != around.cwd {
                    let (path, dir) = (path.display(), dir.display());
                    say(format!("avfs-run: created a new vault: {path}, for the repository {dir}"));
                } else if made {
                    say(format!("avfs-run: created a new vault: {}", path.display()));
                }
                Ok((vault, None))
            }
        }
    }
}

/// Opens the vault named on the command line. The checked vault and the opened one are the same: the canonical path,
/// and the same file.
fn open_judged(
    path: &Path,
    around: &Surroundings,
    options: OpenOptions,
    context: Context,
) -> Result<(Vault, Option<NamedVault>), RunError> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // If the file cannot be opened here, opening the vault reports the reason.
    let judged = HeldFile::open(&path).unwrap_or_default();
    pause::point("vault-judged");
    let vault = Vault::open(&path, options, context)?;
    if !judged.is_at(&path) {
        return Err(VaultError::Moved { path }.into());
    }
    let named = named_vault(&path, &vault, around)?;
    Ok((vault, named))
}

/// Fails if the policy does not allow this caller to create a vault.
fn check_new_vault(args: &Args, around: &Surroundings) -> Result<(), RunError> {
    let policy = policy(around, None)?.with_profiles(&args.spec.policy);
    policy.refuses(&Opening::NewVault).map_or(Ok(()), |verdict| Err(RunError::Refused(verdict)))
}

/// A vault named on the command line, unless it is also the default vault here.
fn named_vault(path: &Path, vault: &Vault, around: &Surroundings) -> Result<Option<NamedVault>, RunError> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = real(path);
    let is_default =
        |found: Located| real(&found.path) == path && around.confirm::<RunError>(&found, vault).is_ok();
    if around.locate(None).is_ok_and(is_default) {
        return Ok(None);
    }
    let is_trusted = match around.owns_vault(&path, &vault.id()?) {
        // Without a home directory, ownership is not recorded.
        Err(LocateError::NoHome { .. }) => false,
        owned => owned?,
    };
    Ok(Some(NamedVault { path, is_trusted }))
}

pub fn context() -> Context {
    Context { clock: Arc::new(SystemClock), actor: machine::actor() }
}
