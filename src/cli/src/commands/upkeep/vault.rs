//! `avfs vault list|info|copy|trust|delete`

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use avfs_engine::{LocateError, TrustOrigin, TrustedVaults, bound_dir};
use avfs_ops::{OpError, VerbError, WorkplaceError};
use avfs_terminal::Tone;
use avfs_types::clock::{Timestamp, time_text};
use avfs_types::diagnose::{Diagnose as _, shell_word, with_causes};
use avfs_types::{VAULT_DIR, VAULT_FILE, show_bytes_size};
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::{COMPANIONS, FORMAT, OpenOptions, has_vault_header, sibling};
use avfs_vault::{Vault, VaultError, key};
use avfs_wire::{VaultCopy, VaultDelete, VaultInfo, VaultList, VaultListed, VaultTrust};

use crate::cli::vault_word;
use crate::context::CommandContext;
use crate::ui::Outcome;
use crate::view::local_time;

/// The size from which the freed space is printed.
const FREED_SHOWN_BYTES_MIN: u64 = 1 << 20;
/// How long a delete waits until the vault is no longer in use.
const DELETE_PATIENCE: Duration = Duration::from_secs(2);

/// List, show, copy, trust and delete vaults
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault list
  avfs vault info --vault work
  avfs vault copy /backup/project.db
  avfs vault delete work --yes")]
pub struct VaultArgs {
    #[command(subcommand)]
    action: VaultAction,
}

#[derive(Debug, Subcommand)]
enum VaultAction {
    /// List named vaults, and the vault of the working directory
    #[command(after_help = "\
Examples:
  avfs vault list
  avfs vault list --json")]
    List,
    /// Show the properties of a vault
    #[command(after_help = "\
Examples:
  avfs vault info
  avfs vault info --vault work")]
    Info,
    Copy(CopyArgs),
    Trust(TrustArgs),
    Delete(DeleteArgs),
}

/// Copy a vault to a new file
///
/// Copies the current state, including the write-ahead log. The vault can be in use during the copy. The file
/// must not exist. Use the copy with --vault, or move it to the place of a lost vault.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault copy /backup/project.db
  avfs vault copy --vault work work-copy.db")]
struct CopyArgs {
    /// The file to create
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

/// Trust a vault that you did not create
///
/// A vault decides which files a run sees and which approvals are valid, so avfs uses a vault that it finds
/// in or above the working directory only if you created or trust it. This is needed once for a vault that
/// came with a repository or a backup, was copied, or was created by an older avfs. A vault that is named with
/// --vault needs it for its approvals to count.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault trust
  avfs vault trust ~/project
  avfs vault trust /srv/vaults/team.db")]
struct TrustArgs {
    /// The directory whose .avfs contains the vault, or the vault file
    #[arg(default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    dir: PathBuf,
}

/// Delete a vault and all its versions
///
/// The files of the bound directory stay. Also removes the cached data of the vault and the scratches of its
/// runs that were never captured. A vault that is being written to is not deleted; processes that read it can
/// continue. If the name is a symlink, the link is deleted too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs vault delete --yes
  avfs vault delete work --yes
  avfs vault delete ~/project/.avfs/vault.db --yes")]
struct DeleteArgs {
    /// The vault to delete [default: the vault of --vault or of the working directory]
    #[arg(value_name = "NAME|PATH", value_parser = vault_word())]
    target: Option<OsString>,
    /// Confirm the deletion
    #[arg(long)]
    yes: bool,
}

pub fn run(ctx: &CommandContext, args: &VaultArgs) -> Outcome {
    match &args.action {
        VaultAction::List => list(ctx),
        VaultAction::Info => info(ctx),
        VaultAction::Copy(args) => copy(ctx, args),
        VaultAction::Trust(args) => trust(ctx, args),
        VaultAction::Delete(args) => delete(ctx, args),
    }
}

fn list(ctx: &CommandContext) -> Outcome {
    let used =
        ctx.client.surroundings.locate(ctx.client.vault_option.as_deref()).ok().map(|located| located.path);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let mut vaults: Vec<VaultListed> = Vec::new();
    let named = match ctx.client.surroundings.named_vaults() {
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
        ctx.ui.note(format_args!("no vaults found; create one with: avfs init"));
    }
    ctx.ui.answer(&VaultList { vaults: vaults.clone() }, |out| {
        for vault in &vaults {
            let mark = if vault.nearest { "*" } else { " " };
            let name = out.paint(Tone::Name, format_args!("{:<16}", vault.name.as_deref().unwrap_or("-")));
            out.line(format_args!(
                "{mark} {name} {:>10}  {}",
                show_bytes_size(vault.file_bytes),
                vault.vault
            ))?;
        }
        Ok(())
    })
}

fn info(ctx: &CommandContext) -> Outcome {
    let vault = ctx.open_vault()?;
    let created = created_at(&vault)?;
    let result = describe(&vault, created)?;
    let created = created.map(local_time);
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("vault        {}", result.vault))?;
        out.line(format_args!("id           {}", result.id))?;
        out.line(format_args!("format       {}", result.format))?;
        out.line(format_args!("created      {}", created.unwrap_or_else(|| "unknown".to_owned())))?;
        out.line(format_args!("bound to     {}", result.bound.as_deref().unwrap_or("no directory")))?;
        out.line(format_args!("forks        {}", result.forks))?;
        out.line(format_args!("checkpoints  {}", result.checkpoints))?;
        out.line(format_args!("versions     {}", result.versions))?;
        out.line(format_args!("file         {}", show_bytes_size(result.file_bytes)))
    })
}

