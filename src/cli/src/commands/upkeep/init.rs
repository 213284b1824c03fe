//! `avfs init`

use std::path::{Path, PathBuf};

use clap::Args;

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{LocateError, Located, TrustOrigin, VaultSource, bound_dir, make_vault};
use avfs_ops::{OpError, WorkplaceError};
use avfs_present::Avfs;
use avfs_types::VAULT_DIR;
use avfs_types::ids::ForkName;
use avfs_vault::Vault;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::import::OnTrouble;
use avfs_wire::Init;

use crate::commands::import;
use crate::context::CommandContext;
use crate::ui::Outcome;

/// Create a vault for a directory
///
/// The vault is the file DIR/.avfs/vault.db, or the one that --vault names. It is bound to DIR: `avfs import`
/// and `avfs status` use that directory by default. Does nothing if DIR already has its vault.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs init
  avfs init ~/project --import
  avfs init --vault work ~/project")]
pub struct InitArgs {
    /// The directory whose files the vault keeps; created if missing
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Also import the directory
    #[arg(long)]
    import: bool,
}

pub fn run(ctx: &CommandContext, args: &InitArgs) -> Outcome {
    let dir = ctx.client.surroundings.cwd.join(&args.dir);
    let is_new = !dir.exists();
    std::fs::create_dir_all(&dir).map_err(WorkplaceError::host("create", &dir))?;
    let dir = dir.canonicalize().map_err(WorkplaceError::host("find", &dir))?;
    let made = place(ctx, &dir).and_then(|path| {
        if let Some(vault) = existing(ctx, &path, &dir)? {
            return Ok((path, vault, false));
        }
        let make = || -> Result<Vault, OpError> {
            Ok(make_vault(&path, &dir, OpenOptions::default(), ctx.client.context.clone())?)
        };
        let vault = if is_named(ctx) {
            let vault = make()?;
            record(ctx, &path, &vault.id()?);
            vault
        } else {
            ctx.client.surroundings.trusted_vaults()?.make(&path, TrustOrigin::Chosen, make)?
        };
        ctx.client.surroundings.record_kept(&path, &dir);
        Ok((path, vault, true))
    });
    if made.is_err() && is_new {
        // Removes only empty directories: one that is in use by now stays. Errors are ignored because the
        // reason why there is no vault matters more.
        let _ = std::fs::remove_dir(dir.join(VAULT_DIR));
        let _ = std::fs::remove_dir(&dir);
    }
    let (path, vault, made) = made?;
    let done = if made { "created the vault" } else { "the vault exists already:" };
    ctx.ui.note(format_args!("{done} {} for {}", path.display(), dir.display()));
    let imported = if args.import {
        let fork = ForkName::main();
        Some(import::import(ctx, &vault, &dir, &fork, "first import", OnTrouble::Fail)?)
    } else {
        ctx.ui.note(format_args!("next: {} import", avfs_for(ctx, &path, &dir)));
        None
    };
    let result = Init {
        vault: path.to_string_lossy().into_owned(),
        id: vault.id()?,
        bound: dir.to_string_lossy().into_owned(),
        made,
        imported: imported.as_ref().map(|done| done.result.clone()),
    };
    ctx.ui.answer(&result, |out| imported.as_ref().map_or(Ok(()), |done| done.show(out)))
}

/// An existing vault for the same directory. A vault that the caller does not trust is an error.
fn existing(ctx: &CommandContext, path: &Path, dir: &Path) -> Result<Option<Vault>, OpError> {
    if !path.exists() {
        return Ok(None);
    }
    let trusted = match is_named(ctx) {
        true => None,
        false => Some(ctx.client.surroundings.trusted_vaults()?.check(path)?),
    };
    let vault = ctx.client.open_vault_at(path, OpenOptions::default())?;
    let (path, source) = (path.to_owned(), VaultSource::Nearest);
    ctx.client.surroundings.confirm::<OpError>(&Located { path, source, trusted, kept_for: None }, &vault)?;
    Ok(if bound_dir(&vault)?.as_deref() == Some(dir) { Some(vault) } else { None })
}

fn place(ctx: &CommandContext, dir: &Path) -> Result<PathBuf, OpError> {
    match ctx.client.surroundings.chosen(ctx.client.vault_option.as_deref()) {
        None => {
            let (config, _) = ConfigTexts::read(&ctx.client.surroundings, None)?.for_a_run()?;
            Ok(ctx.client.surroundings.place_for(dir, config.vault_place.value)?)
        }
        Some((text, _)) => {
            Ok(ctx.client.surroundings.path_of(&ctx.client.surroundings.read_choice(text)?)?)
        }
    }
}

/// Records a vault that is always named explicitly. Without the record it can be used, except for approvals.
fn record(ctx: &CommandContext, path: &Path, id: &str) {
    let recorded = match ctx.client.surroundings.trusted_vaults() {
        Ok(trusted) => trusted.add(path, id, TrustOrigin::Chosen).map_err(LocateError::from),
        Err(error) => Err(error),
    };
    if let Err(error) = recorded {
        ctx.ui.note(format_args!("approvals in this vault will not count: {error}"));
    }
}

/// Whether later commands also have to name the vault.
fn is_named(ctx: &CommandContext) -> bool {
    ctx.client.surroundings.chosen(ctx.client.vault_option.as_deref()).is_some()
}

/// The command prefix for the new vault: without --vault if the vault is found from here.
fn avfs_for(ctx: &CommandContext, path: &Path, dir: &Path) -> Avfs {
    let found = ctx.client.surroundings.locate(ctx.client.vault_option.as_deref());
    if found.is_ok_and(|found| found.path == path) {
        return ctx.ui.avfs.clone();
    }
    Avfs::on(Some(dir.as_os_str()))
}
