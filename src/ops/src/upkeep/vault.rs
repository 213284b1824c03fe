//! Vaults as files: to list, show, copy, trust and delete them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_engine::{LocateError, TrustOrigin, TrustedVaults, bound_dir};
use avfs_types::clock::{Timestamp, time_text};
use avfs_types::diagnose::{Diagnose as _, shell_word, with_causes};
use avfs_types::{VAULT_DIR, VAULT_FILE};
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::{COMPANIONS, FORMAT, OpenOptions, has_vault_header, sibling};
use avfs_vault::{VaultError, key};
use avfs_wire::{VaultCopy, VaultDelete, VaultInfo, VaultList, VaultListed, VaultTrust};
use avfs_workplace::{Client, OpError, Workplace, WorkplaceError};

use crate::error::VerbError;

/// How long a delete waits until the vault is no longer in use.
const DELETE_PATIENCE: Duration = Duration::from_secs(2);

/// The named vaults, and the vault of the working directory.
pub fn list(client: &Client) -> Result<VaultList, OpError> {
    let used = client.surroundings.locate(client.vault_option.as_deref()).ok().map(|located| located.path);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let mut vaults: Vec<VaultListed> = Vec::new();
    let named = match client.surroundings.named_vaults() {
        // Without a home directory there are no named vaults, but --vault may give a path.
        Err(LocateError::NoHome { .. }) if used.is_some() => Vec::new(),
        other => other?,
    };
    for (name, path) in named {
        vaults.push(VaultListed {
            name: Some(name.to_string()),
            vault: path.to_string_lossy().into_owned(),
            nearest: used.as_ref() == Some(&path),
            file_bytes: size(&path),
        });
    }
    if let Some(path) = used.filter(|_| !vaults.iter().any(|vault| vault.nearest)) {
        let vault = path.to_string_lossy().into_owned();
        vaults.push(VaultListed { name: None, vault, nearest: true, file_bytes: size(&path) });
    }
    if vaults.is_empty() {
        client.note(format_args!("no vaults found; create one with: avfs init"));
    }
    Ok(VaultList { vaults })
}

/// The properties of the vault.
pub fn info(workplace: &Workplace) -> Result<VaultInfo, OpError> {
    let vault = &workplace.vault;
    let reader = vault.read()?;
    let created_at = reader.meta(key::CREATED_AT)?;
    let created_at = created_at.and_then(|text| String::from_utf8(text).ok()?.parse().ok()).map(Timestamp);
    let usage = reader.usage()?;
    Ok(VaultInfo {
        vault: vault.path().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
        id: vault.id()?,
        format: vault.backend().format().unwrap_or(FORMAT),
        created_at: created_at.map(time_text),
        bound: bound_dir(vault)?.map(|dir| dir.to_string_lossy().into_owned()),
        forks: reader.forks()?.len() as u64,
        checkpoints: reader.checkpoints()?.len() as u64,
        versions: usage.versions,
        file_bytes: usage.file_bytes,
    })
}

/// Copies the current state of the vault to a new file, relative to the working directory of the client.
pub fn copy(workplace: &Workplace, file: &Path) -> Result<VaultCopy, OpError> {
    let Workplace { client, vault } = workplace;
    let to = client.surroundings.cwd.join(file);
    if let Some(dir) = to.parent().filter(|dir| !dir.exists()) {
        return Err(VerbError::NoDirectory { dir: dir.to_owned() }.into());
    }
    vault.copy(&to).map_err(taken)?;
    let bytes = std::fs::metadata(&to).map_err(WorkplaceError::host("read", &to))?.len();
    let path = vault.path().unwrap_or(Path::new(""));
    Ok(VaultCopy {
        vault: path.to_string_lossy().into_owned(),
        copy: to.to_string_lossy().into_owned(),
        bytes,
    })
}

/// The error for a copy whose file exists: --vault names the source.
fn taken(error: VaultError) -> OpError {
    let is_taken =
        matches!(error, VaultError::Backend(BackendError::Exists { .. } | BackendError::Foreign { .. }));
    match is_taken {
        true => VerbError::Advised { error, hint: "name a new file".to_owned() }.into(),
        false => error.into(),
    }
}

pub struct Trusted {
    pub trust: VaultTrust,
    /// The vault is bound to another directory than the named one: a run would see that directory.
    pub is_bound_elsewhere: bool,
}

/// Trusts the vault in this file, or in this directory.
pub fn trust(client: &Client, place: &Path) -> Result<Trusted, OpError> {
    let dir = client.surroundings.cwd.join(place);
    let dir = dir.canonicalize().map_err(WorkplaceError::host("find", &dir))?;
    let path = if dir.is_file() {
        dir.clone()
    } else {
        let path = dir.join(VAULT_DIR).join(VAULT_FILE);
        TrustedVaults::check_place(&path)?;
        path
    };
    // Open it first, to check that it is a vault.
    let vault = client.open_vault_at(&path, OpenOptions::default())?;
    let bound = bound_dir(&vault)?;
    let id = vault.id()?;
    client.surroundings.trusted_vaults()?.add(&path, &id, TrustOrigin::Chosen)?;
    let is_bound_elsewhere = bound.as_ref().is_some_and(|bound| *bound != dir);
    let bound = bound.map(|dir| dir.to_string_lossy().into_owned());
    let trust = VaultTrust { vault: path.to_string_lossy().into_owned(), id, bound };
    Ok(Trusted { trust, is_bound_elsewhere })
}

