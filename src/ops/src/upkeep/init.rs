//! Creates a vault for a directory.

use std::path::{Path, PathBuf};

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{LocateError, Located, TrustOrigin, VaultSource, bound_dir, make_vault};
use avfs_present::Avfs;
use avfs_types::VAULT_DIR;
use avfs_types::ids::ForkName;
use avfs_vault::Vault;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_wire::Init;
use avfs_workplace::{Client, OpError, Workplace, WorkplaceError};

use crate::files::{ImportQuery, import};

/// Creates a vault for this directory, relative to the working directory of the client, unless it has one.
pub fn init(client: &Client, dir: &Path, is_imported: bool) -> Result<Init, OpError> {
    let dir = client.surroundings.cwd.join(dir);
    let is_new = !dir.exists();
    std::fs::create_dir_all(&dir).map_err(WorkplaceError::host("create", &dir))?;
    let dir = dir.canonicalize().map_err(WorkplaceError::host("find", &dir))?;
    let made = find_or_make(client, &dir);
    if made.is_err() && is_new {
        // Removes only empty directories: one that is in use by now stays. Errors are ignored because the
        // reason why there is no vault matters more.
        let _ = std::fs::remove_dir(dir.join(VAULT_DIR));
        let _ = std::fs::remove_dir(&dir);
    }
    let (path, vault, made) = made?;
    let workplace = Workplace { client: client.clone(), vault };
    let done = if made { "created the vault" } else { "the vault exists already:" };
    workplace.note(format_args!("{done} {} for {}", path.display(), dir.display()));
    let imported = if is_imported {
        let (fork, message) = (ForkName::main(), "first import".to_owned());
        let query = ImportQuery { dir: Some(dir.clone()), fork, message, keep_going: false };
        Some(import(&workplace, &query)?)
    } else {
        workplace.note(format_args!("next: {} import", avfs_for(client, &path, &dir)));
        None
    };
    Ok(Init {
        vault: path.to_string_lossy().into_owned(),
        id: workplace.vault.id()?,
        bound: dir.to_string_lossy().into_owned(),
        made,
        imported,
    })
}

/// The path of the vault, the vault, and whether it was created.
fn find_or_make(client: &Client, dir: &Path) -> Result<(PathBuf, Vault, bool), OpError> {
    let path = place(client, dir)?;
    if let Some(vault) = existing(client, &path, dir)? {
        return Ok((path, vault, false));
    }
    let make = || -> Result<Vault, OpError> {
        Ok(make_vault(&path, dir, OpenOptions::default(), client.context.clone())?)
    };
    let vault = if is_named(client) {
        let vault = make()?;
        record(client, &path, &vault.id()?);
        vault
    } else {
        client.surroundings.trusted_vaults()?.make(&path, TrustOrigin::Chosen, make)?
    };
    client.surroundings.record_kept(&path, dir);
    Ok((path, vault, true))
}

/// An existing vault for the same directory. A vault that the caller does not trust is an error.
fn existing(client: &Client, path: &Path, dir: &Path) -> Result<Option<Vault>, OpError> {
    // Finds the vault of a directory that was moved, too.
    let is_kept = !is_named(client) && client.surroundings.kept_for(dir).as_deref() == Some(path);
    if !path.exists() {
        return Ok(None);
    }
    let trusted = match is_named(client) || is_kept {
        true => None,
        false => Some(client.surroundings.trusted_vaults()?.check(path)?),
    };
    let vault = client.open_vault_at(path, OpenOptions::default())?;
    let (path, source) = (path.to_owned(), VaultSource::Nearest);
    let located = Located { path, source, trusted, kept_for: is_kept.then(|| dir.to_owned()) };
    if let Some(note) = client.surroundings.confirm::<OpError>(&located, &vault)? {
        client.note(format_args!("{}", note.text));
    }
    Ok(if bound_dir(&vault)?.as_deref() == Some(dir) { Some(vault) } else { None })
}

fn place(client: &Client, dir: &Path) -> Result<PathBuf, OpError> {
    match client.surroundings.chosen(client.vault_option.as_deref()) {
        None => {
            let (config, _) = ConfigTexts::read(&client.surroundings, None)?.for_a_run()?;
            Ok(client.surroundings.place_for(dir, config.vault_place.value)?)
        }
        Some((text, _)) => Ok(client.surroundings.path_of(&client.surroundings.read_choice(text)?)?),
    }
}

/// Records a vault that is always named explicitly. Without the record it can be used, except for approvals.
fn record(client: &Client, path: &Path, id: &str) {
    let recorded = match client.surroundings.trusted_vaults() {
        Ok(trusted) => trusted.add(path, id, TrustOrigin::Chosen).map_err(LocateError::from),
        Err(error) => Err(error),
    };
    if let Err(error) = recorded {
        client.note(format_args!("approvals in this vault will not count: {error}"));
    }
}

/// Whether later commands also have to name the vault.
fn is_named(client: &Client) -> bool {
    client.surroundings.chosen(client.vault_option.as_deref()).is_some()
}

/// The command prefix for the new vault: without --vault if the vault is found from here.
fn avfs_for(client: &Client, path: &Path, dir: &Path) -> Avfs {
    let found = client.surroundings.locate(client.vault_option.as_deref());
    if found.is_ok_and(|found| found.path == path) {
        return client.avfs.clone();
    }
    Avfs::on(Some(dir.as_os_str()))
}
