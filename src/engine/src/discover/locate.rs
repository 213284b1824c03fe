//! Finds the vault to use: the option, `$AVFS_VAULT`, or the nearest one in or above the working directory.
//!
//! All inputs of the search are in [`Surroundings`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_request::VaultPlace;
use avfs_types::diagnose::{Diagnose, shell_word};
use avfs_types::ids::{NameError, VaultName, to_hex};
use avfs_types::{CONFIG_FILE, VAULT_DIR, VAULT_FILE};
use avfs_vault::own::files_of;

use super::kept_record;
use super::trust::{TrustError, Trusted, TrustedVaults};
use crate::git::repository;
use crate::view::GIT_CONFIG;

/// The directory of the administrator's files. Not configurable by a variable, with which users could evade them.
const SYSTEM_DIR: &str = "/etc/avfs";
/// The variable, besides HOME, that determines where named vaults are.
const VAULTS_HOME: &str = "XDG_DATA_HOME";
/// The prefix of avfs's own variables.
const OWN_VARIABLES: &[u8] = b"AVFS_";

/// The environment of the process, as read by the edge.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub cwd: PathBuf,
    /// `$AVFS_VAULT`
    pub vault: Option<OsString>,
    /// `$HOME`, or the home of the user database
    pub home: Option<PathBuf>,
    /// `$XDG_DATA_HOME`
    pub data_home: Option<PathBuf>,
    /// `$XDG_CACHE_HOME`
    pub cache_home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`
    pub config_home: Option<PathBuf>,
    /// `$GIT_CONFIG_GLOBAL`, which git uses even if it is empty
    pub git_config: Option<PathBuf>,
    /// `$PATH`
    pub search_path: Option<OsString>,
    /// The administrator's directory; only tests override it.
    pub system_dir: Option<PathBuf>,
    /// All variables of avfs, `AVFS_…`.
    pub variables: BTreeMap<OsString, OsString>,
}

/// The caller's global git configuration files.
#[derive(Clone, Debug, Default)]
pub struct GitConfigs {
    /// The file that the caller's git reads instead of those in the home.
    pub named: Option<PathBuf>,
    /// In the order in which git reads them.
    pub in_home: Vec<PathBuf>,
}

impl GitConfigs {
    /// The files that the caller's git reads.
    #[must_use]
    pub fn in_effect(&self) -> &[PathBuf] {
        if self.named.is_some() { self.named.as_slice() } else { &self.in_home }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error("there is no vault in {} or above it", cwd.display())]
    NoneNear { cwd: PathBuf },
    #[error("there is no vault named {name}")]
    NoneNamed { name: VaultName },
    #[error("there is no vault at {}", path.display())]
    NoneAt {
        path: PathBuf,
        /// The text that the user entered.
        typed: OsString,
        /// True if it is a directory without a vault.
        is_dir: bool,
    },
    #[error("{name} is both a directory with a vault and the name of another vault")]
    Ambiguous { name: VaultName, named: PathBuf },
    #[error("refusing to create a vault in {}: it is your home directory or contains it", dir.display())]
    AroundHome { dir: PathBuf },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(
        "neither HOME nor {variable} is set to an absolute path, and the user database has no home for this user"
    )]
    NoHome { variable: &'static str },
}

impl Diagnose for LocateError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoneNear { .. } | Self::NoneNamed { .. } | Self::NoneAt { .. } => "vault.not_found",
            Self::Ambiguous { .. } => "vault.ambiguous",
            Self::AroundHome { .. } => "vault.around_home",
            Self::Trust(error) => error.code(),
            Self::Name(error) => error.code(),
            Self::NoHome { .. } => "env.no_home",
        }
    }
}

/// The settings file of a directory.
#[must_use]
pub fn directory_config(dir: &Path) -> PathBuf {
    dir.join(VAULT_DIR).join(CONFIG_FILE)
}

/// A vault as specified by the user: a path, or the name of one of the user's vaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VaultChoice {
    Path(PathBuf),
    Name(VaultName),
}

/// Where the choice of the vault came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VaultSource {
    Option,
    Environment,
    Nearest,
}

/// A vault that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVault {
    pub path: PathBuf,
    /// The directory it is for.
    pub dir: PathBuf,
}

/// The note about a [`SkippedVault`]. On stderr it is printed when the vault is searched for.
pub const VAULT_SKIPPED: &str = "vault.skipped";

/// A vault above the working directory that belongs to another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedVault(pub PathBuf);

impl std::fmt::Display for SkippedVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(vault) = self;
        write!(f, "the vault {} is not used: it belongs to another user", vault.display())?;
        match vault.parent().and_then(Path::parent).filter(|_| TrustedVaults::check_place(vault).is_ok()) {
            Some(dir) => write!(f, "; trust it with: avfs vault trust {}", shell_word(dir.as_os_str())),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub path: PathBuf,
    pub source: VaultSource,
    /// The entry that permits its use, to be confirmed when it is open.
    pub trusted: Option<Trusted>,
    /// The directory that a vault in the user's data directory was found for, by its real path.
    pub kept_for: Option<PathBuf>,
}

impl Located {
    fn named(path: PathBuf, source: VaultSource) -> Self {
        Self { path, source, trusted: None, kept_for: None }
    }
}

impl Surroundings {
    /// The surroundings of a process in `cwd` with these variables. Empty variables count as unset.
    pub fn of(cwd: PathBuf, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
        let git_config = variables.get(OsStr::new("GIT_CONFIG_GLOBAL")).map(|file| cwd.join(file));
        variables.retain(|_, value| !value.is_empty());
        let set = |name: &str| variables.get(OsStr::new(name)).cloned();
        let path = |name: &str| set(name).map(PathBuf::from);
        let ours = |name: &OsString| name.as_bytes().starts_with(OWN_VARIABLES);
        Self {
            cwd,
            vault: set("AVFS_VAULT"),
            home: path("HOME"),
            data_home: path("XDG_DATA_HOME"),
            cache_home: path("XDG_CACHE_HOME"),
            config_home: path("XDG_CONFIG_HOME"),
            git_config,
            search_path: set("PATH"),
            system_dir: Some(PathBuf::from(SYSTEM_DIR)),
            variables: variables.clone().into_iter().filter(|(name, _)| ours(name)).collect(),
        }
    }

    /// The directory for data that belongs to the user and not to one workspace.
    fn data_dir(&self) -> Result<PathBuf, LocateError> {
        let data = self.xdg(self.data_home.as_deref(), ".local/share");
        Ok(data.ok_or(LocateError::NoHome { variable: VAULTS_HOME })?.join("avfs"))
    }

    /// The directory of named vaults.
    pub fn vaults_dir(&self) -> Result<PathBuf, LocateError> {
        Ok(self.data_dir()?.join("vaults"))
    }

    /// The vaults this user trusts when they are found by searching.
    pub fn trusted_vaults(&self) -> Result<TrustedVaults, LocateError> {
        Ok(TrustedVaults::new(&self.data_dir()?))
    }

    /// Whether this user created the vault with this id or trusts it: it is in the list, or is one of the user's named
    /// vaults.
    pub fn owns_vault(&self, vault: &Path, id: &str) -> Result<bool, LocateError> {
        let real = |dir: PathBuf| dir.canonicalize().unwrap_or(dir);
        let (named, kept) = (real(self.vaults_dir()?), real(self.kept_dir()?));
        Ok(vault.parent() == Some(&named)
            || vault.starts_with(kept)
            || self.trusted_vaults()?.contains(vault, id)?)
    }

    /// The vaults outside of `.avfs` directories that the user has created or trusts.
    #[must_use]
    pub fn listed_vaults(&self) -> Vec<PathBuf> {
        self.trusted_vaults().ok().and_then(|list| list.own_names().ok()).unwrap_or_default()
    }

    /// The directory of the user's data, and the vaults that the user has created or trusts.
    #[must_use]
    pub fn private_paths(&self) -> Vec<PathBuf> {
        // Without a list, no other vault is known.
        let vaults = self.trusted_vaults().ok().and_then(|list| list.paths().ok()).unwrap_or_default();
        let own = |vault: PathBuf| match vault.parent().filter(|home| home.ends_with(VAULT_DIR)) {
            Some(home) => vec![home.to_owned()],
            None => files_of(&vault).collect(),
        };
        self.data_dir().into_iter().chain(vaults.into_iter().flat_map(own)).collect()
    }

    /// The vault that a first run creates, and its directory: the root of the repository around the working
    /// directory, or the working directory itself.
    pub fn new_vault(&self, place: VaultPlace) -> Result<NewVault, LocateError> {
        if self.holds_home(&self.cwd) {
            return Err(LocateError::AroundHome { dir: self.cwd.clone() });
        }
        let dir = self.own_repository().unwrap_or_else(|| self.cwd.clone());
        Ok(NewVault { path: self.place_for(&dir, place)?, dir })
    }

    /// The root of the repository around the working directory, unless it contains the user's home, belongs to
    /// another user, or is on another file system.
    fn own_repository(&self) -> Option<PathBuf> {
        let root = repository::root_of(&self.cwd).filter(|root| !self.holds_home(root))?;
        let (here, there) = (self.cwd.metadata().ok()?, root.metadata().ok()?);
        let is_own = there.uid() == rustix::process::geteuid().as_raw();
        (is_own && here.dev() == there.dev()).then_some(root)
    }

    fn holds_home(&self, dir: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.home.as_deref().is_some_and(|home| real(home).starts_with(real(dir)))
    }

    /// The caller's global git configuration files.
    #[must_use]
    pub fn git_configs(&self) -> GitConfigs {
        let xdg = self.xdg(self.config_home.as_deref(), ".config").map(|dir| dir.join("git/config"));
        let home = self.home.as_ref().map(|home| home.join(GIT_CONFIG));
        GitConfigs { named: self.git_config.clone(), in_home: xdg.into_iter().chain(home).collect() }
    }

    /// The directory for everything that can be recreated.
    pub fn cache_dir(&self) -> Result<PathBuf, LocateError> {
        let cache = self.xdg(self.cache_home.as_deref(), ".cache");
        Ok(cache.ok_or(LocateError::NoHome { variable: "XDG_CACHE_HOME" })?.join("avfs"))
    }

    /// The administrator's settings.
    #[must_use]
    pub fn system_config(&self) -> Option<PathBuf> {
        Some(self.system_dir.as_ref()?.join(CONFIG_FILE))
    }

    /// The user's settings.
    #[must_use]
    pub fn user_config(&self) -> Option<PathBuf> {
        Some(self.xdg(self.config_home.as_deref(), ".config")?.join("avfs").join(CONFIG_FILE))
    }

    /// A directory of the XDG Base Directory Specification; a relative path counts as unset. Not from etcetera,
    /// which reads the environment and home of the process; here they are arguments.
    fn xdg(&self, set: Option<&Path>, beneath_home: &str) -> Option<PathBuf> {
        let set = set.filter(|path| path.is_absolute()).map(Path::to_owned);
        let home = self.home.as_deref().filter(|path| path.is_absolute());
        set.or_else(|| home.map(|home| home.join(beneath_home)))
    }

    fn named_path(&self, name: &VaultName) -> Result<PathBuf, LocateError> {
        Ok(self.vaults_dir()?.join(format!("{name}.db")))
    }

    /// Interprets a vault argument. It is a path if it contains a slash, ends in `.db`, or is a directory with
    /// a vault in it (a directory stands for its vault); otherwise it is a name.
    pub fn read_choice(&self, text: &OsStr) -> Result<VaultChoice, LocateError> {
        if text.is_empty() {
            // Joined to the working directory, it would mean that directory.
            return Err(NameError::Empty { what: "vault" }.into());
        }
        // Rebuilt from its components, which drops every `.` component.
        let path: PathBuf = self.cwd.join(text).components().collect();
        if let Some(inside) = path.is_dir().then(|| path.join(VAULT_DIR).join(VAULT_FILE)) {
            TrustedVaults::check_link(&inside)?;
            let name = VaultName::parse(&text.to_string_lossy());
            // A directory may have the same name as a vault by chance; it is meant only if it has a vault.
            return match name {
                Ok(name) if !is_written_as_path(text) && !is_vault_place(&inside) => {
                    Ok(VaultChoice::Name(name))
                }
                Ok(_) | Err(_) => Ok(VaultChoice::Path(inside)),
            };
        }
        if is_written_as_path(text) {
            return Ok(VaultChoice::Path(path));
        }
        Ok(VaultChoice::Name(VaultName::parse(&text.to_string_lossy())?))
    }

    /// The path of a chosen vault, whether or not it exists.
    pub fn path_of(&self, choice: &VaultChoice) -> Result<PathBuf, LocateError> {
        match choice {
            VaultChoice::Path(path) => Ok(path.clone()),
            VaultChoice::Name(name) => self.named_path(name),
        }
    }

    /// The vault to open.
    pub fn locate(&self, option: Option<&OsStr>) -> Result<Located, LocateError> {
        if let Some((text, source)) = self.chosen(option) {
            return Ok(Located::named(self.existing(text)?, source));
        }
        match self.nearest() {
            Some((dir, path)) => {
                let mut located = Located::named(path, VaultSource::Nearest);
                // Only the user can write to the user's data directory.
                if located.path == dir.join(VAULT_DIR).join(VAULT_FILE) {
                    located.trusted = Some(self.trusted_vaults()?.check(&located.path)?);
                } else {
                    located.kept_for = Some(dir.canonicalize().unwrap_or(dir));
                }
                Ok(located)
            }
            None => Err(LocateError::NoneNear { cwd: self.cwd.clone() }),
        }
    }

    /// Like [`Self::locate`], for operations that cannot be undone: an ambiguous name is refused.
    pub fn locate_only(&self, option: Option<&OsStr>) -> Result<Located, LocateError> {
        let located = self.locate(option)?;
        if let Some((text, _)) = self.chosen(option)
            && !is_written_as_path(text)
            && let Ok(name) = VaultName::parse(&text.to_string_lossy())
            && let Ok(named) = self.named_path(&name)
            && named != located.path
            && named.symlink_metadata().is_ok()
        {
            return Err(LocateError::Ambiguous { name, named });
        }
        Ok(located)
    }

    /// The explicitly chosen vault, if any.
    #[must_use]
    pub fn chosen<'a>(&'a self, option: Option<&'a OsStr>) -> Option<(&'a OsStr, VaultSource)> {
        let from_environment = self.vault.as_deref().filter(|text| !text.is_empty());
        option
            .map(|text| (text, VaultSource::Option))
            .or(from_environment.map(|text| (text, VaultSource::Environment)))
    }

    fn existing(&self, text: &OsStr) -> Result<PathBuf, LocateError> {
        let path = self.meant_by(text)?;
        // Other problems are reported when it is opened.
        if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let is_dir = self.cwd.join(text).is_dir();
            return Err(LocateError::NoneAt { path, typed: text.to_owned(), is_dir });
        }
        Ok(path)
    }

    fn meant_by(&self, text: &OsStr) -> Result<PathBuf, LocateError> {
        let choice = self.read_choice(text)?;
        let path = self.path_of(&choice)?;
        match choice {
            VaultChoice::Name(name) if !path.exists() => {
                // A file of that name is probably what the user means, and the error should say why it is not a
                // vault; likewise for a directory without a vault.
                let file = self.cwd.join(text);
                match file.metadata() {
                    Ok(found) if found.is_dir() => Ok(file.join(VAULT_DIR).join(VAULT_FILE)),
                    Ok(found) if found.is_file() => Ok(file),
                    Ok(_) | Err(_) => Err(LocateError::NoneNamed { name }),
                }
            }
            VaultChoice::Name(_) | VaultChoice::Path(_) => Ok(path),
        }
    }

    /// The working directory or the nearest directory above it that has a vault, and the vault: in the
    /// directory itself, or kept for it in the user's data directory.
    #[must_use]
    pub fn nearest(&self) -> Option<(PathBuf, PathBuf)> {
        self.search().0
    }

    /// The vaults above the working directory that are not used because they belong to other users. Empty if the vault
    /// is chosen explicitly.
    #[must_use]
    pub fn skipped_vaults(&self, option: Option<&OsStr>) -> Vec<SkippedVault> {
        if self.chosen(option).is_some() { Vec::new() } else { self.search().1 }
    }

    fn search(&self) -> (Option<(PathBuf, PathBuf)>, Vec<SkippedVault>) {
        let kept = self.kept_dir().ok().filter(|kept| kept.is_dir());
        let mut skipped = Vec::new();
        let found = self.cwd.ancestors().find_map(|dir| {
            let here = dir.join(VAULT_DIR).join(VAULT_FILE);
            let elsewhere = || kept.as_ref().map(|kept| kept_vault(kept, dir));
            // A vault behind a symlink is not skipped: the check of its place refuses it.
            let is_here = is_vault_place(&here) || dir.join(VAULT_DIR).is_symlink();
            // In the working directory itself, it is refused.
            let is_others = is_here && dir != self.cwd && self.is_of_another_user(&here);
            if is_others {
                skipped.push(SkippedVault(here.clone()));
            }
            let found = Some(here).filter(|_| is_here && !is_others);
            found
                .or_else(|| elsewhere().filter(|place| is_vault_place(place)))
                .or_else(|| adopt(kept.as_ref()?, dir))
                .map(|path| (dir.to_owned(), path))
        });
        (found, skipped)
    }

    /// Whether another user has created a vault or its directory, and the caller does not trust it.
    fn is_of_another_user(&self, vault: &Path) -> bool {
        let me = rustix::process::geteuid().as_raw();
        let is_others = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.uid() != me);
        let is_trusted = || self.trusted_vaults().is_ok_and(|list| list.has_entry(vault).unwrap_or(false));
        (is_others(vault) || vault.parent().is_some_and(is_others)) && !is_trusted()
    }

    /// The directory of workspace vaults that are not kept in the workspace.
    pub(super) fn kept_dir(&self) -> Result<PathBuf, LocateError> {
        Ok(self.data_dir()?.join("workspaces"))
    }

    /// The path at which the vault of a directory is created.
    pub fn place_for(&self, dir: &Path, place: VaultPlace) -> Result<PathBuf, LocateError> {
        Ok(match place {
            VaultPlace::Workspace => {
                let vault = dir.join(VAULT_DIR).join(VAULT_FILE);
                TrustedVaults::check_place(&vault)?;
                vault
            }
            VaultPlace::Data => kept_vault(&self.kept_dir()?, dir),
        })
    }

    /// The vault in the user's data directory that belongs to a directory, given by its real path; also after the
    /// directory was moved.
    #[must_use]
    pub fn kept_for(&self, dir: &Path) -> Option<PathBuf> {
        let kept = self.kept_dir().ok()?;
        Some(kept_vault(&kept, dir)).filter(|place| is_vault_place(place)).or_else(|| adopt(&kept, dir))
    }

    /// Named vaults and their files, sorted by name.
    pub fn named_vaults(&self) -> Result<Vec<(VaultName, PathBuf)>, LocateError> {
        let Ok(entries) = std::fs::read_dir(self.vaults_dir()?) else { return Ok(Vec::new()) };
        let mut vaults: Vec<(VaultName, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let file_name = entry.file_name().into_string().ok()?;
                Some((VaultName::parse(file_name.strip_suffix(".db")?).ok()?, entry.path()))
            })
            .collect();
        vaults.sort();
        Ok(vaults)
    }
}

fn is_written_as_path(text: &OsStr) -> bool {
    text.as_bytes().contains(&b'/') || text.as_bytes().ends_with(b".db")
}

/// Named after the directory, for people, and the digest of its real path.
fn kept_vault(kept: &Path, dir: &Path) -> PathBuf {
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let digest = to_hex(&blake3::hash(real.as_os_str().as_bytes()).as_bytes()[..8]);
    let mut name = real.file_name().unwrap_or_default().to_owned();
    name.push("-");
    name.push(digest);
    kept.join(name).join(VAULT_FILE)
}

/// Finds the vault of a directory that was moved, and renames the vault's directory to the name for the new path.
fn adopt(kept: &Path, dir: &Path) -> Option<PathBuf> {
    let real = dir.canonicalize().ok()?;
    let home = kept_record::find_moved(kept, &real)?;
    let place = kept_vault(kept, &real);
    let noreplace = rustix::fs::RenameFlags::NOREPLACE;
    let renamed =
        rustix::fs::renameat_with(rustix::fs::CWD, &home, rustix::fs::CWD, place.parent()?, noreplace);
    renamed.ok().map(|()| place)
}

/// Whether there is a vault, or a permission error that hides one.
fn is_vault_place(place: &Path) -> bool {
    match place.symlink_metadata() {
        Ok(_) => true,
        // An inaccessible directory should cause a permission error, not a missing vault.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => place.parent().is_some_and(Path::is_dir),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::TrustOrigin;

    fn around(cwd: &Path) -> Surroundings {
        Surroundings { cwd: cwd.to_owned(), home: Some(cwd.join("home")), ..Surroundings::default() }
    }

    fn put(path: &Path) -> PathBuf {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        path.to_owned()
    }

    #[test]
    fn nearest_vault_above_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let outer = put(&dir.path().join(".avfs/vault.db"));
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let near = around(&dir.path().join("a/b"));
        let trust =
            |vault: &Path| near.trusted_vaults().unwrap().add(vault, "id", TrustOrigin::Made).unwrap();
        trust(&outer);
        let located = near.locate(None).unwrap();
        assert_eq!((located.path, located.source), (outer, VaultSource::Nearest));
        let inner = put(&dir.path().join("a/.avfs/vault.db"));
        // A vault kept for a directory needs no record.
        let kept = put(&near.place_for(&dir.path().join("a/b"), VaultPlace::Data).unwrap());
        assert_eq!(near.locate(None).unwrap().path, kept);
        std::fs::remove_file(kept).unwrap();
        // A nearer vault that is not trusted is not skipped: using a different one would be surprising.
        assert_eq!(near.locate(None).unwrap_err().code(), "vault.untrusted");
        trust(&inner);
        assert_eq!(near.locate(None).unwrap().path, inner);
    }

    #[test]
    fn option_overrides_environment_which_overrides_nearest() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join(".avfs/vault.db"));
        let mut near = around(dir.path());
        near.vault = Some("env.db".into());
        put(&dir.path().join("env.db"));
        put(&dir.path().join("x.db"));
        assert_eq!(near.locate(None).unwrap().source, VaultSource::Environment);
        let located = near.locate(Some(OsStr::new("x.db"))).unwrap();
        assert_eq!(located, Located::named(dir.path().join("x.db"), VaultSource::Option));
    }

    #[test]
    fn plain_words_are_names_and_paths_are_paths() {
        let dir = tempfile::tempdir().unwrap();
        let near = around(dir.path());
        let named = put(&dir.path().join("home/.local/share/avfs/vaults/work.db"));
        assert_eq!(near.locate(Some(OsStr::new("work"))).unwrap().path, named);
        assert_eq!(near.named_vaults().unwrap(), [(VaultName::parse("work").unwrap(), named)]);
        assert!(matches!(near.locate(Some(OsStr::new("other"))), Err(LocateError::NoneNamed { .. })));
        assert!(matches!(near.locate(Some(OsStr::new(&"x".repeat(300)))), Err(LocateError::Name(_))));
        put(&dir.path().join(".avfs/vault.db"));
        assert!(matches!(near.locate(Some(OsStr::new(""))), Err(LocateError::Name(NameError::Empty { .. }))));
        let text = put(&dir.path().join("notes.txt"));
        assert_eq!(near.locate(Some(OsStr::new("notes.txt"))).unwrap().path, text);
        std::fs::create_dir(dir.path().join("project")).unwrap();
        let none = near.locate(Some(OsStr::new("project"))).unwrap_err();
        assert_eq!(
            none.to_string(),
            format!("there is no vault at {}/project/.avfs/vault.db", dir.path().display())
        );
        assert!(matches!(none, LocateError::NoneAt { is_dir: true, .. }), "{none:?}");
        let none = near.locate(Some(OsStr::new("./no.db"))).unwrap_err();
        assert!(matches!(none, LocateError::NoneAt { is_dir: false, .. }), "{none:?}");
    }

    #[test]
    fn directory_stands_for_a_vault_only_if_it_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let near = around(dir.path());
        let word = OsStr::new("work");
        let named = put(&dir.path().join("home/.local/share/avfs/vaults/work.db"));
        std::fs::create_dir(dir.path().join("work")).unwrap();
        assert_eq!(near.locate(Some(word)).unwrap().path, named);
        assert_eq!(near.locate_only(Some(word)).unwrap().path, named);
        let inside = dir.path().join("work/.avfs/vault.db");
        assert!(
            matches!(near.locate(Some(OsStr::new("./work"))), Err(LocateError::NoneAt { path, .. }) if path == inside)
        );
        put(&inside);
        assert_eq!(near.locate(Some(word)).unwrap().path, inside);
        assert!(matches!(near.locate_only(Some(word)), Err(LocateError::Ambiguous { .. })));
        for clear in ["./work", "work/"] {
            assert_eq!(near.locate_only(Some(OsStr::new(clear))).unwrap().path, inside);
        }
        assert_eq!(near.locate_only(Some(named.as_os_str())).unwrap().path, named);
        let here = around(&dir.path().join("work"));
        assert_eq!(here.locate(Some(OsStr::new("."))).unwrap().path, inside);
    }
}