/// Deletes a vault with everything in it: the one at `target`, or the one that the client uses.
pub fn delete(
    client: &Client,
    target: Option<&OsString>,
    is_confirmed: bool,
) -> Result<VaultDelete, OpError> {
    let named = doomed(client, target)?;
    // Open it first, to check that it is a vault.
    let options = OpenOptions { patience: DELETE_PATIENCE, ..OpenOptions::default() };
    let vault = client.open_vault_at(&named, options).map_err(|error| not_deleted(&named, error))?;
    // Resolve symlinks: removing only a link would leave every version in place.
    let path = named.canonicalize().map_err(WorkplaceError::host("find", &named))?;
    if !is_confirmed {
        return Err(VerbError::NotConfirmed { vault: path }.into());
    }
    let id = vault.id()?;
    vault.delete(DELETE_PATIENCE)?;
    if named.is_symlink() {
        std::fs::remove_file(&named).map_err(WorkplaceError::host("remove", &named))?;
    }
    remove_home(&named);
    remove_home(&path);
    let cache_freed_bytes = free_cache(client, &id, &path);
    Ok(VaultDelete { vault: path.to_string_lossy().into_owned(), cache_freed_bytes })
}

/// Removes the cached data of the vault. The vault is already deleted, so a failure is left to a later sweep.
fn free_cache(client: &Client, id: &str, path: &Path) -> u64 {
    // Without a home directory there is no cache.
    let Ok(keeper) = client.cache_keeper() else { return 0 };
    match keeper.forget_vault(id, path) {
        Ok(swept) => swept.freed_bytes,
        Err(error) => {
            let error = with_causes(&error);
            client.note(format_args!("note: its cached data will be removed later: {error}"));
            0
        }
    }
}

/// The hint for a vault to delete that is another file.
const LIST_VAULTS: &str = "nothing was deleted; list vaults with: avfs vault list";

/// The error for a vault to delete that is not found. The hint of other verbs is to create it.
fn not_located(error: LocateError) -> OpError {
    match error.code() {
        "vault.not_found" => VerbError::NoVaultToDelete(error).into(),
        _ => error.into(),
    }
}

/// avfs does not delete a file that it cannot read. Only for a damaged vault, the hint has the command to delete it:
/// another file may be anything.
fn not_deleted(path: &Path, error: VaultError) -> OpError {
    let is_damaged = matches!(&error, VaultError::Backend(BackendError::Corrupt { .. }));
    let is_other =
        matches!(&error, VaultError::Backend(BackendError::Foreign { .. } | BackendError::NotFound { .. }));
    if is_other || is_damaged && !has_vault_header(path) {
        return VerbError::Advised { error, hint: LIST_VAULTS.to_owned() }.into();
    }
    if !is_damaged {
        return error.into();
    }
    let files = COMPANIONS.iter().map(|suffix| sibling(path, suffix)).filter(|file| file.exists());
    let words: Vec<String> =
        [path.to_owned()].into_iter().chain(files).map(|file| shell_word(file.as_os_str())).collect();
    let hint = format!("delete the damaged vault by hand with: rm {}", words.join(" "));
    VerbError::Advised { error, hint }.into()
}

/// The vault to delete. If it is named twice, both names must lead to the same vault.
fn doomed(client: &Client, target: Option<&OsString>) -> Result<PathBuf, OpError> {
    let (target, option) = (target.map(OsString::as_os_str), client.vault_option.as_deref());
    let named = client.surroundings.locate_only(target.or(option)).map_err(not_located)?.path;
    if let (Some(one), Some(other)) = (target, option)
        && client.surroundings.locate_only(Some(other))?.path != named
    {
        let (one, other) = (PathBuf::from(one), PathBuf::from(other));
        return Err(VerbError::TwoVaults { one, other }.into());
    }
    Ok(named)
}

/// Removes the `.avfs` directory that was created for the vault, if nothing else is in it.
fn remove_home(path: &Path) {
    let Some(home) = path.parent().filter(|home| home.ends_with(VAULT_DIR)).map(PathBuf::from) else {
        return;
    };
    let ignore = home.join(".gitignore");
    let ours = avfs_hostfs::text::read_found(&ignore).is_ok_and(|text| text == "*\n");
    let alone = std::fs::read_dir(&home).is_ok_and(|entries| entries.count() == usize::from(ours));
    if alone {
        // The vault itself is deleted; an empty directory does no harm.
        let _ = std::fs::remove_file(&ignore).and_then(|()| std::fs::remove_dir(&home));
    }
}
