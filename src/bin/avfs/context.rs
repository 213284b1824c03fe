//! What every command is given: who and where it is, and how to answer.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use avfs::backend::sqlite::OpenOptions;
use avfs::clock::SystemClock;
use avfs::config::Config;
use avfs::runtime::{LocateError, Surroundings, stat_cache_path};
use avfs::vault::materialize::BaseCache;
use avfs::vault::{Context, Vault};
use nix::unistd::{Uid, User};

use crate::error::EdgeError;
use crate::ui::{Failure, Ui};

pub struct CommandContext {
    pub ui: Ui,
    pub around: Surroundings,
    pub vault_option: Option<OsString>,
    pub actor: Context,
}

impl CommandContext {
    /// Reads the environment, once.
    pub fn gather(ui: Ui, vault_option: Option<OsString>) -> Result<Self, Failure> {
        let dot = std::path::Path::new(".");
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let around = Surroundings {
            cwd: std::env::current_dir().map_err(EdgeError::host("find the working directory", dot))?,
            vault: var("AVFS_VAULT"),
            home: var("HOME").map(PathBuf::from),
            data_home: var("XDG_DATA_HOME").map(PathBuf::from),
            cache_home: var("XDG_CACHE_HOME").map(PathBuf::from),
            config_home: var("XDG_CONFIG_HOME").map(PathBuf::from),
        };
        let actor = Context { clock: Arc::new(SystemClock), actor: actor_name() };
        Ok(Self { ui, around, vault_option, actor })
    }

    /// The vault that is meant.
    pub fn open_vault(&self) -> Result<Vault, Failure> {
        let located = self.around.locate(self.vault_option.as_deref())?;
        tracing::debug!(path = %located.path.display(), source = ?located.source, "opening the vault");
        Ok(Vault::open(&located.path, OpenOptions::default(), self.actor.clone())?)
    }

    /// As [`Self::open_vault`], for who would rather be refused than wait.
    pub fn open_vault_at(&self, path: &std::path::Path, patience: Duration) -> Result<Vault, Failure> {
        let options = OpenOptions { patience, ..OpenOptions::default() };
        Ok(Vault::open(path, options, self.actor.clone())?)
    }

    /// Where the stat cache of a directory lies; nowhere without a home.
    pub fn stat_cache(&self, vault: &Vault, dir: &std::path::Path) -> Result<Option<PathBuf>, Failure> {
        match self.around.cache_dir() {
            Ok(cache_dir) => Ok(Some(stat_cache_path(&cache_dir, &vault.id()?, dir))),
            Err(LocateError::NoHome { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The files that hold settings, with their text where they are there.
    pub fn config_texts(&self, bound: Option<&Path>) -> Result<Vec<(PathBuf, Option<String>)>, Failure> {
        let read = |path: PathBuf| match std::fs::read_to_string(&path) {
            Ok(text) => Ok((path, Some(text))),
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
                Ok((path, None))
            }
            Err(error) => Err(EdgeError::host("read", &path)(error).into()),
        };
        self.around.config_files(bound).into_iter().map(read).collect()
    }

    /// What the settings say is never versioned.
    pub fn exclude(&self, dir: &Path) -> Result<Vec<String>, Failure> {
        let mut config = Config::default();
        for (file, text) in self.config_texts(Some(dir))? {
            if let Some(text) = text {
                config = config.with(&file, &text)?;
            }
        }
        Ok(config.capture_exclude.into_iter().map(|pattern| pattern.value).collect())
    }

    pub fn base_cache(&self) -> Result<BaseCache, Failure> {
        Ok(BaseCache::new(&self.around.cache_dir()?, &self.boot_id()?))
    }

    /// Tells one start of the machine from another.
    pub fn boot_id(&self) -> Result<String, Failure> {
        let boot_id = std::path::Path::new("/proc/sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(boot_id).map_err(EdgeError::host("read", boot_id))?;
        Ok(text.trim().to_owned())
    }
}

/// Who acts, as the audit log names them: `name(uid)`.
fn actor_name() -> String {
    let uid = Uid::current();
    let name = User::from_uid(uid).ok().flatten().map_or_else(|| "unknown".to_owned(), |user| user.name);
    format!("{name}({uid})")
}