fn created_at(vault: &Vault) -> Result<Option<Timestamp>, OpError> {
    let text = vault.read()?.meta(key::CREATED_AT)?;
    Ok(text.and_then(|text| String::from_utf8(text).ok()?.parse().ok()).map(Timestamp))
}

fn describe(vault: &Vault, created_at: Option<Timestamp>) -> Result<VaultInfo, OpError> {
    let reader = vault.read()?;
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

fn copy(ctx: &CommandContext, args: &CopyArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let to = ctx.client.surroundings.cwd.join(&args.file);
    if let Some(dir) = to.parent().filter(|dir| !dir.exists()) {
        return Err(VerbError::NoDirectory { dir: dir.to_owned() }.into());
    }
    vault.copy(&to).map_err(taken)?;
    let bytes = std::fs::metadata(&to).map_err(WorkplaceError::host("read", &to))?.len();
    let path = vault.path().unwrap_or(Path::new(""));
    let result = VaultCopy {
        vault: path.to_string_lossy().into_owned(),
        copy: to.to_string_lossy().into_owned(),
        bytes,
    };
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("copied the vault to {} ({})", result.copy, show_bytes_size(bytes)))
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

fn trust(ctx: &CommandContext, args: &TrustArgs) -> Outcome {
    let dir = ctx.client.surroundings.cwd.join(&args.dir);
    let dir = dir.canonicalize().map_err(WorkplaceError::host("find", &dir))?;
    let path = if dir.is_file() {
        dir.clone()
    } else {
        let path = dir.join(VAULT_DIR).join(VAULT_FILE);
        TrustedVaults::check_place(&path)?;
        path
    };
    // Open it first, to check that it is a vault.
    let vault = ctx.client.open_vault_at(&path, OpenOptions::default())?;
    let bound = bound_dir(&vault)?;
    let id = vault.id()?;
    ctx.client.surroundings.trusted_vaults()?.add(&path, &id, TrustOrigin::Chosen)?;
    let result = VaultTrust {
        vault: path.to_string_lossy().into_owned(),
        id,
        bound: bound.as_ref().map(|dir| dir.to_string_lossy().into_owned()),
    };
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("trusted the vault {}", result.vault))?;
        match &result.bound {
            // Print it if it differs: a run would see that directory.
            Some(text) if bound.as_ref() != Some(&dir) => {
                out.line(format_args!("it is bound to the directory {text}"))
            }
            Some(_) | None => Ok(()),
        }
    })
}

fn delete(ctx: &CommandContext, args: &DeleteArgs) -> Outcome {
    let named = doomed(ctx, args)?;
    // Open it first, to check that it is a vault.
    let options = OpenOptions { patience: DELETE_PATIENCE, ..OpenOptions::default() };
    let vault = ctx.client.open_vault_at(&named, options).map_err(|error| not_deleted(&named, error))?;
    // Resolve symlinks: removing only a link would leave every version in place.
    let path = named.canonicalize().map_err(WorkplaceError::host("find", &named))?;
    if !args.yes {
        return Err(VerbError::NotConfirmed { vault: path }.into());
    }
    let id = vault.id()?;
    vault.delete(DELETE_PATIENCE)?;
    if named.is_symlink() {
        std::fs::remove_file(&named).map_err(WorkplaceError::host("remove", &named))?;
    }
    remove_home(&named);
    remove_home(&path);
    let cache_freed_bytes = free_cache(ctx, &id, &path);
    let result = VaultDelete { vault: path.to_string_lossy().into_owned(), cache_freed_bytes };
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("deleted the vault {}", path.display()))?;
        match cache_freed_bytes {
            FREED_SHOWN_BYTES_MIN.. => {
                out.line(format_args!("freed {} of the cache", show_bytes_size(cache_freed_bytes)))
            }
            _ => Ok(()),
        }
    })
}

/// Removes the cached data of the vault. The vault is already deleted, so a failure is left to a later sweep.
fn free_cache(ctx: &CommandContext, id: &str, path: &Path) -> u64 {
    // Without a home directory there is no cache.
    let Ok(keeper) = ctx.client.cache_keeper() else { return 0 };
    match keeper.forget_vault(id, path) {
        Ok(swept) => swept.freed_bytes,
        Err(error) => {
            let error = with_causes(&error);
            ctx.ui.note(format_args!("note: its cached data will be removed later: {error}"));
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
fn doomed(ctx: &CommandContext, args: &DeleteArgs) -> Result<PathBuf, OpError> {
    let (target, option) = (args.target.as_deref(), ctx.client.vault_option.as_deref());
    let named = ctx.client.surroundings.locate_only(target.or(option)).map_err(not_located)?.path;
    if let (Some(one), Some(other)) = (target, option)
        && ctx.client.surroundings.locate_only(Some(other))?.path != named
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
