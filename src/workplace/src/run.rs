//! One run through a workplace: the request gets what depends on the vault, and the engine executes it.

use std::path::{Path, PathBuf};

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{
    Approver, CacheKeeper, CacheOwners, ExecuteError, Executed, ForkDirs, Look, Machine, MemoSite, Note,
    NoteDelivery, Outcome, PolicyTexts, ProxyRuntime, Reason, RememberFor, Sandboxes, Site, Surroundings,
    UNBOUND_PATH, WarnAbove, batch_lock, bound_dir, cache_line, look, stat_cache_path, why_not_remembered,
};
use avfs_hostfs::{lock, machine, owner};
use avfs_policy::Policy;
use avfs_request::config::Config;
use avfs_request::request::NamedVault;
use avfs_request::{ExecutionRequest, Extra, ForkChoice, HomeMode, Retention, TmpMode};
use avfs_types::ids::BatchId;
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::{Vault, VaultError};

use crate::run_error::RunError;
use crate::settings;

/// What every run of one client in one vault works with.
pub struct RunContext {
    pub surroundings: Surroundings,
    pub vault: Vault,
    /// The vault, if it is not the one that would be found from the working directory.
    pub named: Option<NamedVault>,
    pub bound: Option<PathBuf>,
    pub config: Config,
    /// Settings of the directory that were ignored, and other facts about the place. Each run reports them.
    pub notes: Vec<Note>,
    vault_id: String,
    cache_dir: PathBuf,
    layers: BaseCache,
    boot_id: String,
    umask: u32,
    machine: Machine,
    delivery: NoteDelivery,
}

impl RunContext {
    /// `umask` is that of the commands.
    pub fn new(
        surroundings: Surroundings,
        (vault, named): (Vault, Option<NamedVault>),
        (config, notes): (Config, Vec<Note>),
        umask: u32,
        delivery: NoteDelivery,
    ) -> Result<Self, RunError> {
        let bound = bound_dir(&vault)?;
        let boot_id = machine::boot_id()
            .map_err(|source| RunError::Host { operation: "read the machine's boot id", source })?;
        let (vault_id, cache_dir) = (vault.id()?, surroundings.cache_dir()?);
        Ok(Self {
            vault: vault.noting(Unfinished::new(&cache_dir)).knowing(surroundings.listed_vaults()),
            named,
            bound,
            config,
            notes,
            vault_id,
            layers: BaseCache::new(&cache_dir, &boot_id),
            cache_dir,
            boot_id,
            umask,
            machine: Machine::default(),
            delivery,
            surroundings,
        })
    }

    /// Adds the parts of the request that depend on the vault.
    pub fn complete(&self, request: &mut ExecutionRequest) -> Result<(), RunError> {
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
            &self.surroundings,
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
        if let Some(path) = request.kept_home(self.surroundings.home.as_deref(), workspace) {
            kept.push(Extra::Cache { source: dirs.home(name).map_err(io)?, path: path.to_owned() });
        }
        if tmp {
            kept.push(Extra::Cache { source: dirs.tmp(name).map_err(io)?, path: "/tmp".into() });
        }
        Ok(kept)
    }

    /// The place for which answers of a person are remembered.
    #[must_use]
    pub fn remember_for(&self) -> RememberFor<'_> {
        let workspace = self.bound.as_deref().unwrap_or(Path::new(UNBOUND_PATH));
        RememberFor { around: &self.surroundings, vault: self.vault.path(), workspace }
    }

    /// Executes a request. The policy is read again each time: the user may have answered "always" in the meantime.
    pub fn execute(
        &self,
        request: &ExecutionRequest,
        approver: &dyn Approver,
        sandboxes: &dyn Sandboxes,
        meter: &Meter,
    ) -> Result<Executed, RunError> {
        let policy = policy(&self.surroundings, self.vault.path())?;
        let site = self.site(meter);
        let runtime = ProxyRuntime { site: &site, policy: &policy, approver, launcher: sandboxes };
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
        let (meter, policy) = (Meter::default(), policy(&self.surroundings, self.vault.path())?);
        Ok(look(&self.site(&meter), &policy, request).map_err(ExecuteError::from)?)
    }

    /// Why the result of a request would not be cached, as far as known before a run.
    pub fn why_not_remembered(&self, request: &ExecutionRequest) -> Vec<Reason> {
        why_not_remembered(request, self.bound.as_deref())
    }

    fn site<'a>(&'a self, meter: &'a Meter) -> Site<'a> {
        let (around, config, bound) = (&self.surroundings, &self.config, self.bound.clone());
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
