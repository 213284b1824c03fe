//! The context of every command: environment, vault, actor and output.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{
    CacheKeeper, CacheOwners, LocateError, NewVault, PolicyTexts, ScratchDir, Surroundings, WarnAbove,
    bases_in_use, cache_line, make_first_vault, stat_cache_path,
};
use avfs_hostfs::machine;
use avfs_policy::Opening;
use avfs_types::clock::SystemClock;
use avfs_vault::backend::sqlite::{Mapped, OpenOptions, with_reserve};
use avfs_vault::materialize::BaseCache;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::{Context, Vault, VaultError};

use crate::error::EdgeError;
use crate::ui::{Failure, Ui, error_line};

pub struct CommandContext {
    pub ui: Ui,
    pub around: Surroundings,
    pub vault_option: Option<OsString>,
    pub actor: Context,
}

impl CommandContext {
    /// Reads the environment, once.
    pub fn gather(ui: Ui, vault_option: Option<OsString>) -> Result<Self, Failure> {
        let cwd = working_dir(vault_option.as_deref())?;
        let around = Surroundings::of(cwd, machine::environment());
        let actor = Context { clock: Arc::new(SystemClock), actor: machine::actor() };
        Ok(Self { ui, around, vault_option, actor })
    }

    /// Opens the vault of --vault or of the working directory.
    pub fn open_vault(&self) -> Result<Vault, Failure> {
        self.open_vault_with(OpenOptions::default())
    }

    /// For verbs that process long lists: without a memory map the process stays small.
    pub fn open_vault_unmapped(&self) -> Result<Vault, Failure> {
        self.open_vault_with(OpenOptions { mapped: Mapped::No, ..OpenOptions::default() })
    }

    /// For verbs that run commands: creates a missing vault, as `avfs-run` does.
    pub fn open_or_make_vault(&self, mapped: Mapped) -> Result<Vault, Failure> {
        let options = OpenOptions { mapped, ..OpenOptions::default() };
        let Err(LocateError::NoneNear { .. }) = self.around.locate(self.vault_option.as_deref()) else {
            return self.open_vault_with(options);
        };
        self.warn_of_skipped();
        let (config, _) = ConfigTexts::read(&self.around, None)?.for_a_run()?;
        let NewVault { path, dir } = self.around.new_vault(config.vault_place.value)?;
        if let Some(verdict) = PolicyTexts::read(&self.around, None)?.policy()?.refuses(&Opening::NewVault) {
            return Err(EdgeError::NoNewVault { reason: verdict.reason, hint: verdict.hint }.into());
        }
        let (vault, made) = make_first_vault::<Failure>(&self.around, (&path, &dir), options, &self.actor)?;
        if made {
            self.ui.note(format_args!("created the vault {} for {}", path.display(), dir.display()));
        }
        Ok(vault)
    }

    fn open_vault_with(&self, options: OpenOptions) -> Result<Vault, Failure> {
        self.warn_of_skipped();
        let located = self.around.locate(self.vault_option.as_deref())?;
        tracing::debug!(path = %located.path.display(), source = ?located.source, "opening the vault");
        let vault = self.open_vault_at(&located.path, options)?;
        if let Some(note) = self.around.confirm::<Failure>(&located, &vault)? {
            self.ui.note(format_args!("{}", note.text));
        }
        Ok(vault)
    }

    /// Runs a verb that frees space, which opens the vault itself: on a full disk it uses the vault's reserve.
    pub fn free_space<T>(&self, verb: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let path = self.around.locate(self.vault_option.as_deref())?.path;
        // The files next to the vault are next to the real file.
        let path = path.canonicalize().unwrap_or(path);
        with_reserve(&path, |failure: &Failure| failure.code() == Some("vault.disk_full"), verb)
    }

    fn warn_of_skipped(&self) {
        for skipped in self.around.skipped_vaults(self.vault_option.as_deref()) {
            error_line(format_args!("warning: {skipped}"));
        }
    }

