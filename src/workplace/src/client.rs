//! The caller of a verb, and how its vault is found and opened.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{
    CacheKeeper, CacheOwners, LocateError, NewVault, PolicyTexts, ScratchDir, Surroundings, WarnAbove,
    bases_in_use, cache_line, make_first_vault, stat_cache_path,
};
use avfs_hostfs::machine;
use avfs_policy::Opening;
use avfs_present::{Avfs, DISK_FULL, error_body};
use avfs_types::clock::SystemClock;
use avfs_vault::backend::sqlite::{Mapped, OpenOptions, with_reserve};
use avfs_vault::materialize::BaseCache;
use avfs_vault::unfinished::Unfinished;
use avfs_vault::{Context, Vault, VaultError};

use avfs_wire::ErrorBody;

use crate::error::{OpError, WorkplaceError};
use crate::observer::Observer;
use crate::workplace::Workplace;

/// A caller: where it is, which vault it names, who it is, and who observes it.
#[derive(Clone)]
pub struct Client {
    pub surroundings: Surroundings,
    /// The vault that the caller names: a path, or the name of a vault of the user.
    pub vault_option: Option<OsString>,
    pub context: Context,
    pub observer: Observer,
    /// The command in hints, for the same vault.
    pub avfs: Avfs,
    /// The variables of the caller, for the values of secrets that a record only names, and for the directory of
    /// temporary files. Empty unless the program sets it.
    pub environment: Vec<(OsString, OsString)>,
}

impl Client {
    /// A caller on this machine, with the system's clock and the user's name.
    #[must_use]
    pub fn new(surroundings: Surroundings, vault_option: Option<OsString>, observer: Observer) -> Self {
        let context = Context { clock: Arc::new(SystemClock), actor: machine::actor() };
        let avfs = Avfs::on(vault_option.as_deref());
        Self { surroundings, vault_option, context, observer, avfs, environment: Vec::new() }
    }

    pub fn note(&self, text: std::fmt::Arguments<'_>) {
        self.observer.notices.note(text);
    }

    /// Opens the vault that the caller names, or the nearest one.
    pub fn open(&self) -> Result<Workplace, OpError> {
        self.open_with(OpenOptions::default())
    }

    /// For verbs that process long lists: without a memory map the process stays small.
    pub fn open_unmapped(&self) -> Result<Workplace, OpError> {
        self.open_with(OpenOptions { mapped: Mapped::No, ..OpenOptions::default() })
    }

    /// For verbs that run commands: creates a missing vault, unless the policy does not allow it.
    pub fn open_or_make(&self, mapped: Mapped) -> Result<Workplace, OpError> {
        let options = OpenOptions { mapped, ..OpenOptions::default() };
        let Err(LocateError::NoneNear { .. }) = self.surroundings.locate(self.vault_option.as_deref()) else {
            return self.open_with(options);
        };
        self.warn_of_skipped();
        let (config, _) = ConfigTexts::read(&self.surroundings, None)?.for_a_run()?;
        let NewVault { path, dir } = self.surroundings.new_vault(config.vault_place.value)?;
        let policy = PolicyTexts::read(&self.surroundings, None)?.policy()?;
        if let Some(verdict) = policy.refuses(&Opening::NewVault) {
            return Err(WorkplaceError::NoNewVault { reason: verdict.reason, hint: verdict.hint }.into());
        }
        let (vault, made) =
            make_first_vault::<OpError>(&self.surroundings, (&path, &dir), options, &self.context)?;
        if made {
            self.note(format_args!("created the vault {} for {}", path.display(), dir.display()));
        }
        Ok(Workplace { client: self.clone(), vault })
    }

    /// For verbs that delete: keeps the base versions of runs that are active or can be recovered.
    pub fn open_sparing_runs(&self) -> Result<Workplace, OpError> {
        let Workplace { client, vault } = self.open()?;
        let cache_dir = match self.surroundings.cache_dir() {
            Ok(cache_dir) => cache_dir,
            // Without a cache directory there are no scratches, so there are no such runs.
            Err(LocateError::NoHome { .. }) => return Ok(Workplace { client, vault }),
            Err(other) => return Err(other.into()),
        };
        let vault_id = vault.id()?;
        let in_use = move || bases_in_use(&ScratchDir::new(&cache_dir), &vault_id);
        let vault = vault.sparing(move || in_use().map_err(std::io::Error::other));
        Ok(Workplace { client, vault })
    }

    fn open_with(&self, options: OpenOptions) -> Result<Workplace, OpError> {
        self.warn_of_skipped();
        let located = self.surroundings.locate(self.vault_option.as_deref())?;
        tracing::debug!(path = %located.path.display(), source = ?located.source, "opening the vault");
        let vault = self.open_vault_at(&located.path, options)?;
        if let Some(note) = self.surroundings.confirm::<OpError>(&located, &vault)? {
            self.note(format_args!("{}", note.text));
        }
        Ok(Workplace { client: self.clone(), vault })
    }

