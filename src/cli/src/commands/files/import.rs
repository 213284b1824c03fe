//! `avfs import`

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;

use avfs_changes::{ChangeCounts, ChangeSummary, Shown};
use avfs_engine::{bound_dir, first_look, require_bound_dir};
use avfs_ops::OpError;
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;
use avfs_types::show_bytes_size;
use avfs_vault::import::{ImportError, ImportOptions, Imported, OnTrouble};
use avfs_vault::meter::Announcement;
use avfs_vault::tree::Pages;
use avfs_vault::version::root_of;
use avfs_vault::{Vault, VaultError, require_version, transfer};
use avfs_wire::Import;

use crate::cli::{OnFork, remark};
use crate::commands::{edited, patch};
use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::plural;

/// Record the current state of a directory as a new version of a fork
///
/// Files known to be unchanged are not read again. Paths that match .avfsignore files (gitignore syntax) are
/// left out. If nothing changed, including times, no version is added.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs import
  avfs import -m 'tests pass'
  avfs import ../other --fork experiment
  avfs import --keep-going")]
pub struct ImportArgs {
    /// The directory to import, as the whole content of the fork [default: the bound directory of the vault]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    on: OnFork,
    /// Record this message with the version
    #[arg(short, long, value_name = "TEXT", default_value = "import", value_parser = remark)]
    message: String,
    /// Continue past files that vanish, cannot be read or keep changing, and list them
    ///
    /// An unreadable file keeps its content from the fork; a changing file is stored as it was last read.
    #[arg(long)]
    keep_going: bool,
}

/// The number of paths that are listed individually.
const PATHS_LISTED_MAX: usize = 100;

/// Lists the first paths, each with the reason.
pub fn list_paths<P: Display, W: Display>(
    out: &mut Out,
    paths: impl ExactSizeIterator<Item = (P, W)>,
) -> Result<(), OpError> {
    let more = paths.len().saturating_sub(PATHS_LISTED_MAX);
    for (path, why) in paths.take(PATHS_LISTED_MAX) {
        out.line(format_args!("left out or inexact: {path}: {why}"))?;
    }
    if more > 0 {
        out.line(format_args!("and {more} more; list all with: --json"))?;
    }
    Ok(())
}

/// A completed import, for both forms of the answer.
pub struct Done {
    pub result: Import,
    /// The text about a large first import.
    pub announced: Option<Vec<String>>,
    fork: ForkName,
    imported: Imported,
    counts: Option<ChangeCounts>,
}

pub fn run(ctx: &CommandContext, args: &ImportArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let dir = match &args.dir {
        Some(dir) => ctx.client.surroundings.cwd.join(dir),
        None => require_bound_dir(&vault)?,
    };
    let on_trouble = if args.keep_going { OnTrouble::KeepGoing } else { OnTrouble::Fail };
    let done = import(ctx, &vault, &dir, &args.on.fork, &args.message, on_trouble)?;
    if done.imported.committed.changed() {
        note_a_part(ctx, &vault, &dir, &args.on.fork)?;
    }
    ctx.ui.answer(&done.result, |out| done.show(out))
}

/// A user who names a directory of the workspace may expect to update only that directory, as other tools do.
fn note_a_part(ctx: &CommandContext, vault: &Vault, dir: &Path, fork: &ForkName) -> Result<(), OpError> {
    let Some(bound) = bound_dir(vault)? else { return Ok(()) };
    let (Ok(dir), Ok(bound)) = (dir.canonicalize(), bound.canonicalize()) else { return Ok(()) };
    if dir != bound && dir.starts_with(&bound) {
        let (dir, bound) = (dir.display(), bound.display());
        ctx.ui.note(format_args!("note: {fork} now has only the content of {dir}, not of {bound}"));
    }
    Ok(())
}

pub fn import(
    ctx: &CommandContext,
    vault: &Vault,
    dir: &Path,
    fork: &ForkName,
    message: &str,
    on_trouble: OnTrouble,
) -> Result<Done, OpError> {
    import_with(ctx, vault, dir, fork, message, on_trouble, FirstImport::Expected)
}

/// Imports the bound directory onto main before a list of runs. Announces a large first import.
pub fn import_for_runs(
    ctx: &CommandContext,
    vault: &Vault,
    dir: &Path,
    message: &str,
) -> Result<Done, OpError> {
    let main = ForkName::main();
    import_with(ctx, vault, dir, &main, message, OnTrouble::KeepGoing, FirstImport::Announced)
}

/// Whether the cost of a large first import is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstImport {
    /// The user asked for the import.
    Expected,
    Announced,
}