    /// Opens the vault in this file, and warns if it was replaced by an older copy.
    pub fn open_vault_at(&self, path: &Path, options: OpenOptions) -> Result<Vault, VaultError> {
        let vault = Vault::open(path, options, self.actor.clone())?;
        // Without a cache directory, nothing is noted.
        let vault = match self.around.cache_dir() {
            Ok(cache_dir) => vault.noting(Unfinished::new(&cache_dir)),
            Err(_) => vault,
        };
        if let Some(rollback) = vault.older_copy() {
            // Also in JSON format: the vault reports it only once.
            error_line(format_args!("warning: the vault was replaced by an older copy: it lacks {rollback}"));
        }
        Ok(vault)
    }

    /// For verbs that delete: keeps the base versions of runs that are active or can be recovered.
    pub fn open_vault_sparing_runs(&self) -> Result<Vault, Failure> {
        let vault = self.open_vault()?;
        let cache_dir = match self.around.cache_dir() {
            Ok(cache_dir) => cache_dir,
            // Without a cache directory there are no scratches, so there are no such runs.
            Err(LocateError::NoHome { .. }) => return Ok(vault),
            Err(other) => return Err(other.into()),
        };
        let vault_id = vault.id()?;
        let in_use = move || bases_in_use(&ScratchDir::new(&cache_dir), &vault_id);
        Ok(vault.sparing(move || in_use().map_err(std::io::Error::other)))
    }

    /// The path of the stat cache of a directory; `None` without a home directory.
    pub fn stat_cache(&self, vault: &Vault, dir: &std::path::Path) -> Result<Option<PathBuf>, Failure> {
        match self.around.cache_dir() {
            Ok(cache_dir) => {
                let id = vault.id()?;
                let path = stat_cache_path(&cache_dir, &id, dir);
                if !path.exists() {
                    CacheOwners::new(&cache_dir).register(&id, vault.path());
                }
                Ok(Some(path))
            }
            Err(LocateError::NoHome { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The patterns that the settings exclude from versions.
    pub fn exclude(&self, dir: &Path) -> Result<Vec<String>, Failure> {
        let config = ConfigTexts::read(&self.around, Some(dir))?.merged()?;
        let cache = self.around.cache_dir().ok().and_then(|cache_dir| cache_line(&cache_dir, dir));
        Ok(config.capture_exclude.into_iter().map(|pattern| pattern.value).chain(cache).collect())
    }

    /// The size above which a first import of a directory is announced.
    pub fn warn_above(&self, dir: &Path) -> Result<WarnAbove, Failure> {
        let config = ConfigTexts::read(&self.around, Some(dir))?.merged()?;
        Ok(WarnAbove { files: config.import_warn_files.value.0, bytes: config.import_warn_bytes.value.0 })
    }

    pub fn base_cache(&self) -> Result<BaseCache, Failure> {
        Ok(BaseCache::new(&self.around.cache_dir()?, &self.boot_id()?))
    }

    /// The maintenance of the cache directory.
    pub fn cache_keeper(&self) -> Result<CacheKeeper, Failure> {
        // Ignore the settings of the bound directory: all directories share the cache.
        let config = ConfigTexts::read(&self.around, None)?.merged()?;
        Ok(CacheKeeper {
            dir: self.around.cache_dir()?,
            layers: self.base_cache()?,
            bytes_max: config.cache_max.value.0,
            vault: None,
        })
    }

    /// An id that differs for each boot of the machine.
    pub fn boot_id(&self) -> Result<String, Failure> {
        Ok(machine::boot_id().map_err(EdgeError::host("read", Path::new(machine::BOOT_ID_FILE)))?)
    }
}

/// The working directory. If it was deleted and the vault has an absolute path, returns an empty path, so
/// that the vault stays usable and relative paths do not exist.
fn working_dir(vault_option: Option<&OsStr>) -> Result<PathBuf, EdgeError> {
    let vault = vault_option.map(OsStr::to_owned).or_else(|| std::env::var_os("AVFS_VAULT"));
    match std::env::current_dir() {
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound
                && vault.is_some_and(|vault| Path::new(&vault).is_absolute()) =>
        {
            Ok(PathBuf::new())
        }
        other => other.map_err(EdgeError::host("find the working directory", Path::new("."))),
    }
}

/// The running executable, even if another version has replaced its file.
pub const OWN: &str = "/proc/self/exe";

/// A command that runs another verb of this program.
pub fn own_command(verb: &str) -> Command {
    let mut command = Command::new(OWN);
    command.arg0("avfs").arg(verb);
    command
}