    /// Opens the vault in this file, and warns if it was replaced by an older copy.
    pub fn open_vault_at(&self, path: &Path, options: OpenOptions) -> Result<Vault, VaultError> {
        let vault =
            Vault::open(path, options, self.context.clone())?.knowing(self.surroundings.listed_vaults());
        // Without a cache directory, nothing is noted.
        let vault = match self.surroundings.cache_dir() {
            Ok(cache_dir) => vault.noting(Unfinished::new(&cache_dir)),
            Err(_) => vault,
        };
        if let Some(rollback) = vault.older_copy() {
            // The vault reports it only once.
            self.observer
                .notices
                .warn(format_args!("the vault was replaced by an older copy: it lacks {rollback}"));
        }
        Ok(vault)
    }

    fn warn_of_skipped(&self) {
        for skipped in self.surroundings.skipped_vaults(self.vault_option.as_deref()) {
            self.observer.notices.warn(format_args!("{skipped}"));
        }
    }

    /// Runs a verb that frees space, which opens the vault itself: on a full disk it uses the vault's reserve.
    pub fn free_space<T>(&self, verb: impl FnMut() -> Result<T, OpError>) -> Result<T, OpError> {
        let path = self.surroundings.locate(self.vault_option.as_deref())?.path;
        // The files next to the vault are next to the real file.
        let path = path.canonicalize().unwrap_or(path);
        let is_disk_full = |failure: &OpError| failure.code() == Some("vault.disk_full");
        with_reserve(&path, is_disk_full, verb).map_err(|failure| match failure {
            // The hint names the verbs that work, and this is one of them.
            OpError::Error(error) if error.code() == "vault.disk_full" => OpError::Body(ErrorBody {
                hint: Some(DISK_FULL.to_owned()),
                ..error_body(&*error, &self.avfs)
            }),
            other @ (OpError::Error(_) | OpError::Body(_) | OpError::ReceiverGone) => other,
        })
    }

    fn base_cache(&self) -> Result<BaseCache, OpError> {
        Ok(BaseCache::new(&self.surroundings.cache_dir()?, &self.boot_id()?))
    }

    /// The maintenance of the cache directory.
    pub fn cache_keeper(&self) -> Result<CacheKeeper, OpError> {
        // Without the settings of the bound directory: all directories share the cache.
        let config = ConfigTexts::read(&self.surroundings, None)?.merged()?;
        Ok(CacheKeeper {
            dir: self.surroundings.cache_dir()?,
            layers: self.base_cache()?,
            bytes_max: config.cache_max.value.0,
            vault: None,
        })
    }

    /// An id that differs for each boot of the machine.
    pub fn boot_id(&self) -> Result<String, OpError> {
        Ok(machine::boot_id().map_err(WorkplaceError::host("read", Path::new(machine::BOOT_ID_FILE)))?)
    }

    /// The directory of temporary files: `$TMPDIR`, else `/tmp`.
    #[must_use]
    pub fn temporary_dir(&self) -> PathBuf {
        let named = self.environment.iter().find(|(name, _)| name == "TMPDIR");
        named.map_or_else(|| PathBuf::from("/tmp"), |(_, dir)| dir.into())
    }

    /// The cache directory; `None` without a home directory.
    pub fn cache_dir(&self) -> Result<Option<PathBuf>, OpError> {
        match self.surroundings.cache_dir() {
            Ok(cache_dir) => Ok(Some(cache_dir)),
            Err(LocateError::NoHome { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The path of the stat cache of a directory; `None` without a home directory.
    pub fn stat_cache(&self, vault: &Vault, dir: &Path) -> Result<Option<PathBuf>, OpError> {
        let Some(cache_dir) = self.cache_dir()? else { return Ok(None) };
        let id = vault.id()?;
        let path = stat_cache_path(&cache_dir, &id, dir);
        if !path.exists() {
            CacheOwners::new(&cache_dir).register(&id, vault.path());
        }
        Ok(Some(path))
    }

    /// The patterns that the settings exclude from versions.
    pub fn exclude(&self, dir: &Path) -> Result<Vec<String>, OpError> {
        let config = ConfigTexts::read(&self.surroundings, Some(dir))?.merged()?;
        let cache_dir = self.surroundings.cache_dir().ok();
        let cache = cache_dir.and_then(|cache_dir| cache_line(&cache_dir, dir));
        Ok(config.capture_exclude.into_iter().map(|pattern| pattern.value).chain(cache).collect())
    }

    /// The size above which a first import of a directory is announced.
    pub fn warn_above(&self, dir: &Path) -> Result<WarnAbove, OpError> {
        let config = ConfigTexts::read(&self.surroundings, Some(dir))?.merged()?;
        Ok(WarnAbove { files: config.import_warn_files.value.0, bytes: config.import_warn_bytes.value.0 })
    }
}
