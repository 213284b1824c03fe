//! The directory a vault is bound to, and the path of its stat cache.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use avfs_hostfs::make;
use avfs_hostfs::owner::{give, make_dir};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::to_hex;
use avfs_types::path::TreePath;
use avfs_types::{VAULT_DIR, VAULT_FILE};
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::ignore::line_for;
use avfs_vault::{Context, Vault, VaultError, key};

use crate::locate::{LocateError, Surroundings};
use crate::trust::{TrustError, TrustOrigin};

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("the vault {} is not bound to a directory", vault.display())]
    Unbound { vault: PathBuf },
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl Diagnose for WorkspaceError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unbound { .. } => "vault.unbound",
            Self::Vault(error) => error.code(),
        }
    }
}

/// The stored binding of a vault at `path` to its directory.
fn binding(path: &Path, dir: &Path) -> Vec<u8> {
    let home = dir.join(VAULT_DIR);
    // The parent of a symlink's target is a different directory.
    if path == home.join(VAULT_FILE) && !home.is_symlink() {
        return key::BOUND_ABOVE.to_vec();
    }
    dir.as_os_str().as_bytes().to_vec()
}

/// Creates the first vault of a directory, or opens it if another process created it in the meantime. Returns
/// true if it was created.
pub fn make_first_vault<E>(
    around: &Surroundings,
    (path, dir): (&Path, &Path),
    options: OpenOptions,
    context: &Context,
) -> Result<(Vault, bool), E>
where
    E: From<TrustError> + From<LocateError> + From<VaultError>,
{
    let trusted = around.trusted_vaults()?;
    // A separate error, so that an existing vault is not recorded as a created one.
    enum Failed<E> {
        Exists,
        Other(E),
    }
    impl<E: From<TrustError>> From<TrustError> for Failed<E> {
        fn from(error: TrustError) -> Self {
            Self::Other(error.into())
        }
    }
    impl<E: From<VaultError>> From<VaultError> for Failed<E> {
        fn from(error: VaultError) -> Self {
            Self::Other(error.into())
        }
    }
    let make = || match make_vault(path, dir, options, context.clone()) {
        Ok(vault) => Ok(vault),
        Err(VaultError::Backend(BackendError::Exists { .. })) => Err(Failed::Exists),
        Err(error) => Err(Failed::Other(E::from(error))),
    };
    match trusted.make(path, TrustOrigin::Made, make) {
        Ok(vault) => {
            around.record_kept(path, dir);
            Ok((vault, true))
        }
        Err(Failed::Exists) => {
            trusted.check(path)?;
            Ok((Vault::open(path, options, context.clone())?, false))
        }
        Err(Failed::Other(error)) => Err(error),
    }
}

/// Creates a vault for the files of `dir`, and its parent directory, which is inaccessible to other users;
/// `.avfs` gets a `.gitignore`. On failure, nothing is left behind.
pub fn make_vault(
    path: &Path,
    dir: &Path,
    options: OpenOptions,
    context: Context,
) -> Result<Vault, VaultError> {
    let bound = binding(path, dir);
    let home = path.parent().unwrap_or(Path::new("/"));
    let was_there = home.exists();
    let refused = |error| BackendError::no_place(home, error);
    // Files that root creates in another user's directory must belong to that user, who must be able to use the vault.
    let owner = match home.ends_with(VAULT_DIR) {
        true => Some(dir.metadata().map_err(|error| BackendError::io("stat", dir, error))?),
        false => None,
    };
    match &owner {
        Some(_) if !was_there => {
            let made = make_dir(home);
            made.or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
        }
        Some(_) | None => make::private_dirs(home),
    }
    .map_err(refused)?;
    rustix::fs::access(home, rustix::fs::Access::WRITE_OK).map_err(|errno| refused(errno.into()))?;
    let made = Vault::create_for(owner.as_ref(), path, Some(&bound), options, context);
    let made = made.and_then(|vault| {
        owner.map_or(Ok(()), |owner| keep_out_of_git(home, &owner))?;
        Ok(vault)
    });
    if made.is_err() && !was_there {
        // Fails if another process put files there; then it stays.
        let _ = std::fs::remove_dir(home);
    }
    made
}

