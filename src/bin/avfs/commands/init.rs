//! `avfs init`

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs::backend::sqlite::OpenOptions;
use avfs::ids::ForkName;
use avfs::runtime::envelope::Init;
use avfs::runtime::{BOUND_ABOVE, VAULT_DIR, VAULT_FILE, make_vault};
use avfs::vault::import::OnTrouble;
use clap::Args;

use super::import;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Failure, Outcome};

/// Make a vault for a directory
///
/// The vault is the file DIR/.avfs/vault.db; with --vault it is made there instead. Either way it is bound to
/// DIR: `avfs import` and `avfs status` use that directory when none is named.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs init
  avfs init ~/project --import
  avfs init --vault work ~/project")]
pub struct InitArgs {
    /// The directory whose files the vault will keep; made if it is not there
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Import the directory at once
    #[arg(long)]
    import: bool,
}

/// Where a vault is made and what it says of its directory.
struct Place {
    path: PathBuf,
    bound: Vec<u8>,
}

pub fn run(ctx: &CommandContext, args: &InitArgs) -> Outcome {
    let dir = ctx.around.cwd.join(&args.dir);
    std::fs::create_dir_all(&dir).map_err(EdgeError::host("create", &dir))?;
    let dir = dir.canonicalize().map_err(EdgeError::host("find", &dir))?;
    let place = place(ctx, &dir)?;
    let vault = make_vault(&place.path, &place.bound, OpenOptions::default(), ctx.actor.clone())?;
    ctx.ui.note(format_args!("made the vault {} for {}", place.path.display(), dir.display()));
    let imported = if args.import {
        let fork = ForkName::main();
        Some(import::import(ctx, &vault, &dir, &fork, "first import", OnTrouble::Fail)?)
    } else {
        ctx.ui.note(format_args!("next: avfs{} import", ctx.vault_words()));
        None
    };
    let result = Init {
        vault: place.path.to_string_lossy().into_owned(),
        id: vault.id()?,
        bound: dir.to_string_lossy().into_owned(),
        imported: imported.as_ref().map(|done| done.result.clone()),
    };
    ctx.ui.answer(&result, |out| imported.as_ref().map_or(Ok(()), |done| done.show(out)))
}

fn place(ctx: &CommandContext, dir: &Path) -> Result<Place, Failure> {
    let inside = dir.join(VAULT_DIR).join(VAULT_FILE);
    let path = match ctx.around.chosen(ctx.vault_option.as_deref()) {
        None => inside.clone(),
        Some((text, _)) => ctx.around.path_of(&ctx.around.read_choice(text)?)?,
    };
    let bound = if path == inside { BOUND_ABOVE.to_vec() } else { dir.as_os_str().as_bytes().to_vec() };
    Ok(Place { path, bound })
}