/// The text about a large first import; `None` if this is not the first one, or if it cannot be large.
fn announcement(
    ctx: &CommandContext,
    vault: &Vault,
    dir: &Path,
    exclude: &[String],
) -> Result<Option<Announcement>, OpError> {
    let main = vault.fork(&ForkName::main())?.head;
    let has_files = require_version(&*vault.read()?, &main)?.entries > 0;
    if has_files || ctx.client.stat_cache(vault, dir)?.is_none_or(|cache| cache.exists()) {
        return Ok(None);
    }
    Ok(first_look(dir, &ctx.client.surroundings.cwd, exclude, ctx.client.warn_above(dir)?)
        .announcement(Vec::new()))
}

fn import_with(
    ctx: &CommandContext,
    vault: &Vault,
    dir: &Path,
    fork: &ForkName,
    message: &str,
    on_trouble: OnTrouble,
    first: FirstImport,
) -> Result<Done, OpError> {
    let stat_cache = ctx.client.stat_cache(vault, dir)?;
    // Check this before reading the settings in the directory.
    if let Err(error) = std::fs::read_dir(dir)
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        return Err(transfer::Error::from(ImportError::NoPermission { path: TreePath::root() }).into());
    }
    let exclude = ctx.client.exclude(dir)?;
    let announcement = match first {
        FirstImport::Announced => announcement(ctx, vault, dir, &exclude)?,
        FirstImport::Expected => None,
    };
    let (imported, announced) = {
        let progress = ctx.client.observer.announced_operation("importing", announcement)?;
        let options = ImportOptions {
            on_trouble,
            stat_cache: stat_cache.as_deref(),
            exclude: &exclude,
            meter: &progress.meter,
        };
        let imported = vault.import(dir, fork, message, &options)?;
        progress.meter.announce_if_due();
        (imported, progress.meter.announced().map(<[String]>::to_vec))
    };
    if let Some(why) = &imported.scanned.cache_unsaved {
        ctx.ui.note(format_args!("note: the next import will read every file: cannot save {why}"));
    }
    if imported.scanned.mended > 0 {
        let blobs = plural(imported.scanned.mended, "blob", "blobs");
        let rest = format_args!("check for more damage with: {} fsck", ctx.ui.avfs);
        ctx.ui.note(format_args!("note: damaged in the vault and stored again: {blobs}; {rest}"));
    }
    // The version exists even if its parent is damaged.
    let counts = count_changes(vault, &imported).unwrap_or_else(|error| {
        ctx.ui.note(format_args!("note: cannot count the changes: {error}"));
        None
    });
    let result = avfs_present::import(fork, dir, &imported, counts.as_ref().map(avfs_present::change_totals));
    Ok(Done { result, announced, fork: fork.clone(), imported, counts })
}

/// The number of changes in the version, or `None` if the files of its parent were pruned.
fn count_changes(vault: &Vault, imported: &Imported) -> Result<Option<ChangeCounts>, VaultError> {
    let after = &imported.committed.version;
    if !imported.committed.changed() {
        return Ok(Some(ChangeCounts::default()));
    }
    let reader = vault.read()?;
    let reader = &*reader;
    let before = require_version(reader, &imported.committed.previous)?;
    if before.pruned_at.is_some() {
        return Ok(None);
    }
    if before.entries == 0 {
        // A first import: a walk over all entries would give no more than the record does.
        return Ok(Some(ChangeCounts { added: after.entries, ..ChangeCounts::default() }));
    }
    let (before, after) = (root_of(&before)?, root_of(after)?);
    let pages: &dyn Pages = &reader;
    let summary = ChangeSummary::compare(vault, pages, (&before, &after), &[], Shown::WithoutTimes)?;
    Ok(Some(summary.counts))
}

impl Done {
    /// The new head of the fork.
    pub fn version(&self) -> VersionId {
        self.imported.committed.version.id
    }

    pub fn show(&self, out: &mut Out) -> Result<(), OpError> {
        edited::show(out, &self.fork, &self.imported.committed)?;
        let (version, scanned) = (&self.imported.committed.version, &self.imported.scanned);
        if let (Some(counts), true) = (&self.counts, self.imported.committed.changed()) {
            let only_times = *counts == ChangeCounts::default();
            let line = if only_times {
                "only times changed".to_owned()
            } else {
                patch::counts_line(&avfs_present::change_totals(counts))
            };
            out.line(format_args!("{line}"))?;
        }
        out.line(format_args!(
            "{}, {}; read {} ({})",
            plural(version.entries, "entry", "entries"),
            show_bytes_size(version.bytes),
            plural(scanned.files_read, "file", "files"),
            show_bytes_size(scanned.bytes_read),
        ))?;
        list_paths(out, scanned.troubles.iter().map(|trouble| (&trouble.path, trouble.reason)))
    }
}
