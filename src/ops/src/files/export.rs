//! Writes a version to a directory.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use avfs_types::reference::Reference;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::set_ids::SetIds;
use avfs_vault::transfer;
use avfs_vault::write_out::Unwritten;
use avfs_wire::{Export, PathText};
use avfs_workplace::{OpError, Workplace};

use crate::error::VerbError;
use crate::given_path::{GivenPath, within};
use crate::view::View;

/// What to write, and where.
pub struct ExportQuery {
    pub reference: Reference,
    /// Relative to the working directory of the client.
    pub dest: PathBuf,
    /// Empty for the whole version.
    pub paths: Vec<GivenPath>,
    pub overwrite: Overwrite,
    pub set_ids: SetIds,
    /// Skip files that are damaged or missing in the vault, and list them.
    pub keep_going: bool,
}

/// Writes the files; the error says that some were left out.
pub fn export(workplace: &Workplace, query: &ExportQuery) -> Result<(Export, Option<VerbError>), OpError> {
    let Workplace { client, vault } = workplace;
    let (id, root) = {
        let view = View::open(vault, &query.reference)?;
        (view.version.id, view.root)
    };
    let paths = within(&query.paths, vault)?;
    let dest = client.surroundings.cwd.join(&query.dest);
    let progress = client.observer.operation("exporting")?;
    let unwritten = Unwritten::default();
    let options = ExportOptions {
        overwrite: query.overwrite,
        paths: &paths,
        set_ids: query.set_ids,
        meter: &progress.meter,
        unwritten: query.keep_going.then_some(&unwritten),
    };
    let stripped = vault.export(&root, &dest, &options).map_err(|error| match error {
        transfer::Error::Vault(error) => VerbError::in_version(&query.reference)(error),
        error @ (transfer::Error::Import(_) | transfer::Error::Capture(_) | transfer::Error::Export(_)) => {
            error.into()
        }
    })?;
    let left_out = unwritten.into_sorted();
    let exported = Export {
        version: id.to_hex(),
        dest: dest.to_string_lossy().into_owned(),
        files: progress.meter.files.load(Ordering::Relaxed),
        bytes: progress.meter.bytes.load(Ordering::Relaxed),
        left_out: left_out.iter().map(|(path, why)| avfs_present::left_out(path, why)).collect(),
        set_ids_stripped: stripped.iter().map(PathText::of).collect(),
    };
    let count = left_out.len() as u64;
    Ok((exported, (count > 0).then_some(VerbError::LeftOut { count })))
}
