//! `avfs fsck`

use avfs::runtime::envelope::{ErrorBody, Fsck, FsckFinding};
use avfs::vault::fsck::Thoroughness;
use clap::Args;

use crate::context::CommandContext;
use crate::progress::Progress;
use crate::ui::{Failure, Out, Outcome, Tone};
use crate::view::plural;

/// Check the whole vault: rows, digests, references, history, audit log
///
/// Exits with 1 when something is wrong. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs fsck
  avfs fsck --quick --json")]
pub struct FsckArgs {
    /// Do not read the content of blobs
    #[arg(long)]
    quick: bool,
}

pub fn run(ctx: &CommandContext, args: &FsckArgs) -> Outcome {
    let vault = ctx.open_vault().map_err(beyond_checking)?;
    let how = if args.quick { Thoroughness::Quick } else { Thoroughness::Full };
    let report = {
        let progress = Progress::start("checking");
        vault.fsck(how, &progress.meter)?
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
    };
    let show = |out: &mut Out| {
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
    let hint = "take what is damaged out of a fork with: avfs rm PATH, then save the rest with: avfs export REF DEST";
    let hint = Some(hint.to_owned());
    ctx.ui.answer_no(&result, &ErrorBody { code: "fsck.findings".to_owned(), message, hint }, show)
}

/// What cannot even be opened: the hint to check it would lead here.
fn beyond_checking(failure: Failure) -> Failure {
    match failure {
        Failure::Error(error) if error.code() == "vault.corrupt" => {
            let hint = "too little of it is left to be checked: put a copy back, or save what can be read with: \
                        sqlite3 VAULT .recover";
            Failure::Told(ErrorBody { hint: Some(hint.to_owned()), ..ErrorBody::of(&*error) })
        }
        other @ (Failure::Error(_) | Failure::Told(_) | Failure::BrokenPipe) => other,
    }
}