/// Writes a `.gitignore`, unless one exists, even as a dangling symlink.
fn keep_out_of_git(home: &Path, owner: &Metadata) -> Result<(), BackendError> {
    let ignore = home.join(".gitignore");
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&ignore);
    match made.and_then(|mut file| file.write_all(b"*\n").and_then(|()| give(&file, owner))) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(BackendError::io("write", &ignore, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The directory whose files the vault keeps, if it was created for one.
pub fn bound_dir(vault: &Vault) -> Result<Option<PathBuf>, VaultError> {
    let Some(bound) = vault.read()?.meta(key::BOUND)? else { return Ok(None) };
    if bound != key::BOUND_ABOVE {
        return Ok(Some(PathBuf::from(OsString::from_vec(bound))));
    }
    let canonical =
        |path: &Path| std::fs::canonicalize(path).map_err(|error| BackendError::io("find", path, error));
    let path = vault.path().map(canonical).transpose()?;
    // A copy elsewhere is not bound: the directory above it is unrelated.
    let home = path.as_deref().and_then(Path::parent).filter(|home| home.ends_with(VAULT_DIR));
    Ok(home.and_then(Path::parent).map(Path::to_owned))
}

pub fn require_bound_dir(vault: &Vault) -> Result<PathBuf, WorkspaceError> {
    let dir = bound_dir(vault)?;
    dir.ok_or_else(|| WorkspaceError::Unbound { vault: vault.path().map(Path::to_owned).unwrap_or_default() })
}

/// The path of the stat cache for a directory and a vault.
#[must_use]
pub fn stat_cache_path(cache_dir: &Path, vault_id: &str, dir: &Path) -> PathBuf {
    let canonical = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let digest = blake3::hash(canonical.as_os_str().as_bytes());
    cache_dir.join("stat").join(format!("{vault_id}-{}", to_hex(&digest.as_bytes()[..8])))
}

/// The path of the reference counts that a gc of a vault saves for the next one. They are kept and evicted with the
/// stat caches.
#[must_use]
pub fn reference_counts_path(cache_dir: &Path, vault_id: &str) -> PathBuf {
    cache_dir.join("stat").join(format!("{vault_id}-references"))
}

/// The line of an ignore file that excludes avfs's own cache from a directory that contains it. The cache has
/// copies of versions: versions that include it would grow with every run.
#[must_use]
pub fn cache_line(cache_dir: &Path, dir: &Path) -> Option<String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (cache_dir, dir) = (real(cache_dir), real(dir));
    line_for(&TreePath::parse(cache_dir.strip_prefix(dir).ok()?.as_os_str().as_bytes()).ok()?)
}

#[cfg(test)]
mod tests {
    use avfs_types::clock::SystemClock;

    use super::*;

    #[test]
    fn vault_in_its_directory_moves_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().canonicalize().unwrap().join("old");
        std::fs::create_dir_all(old.join(".avfs")).unwrap();
        let context = Context { clock: std::sync::Arc::new(SystemClock), actor: "test".to_owned() };
        let path = old.join(".avfs/vault.db");
        let vault =
            Vault::create(&path, Some(key::BOUND_ABOVE), OpenOptions::default(), context.clone()).unwrap();
        assert_eq!(bound_dir(&vault).unwrap(), Some(old.clone()));
        drop(vault);
        let new = dir.path().canonicalize().unwrap().join("new");
        std::fs::rename(&old, &new).unwrap();
        let vault =
            Vault::open(&new.join(".avfs/vault.db"), OpenOptions::default(), context.clone()).unwrap();
        assert_eq!(require_bound_dir(&vault).unwrap(), new);
        drop(vault);
        let copy = new.join("copy.db");
        std::fs::copy(new.join(".avfs/vault.db"), &copy).unwrap();
        let copy = Vault::open(&copy, OpenOptions::default(), context).unwrap();
        assert_eq!(bound_dir(&copy).unwrap(), None);
    }
}
