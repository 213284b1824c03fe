//! `avfs fsck`

use std::path::{Path, PathBuf};

use clap::Args;

use avfs_engine::require_bound_dir;
use avfs_ops::OpError;
use avfs_present::{Avfs, error_body};
use avfs_terminal::Tone;
use avfs_vault::fsck::{Report, Thoroughness};
use avfs_vault::import::{ImportError, ImportOptions, OnTrouble};
use avfs_vault::{Vault, transfer};
use avfs_wire::{ErrorBody, Fsck, FsckFinding, FsckHealed};

use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::plural;

/// Check the vault: rows, digests, references, history, audit log
///
/// Exits with 1 if there is a problem. Changes nothing, except with --heal.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fsck
  avfs fsck --quick --json
  avfs fsck --heal
  avfs fsck --heal /mnt/backup/project")]
pub struct FsckArgs {
    /// Do not read the content of blobs
    #[arg(long)]
    quick: bool,
    /// Repair damaged or missing content from a directory that has it [default: the bound directory of the
    /// vault]
    ///
    /// Reads every file in the directory. Only content with the expected digest replaces damaged content.
    #[arg(long, value_name = "DIR", num_args = 0..=1, value_hint = clap::ValueHint::DirPath)]
    #[expect(clippy::option_option, reason = "an option that may come without its value")]
    heal: Option<Option<PathBuf>>,
}

pub fn run(ctx: &CommandContext, args: &FsckArgs) -> Outcome {
    let avfs = &ctx.ui.avfs;
    let vault = ctx.open_vault().map_err(|failure| beyond_checking(avfs, failure))?;
    let how = if args.quick { Thoroughness::Quick } else { Thoroughness::Full };
    let from = match &args.heal {
        None => None,
        Some(Some(dir)) => Some(directory(avfs, ctx.client.surroundings.cwd.join(dir))?),
        Some(None) => Some(require_bound_dir(&vault)?),
    };
    let (report, healed) = match &from {
        None => (vault.fsck(how, &ctx.client.observer.whole_operation("checking").meter)?, None),
        Some(from) => {
            let (report, healed) =
                heal(ctx, &vault, how, from).map_err(|failure| beyond_healing(avfs, failure))?;
            (report, Some(healed))
        }
    };
    let findings = report.findings.iter();
    let result = Fsck {
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
    let show = |out: &mut Out| {
        if let Some(healed) = &result.healed {
            let (blobs, trees) =
                (plural(healed.blobs, "blob", "blobs"), plural(healed.trees, "tree", "trees"));
            out.line(format_args!("restored {blobs} and {trees} from {}", healed.from))?;
        }
        for finding in &result.findings {
            let code = out.paint(Tone::Deleted, format_args!("{}:", finding.code));
            out.line(format_args!("{code} {}", finding.message))?;
        }
        out.line(format_args!(
            "checked {}, {}, {}, {}, {}: {}",
            plural(result.versions, "version", "versions"),
            plural(result.trees, "tree", "trees"),
            plural(result.blobs, "blob", "blobs"),
            plural(result.runs, "run", "runs"),
            plural(result.audit_rows, "audit row", "audit rows"),
            plural(result.findings.len() as u64, "problem", "problems"),
        ))
    };
    if result.findings.is_empty() {
        return ctx.ui.answer(&result, show);
    }
    let message = format!("found {}", plural(result.findings.len() as u64, "problem", "problems"));
    let save = format!("save the undamaged files with: {avfs} export --keep-going REF DEST");
    let hint = Some(if from.is_none() && !report.broken.is_empty() {
        format!("repair from a directory that has the content with: {avfs} fsck --heal DIR; {save}")
    } else {
        save
    });
    ctx.ui.answer_no(&result, &ErrorBody { code: "fsck.findings".to_owned(), message, hint }, show)
}

/// Checks this before the long check of the vault, which would report it only at its end.
fn directory(avfs: &Avfs, dir: PathBuf) -> Result<PathBuf, OpError> {
    if dir.is_dir() {
        return Ok(dir);
    }
    let missing = transfer::Error::from(ImportError::NoDirectory { path: dir });
    let hint = Some(format!("name a directory that has the files: {avfs} fsck --heal DIR"));
    Err(OpError::Body(ErrorBody { hint, ..error_body(&missing, avfs) }))
}

fn heal(
    ctx: &CommandContext,
    vault: &Vault,
    how: Thoroughness,
    from: &Path,
) -> Result<(Report, FsckHealed), OpError> {
    let exclude = ctx.client.exclude(from)?;
    let progress = ctx.client.observer.operation("repairing")?;
    let meter = &progress.meter;
    let options =
        ImportOptions { on_trouble: OnTrouble::KeepGoing, stat_cache: None, exclude: &exclude, meter };
    let (healed, report) = vault.heal(how, from, &options)?;
    let (blobs, trees) = (healed.blobs.len() as u64, healed.trees.len() as u64);
    Ok((report, FsckHealed { from: from.to_string_lossy().into_owned(), blobs, trees }))
}

/// The hint for a vault that cannot be opened: the usual hint is to run fsck.
fn beyond_checking(avfs: &Avfs, failure: OpError) -> OpError {
    let hint = "the file is too damaged to check: restore a copy, or save the readable rows with: \
         sqlite3 VAULT .recover";
    instead_of_checking(avfs, failure, hint.to_owned())
}

/// The hint for a vault that cannot be written because its database pages are damaged.
fn beyond_healing(avfs: &Avfs, failure: OpError) -> OpError {
    let hint = format!(
        "the file is too damaged to repair: save the undamaged files with: {avfs} export --keep-going REF DEST, \
         and import them into a new vault"
    );
    instead_of_checking(avfs, failure, hint)
}

fn instead_of_checking(avfs: &Avfs, failure: OpError, hint: String) -> OpError {
    match failure {
        OpError::Error(error) if error.code() == "vault.corrupt" => {
            OpError::Body(ErrorBody { hint: Some(hint), ..error_body(&*error, avfs) })
        }
        other @ (OpError::Error(_) | OpError::Body(_) | OpError::ReceiverGone) => other,
    }
}
