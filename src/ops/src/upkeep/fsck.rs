//! Checks the vault, and repairs damaged content from a directory.

use std::path::{Path, PathBuf};

use avfs_engine::require_bound_dir;
use avfs_present::error_body;
use avfs_vault::fsck::{Report, Thoroughness};
use avfs_vault::import::{ImportError, ImportOptions, OnTrouble};
use avfs_vault::transfer;
use avfs_wire::{ErrorBody, Fsck, FsckFinding, FsckHealed};
use avfs_workplace::{Client, OpError, Workplace};

use crate::error::VerbError;

/// How to check.
pub struct FsckQuery {
    /// Do not read the content of blobs.
    pub quick: bool,
    /// Repair damaged or missing content first.
    pub heal: Option<HealFrom>,
}

/// The directory that has the content.
pub enum HealFrom {
    BoundDir,
    /// Relative to the working directory of the client.
    Dir(PathBuf),
}

pub struct FsckAnswer {
    pub fsck: Fsck,
    pub damage: Option<VerbError>,
}

pub fn fsck(client: &Client, query: &FsckQuery) -> Result<FsckAnswer, OpError> {
    let workplace = client.open().map_err(|failure| beyond_checking(client, failure))?;
    let how = if query.quick { Thoroughness::Quick } else { Thoroughness::Full };
    let from = match &query.heal {
        None => None,
        Some(HealFrom::Dir(dir)) => Some(directory(client, client.surroundings.cwd.join(dir))?),
        Some(HealFrom::BoundDir) => Some(require_bound_dir(&workplace.vault)?),
    };
    let (report, healed) = match &from {
        None => (workplace.vault.fsck(how, &client.observer.whole_operation("checking").meter)?, None),
        Some(from) => {
            let (report, healed) =
                heal(&workplace, how, from).map_err(|failure| beyond_healing(client, failure))?;
            (report, Some(healed))
        }
    };
    let findings = report.findings.iter();
    let fsck = Fsck {
        versions: report.versions,
        trees: report.trees,
        blobs: report.blobs,
        audit_rows: report.audit_rows,
        runs: report.runs,
        results: report.memos,
        findings: findings
            .map(|finding| FsckFinding { code: finding.code.to_owned(), message: finding.what.clone() })
            .collect(),
        healed,
    };
    let is_repairable = from.is_none() && !report.broken.is_empty();
    let damage = match fsck.findings.len() {
        0 => None,
        problems => Some(VerbError::Damaged { problems: problems as u64, is_repairable }),
    };
    Ok(FsckAnswer { fsck, damage })
}

/// Checks this before the long check of the vault, which would report it only at its end.
fn directory(client: &Client, dir: PathBuf) -> Result<PathBuf, OpError> {
    if dir.is_dir() {
        return Ok(dir);
    }
    let missing = transfer::Error::from(ImportError::NoDirectory { path: dir });
    let hint = Some(format!("name a directory that has the files: {} fsck --heal DIR", client.avfs));
    Err(OpError::Body(ErrorBody { hint, ..error_body(&missing, &client.avfs) }))
}

fn heal(workplace: &Workplace, how: Thoroughness, from: &Path) -> Result<(Report, FsckHealed), OpError> {
    let Workplace { client, vault } = workplace;
    let exclude = client.exclude(from)?;
    let progress = client.observer.operation("repairing")?;
    let meter = &progress.meter;
    let options =
        ImportOptions { on_trouble: OnTrouble::KeepGoing, stat_cache: None, exclude: &exclude, meter };
    let (healed, report) = vault.heal(how, from, &options)?;
    let (blobs, trees) = (healed.blobs.len() as u64, healed.trees.len() as u64);
    Ok((report, FsckHealed { from: from.to_string_lossy().into_owned(), blobs, trees }))
}

/// The hint for a vault that cannot be opened: the usual hint is to run fsck.
fn beyond_checking(client: &Client, failure: OpError) -> OpError {
    let hint = "the file is too damaged to check: restore a copy, or save the readable rows with: \
         sqlite3 VAULT .recover";
    instead_of_checking(client, failure, hint.to_owned())
}

/// The hint for a vault that cannot be written because its database pages are damaged.
fn beyond_healing(client: &Client, failure: OpError) -> OpError {
    let hint = format!(
        "the file is too damaged to repair: save the undamaged files with: {} export --keep-going REF DEST, \
         and import them into a new vault",
        client.avfs
    );
    instead_of_checking(client, failure, hint)
}

fn instead_of_checking(client: &Client, failure: OpError, hint: String) -> OpError {
    match failure {
        OpError::Error(error) if error.code() == "vault.corrupt" => {
            OpError::Body(ErrorBody { hint: Some(hint), ..error_body(&*error, &client.avfs) })
        }
        other @ (OpError::Error(_) | OpError::Body(_) | OpError::ReceiverGone) => other,
    }
}
