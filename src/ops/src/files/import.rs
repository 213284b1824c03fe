//! Records a directory as a version.

use std::path::{Path, PathBuf};

use avfs_changes::{ChangeCounts, ChangeSummary, Shown};
use avfs_engine::{bound_dir, first_look, require_bound_dir};
use avfs_types::ids::ForkName;
use avfs_types::path::TreePath;
use avfs_vault::import::{ImportError, ImportOptions, Imported, OnTrouble};
use avfs_vault::meter::Announcement;
use avfs_vault::tree::Pages;
use avfs_vault::version::root_of;
use avfs_vault::{Vault, VaultError, require_version, transfer};
use avfs_wire::Import;
use avfs_workplace::{Client, OpError, Workplace};

use crate::text::plural;

/// What to import, and onto which fork.
pub struct ImportQuery {
    /// Relative to the working directory of the client; `None` for the bound directory.
    pub dir: Option<PathBuf>,
    pub fork: ForkName,
    pub message: String,
    /// Continue past files that cannot be imported unchanged, and list them.
    pub keep_going: bool,
}

/// Whether the cost of a large first import is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstImport {
    /// The user asked for the import.
    Expected,
    Announced,
}

/// Records the state of a directory as a new version of a fork.
pub fn import(workplace: &Workplace, query: &ImportQuery) -> Result<Import, OpError> {
    let Workplace { client, vault } = workplace;
    let dir = match &query.dir {
        Some(dir) => client.surroundings.cwd.join(dir),
        None => require_bound_dir(vault)?,
    };
    let on_trouble = if query.keep_going { OnTrouble::KeepGoing } else { OnTrouble::Fail };
    let task =
        ImportTask { client, vault, dir: &dir, fork: &query.fork, message: &query.message, on_trouble };
    let (imported, _) = task.import(FirstImport::Expected)?;
    if imported.edited.changed {
        task.note_a_part()?;
    }
    Ok(imported)
}

/// Imports the bound directory onto main before a list of runs. Announces a large first import, and returns the text.
pub fn import_for_runs(
    client: &Client,
    vault: &Vault,
    dir: &Path,
    message: &str,
) -> Result<(Import, Option<Vec<String>>), OpError> {
    let (fork, on_trouble) = (&ForkName::main(), OnTrouble::KeepGoing);
    ImportTask { client, vault, dir, fork, message, on_trouble }.import(FirstImport::Announced)
}

/// One import.
struct ImportTask<'i> {
    client: &'i Client,
    vault: &'i Vault,
    dir: &'i Path,
    fork: &'i ForkName,
    message: &'i str,
    on_trouble: OnTrouble,
}

impl ImportTask<'_> {
    fn import(&self, first: FirstImport) -> Result<(Import, Option<Vec<String>>), OpError> {
        let Self { client, vault, dir, fork, message, on_trouble } = *self;
        let stat_cache = client.stat_cache(vault, dir)?;
        // Check this before reading the settings in the directory.
        if let Err(error) = std::fs::read_dir(dir)
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            return Err(transfer::Error::from(ImportError::NoPermission { path: TreePath::root() }).into());
        }
        let exclude = client.exclude(dir)?;
        let announcement = match first {
            FirstImport::Announced => self.announcement(&exclude)?,
            FirstImport::Expected => None,
        };
        let (imported, announced) = {
            let progress = client.observer.announced_operation("importing", announcement)?;
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
            client.note(format_args!("note: the next import will read every file: cannot save {why}"));
        }
        if imported.scanned.mended > 0 {
            let blobs = plural(imported.scanned.mended, "blob", "blobs");
            let rest = format_args!("check for more damage with: {} fsck", client.avfs);
            client.note(format_args!("note: damaged in the vault and stored again: {blobs}; {rest}"));
        }
        // The version exists even if its parent is damaged.
        let counts = count_changes(vault, &imported).unwrap_or_else(|error| {
            client.note(format_args!("note: cannot count the changes: {error}"));
            None
        });
        let counts = counts.as_ref().map(avfs_present::change_totals);
        Ok((avfs_present::import(fork, dir, &imported, counts), announced))
    }

    /// The text about a large first import; `None` if this is not the first one, or if it cannot be large.
    fn announcement(&self, exclude: &[String]) -> Result<Option<Announcement>, OpError> {
        let Self { client, vault, dir, .. } = *self;
        let main = vault.fork(&ForkName::main())?.head;
        let has_files = require_version(&*vault.read()?, &main)?.entries > 0;
        if has_files || client.stat_cache(vault, dir)?.is_none_or(|cache| cache.exists()) {
            return Ok(None);
        }
        Ok(first_look(dir, &client.surroundings.cwd, exclude, client.warn_above(dir)?)
            .announcement(Vec::new()))
    }

    /// A user who names a directory of the workspace may expect to update only that directory, as other tools do.
    fn note_a_part(&self) -> Result<(), OpError> {
        let Some(bound) = bound_dir(self.vault)? else { return Ok(()) };
        let (Ok(dir), Ok(bound)) = (self.dir.canonicalize(), bound.canonicalize()) else { return Ok(()) };
        if dir != bound && dir.starts_with(&bound) {
            let (fork, dir, bound) = (self.fork, dir.display(), bound.display());
            self.client.note(format_args!("note: {fork} now has only the content of {dir}, not of {bound}"));
        }
        Ok(())
    }
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
