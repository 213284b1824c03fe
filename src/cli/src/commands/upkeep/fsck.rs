//! `avfs fsck`

use std::path::PathBuf;

use clap::Args;

use avfs_ops::OpError;
use avfs_ops::upkeep::{FsckAnswer, FsckQuery, HealFrom};
use avfs_present::error_body;
use avfs_terminal::Tone;
use avfs_wire::Fsck;

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

pub fn run(ctx: &CommandContext, args: FsckArgs) -> Outcome {
    let FsckArgs { quick, heal } = args;
    let heal = heal.map(|dir| dir.map_or(HealFrom::BoundDir, HealFrom::Dir));
    let FsckAnswer { fsck, damage } = avfs_ops::upkeep::fsck(&ctx.client, &FsckQuery { quick, heal })?;
    match damage {
        None => ctx.ui.answer(&fsck, |out| show(out, &fsck)),
        Some(damage) => ctx.ui.answer_no(&fsck, &error_body(&damage, &ctx.ui.avfs), |out| show(out, &fsck)),
    }
}

fn show(out: &mut Out, fsck: &Fsck) -> Result<(), OpError> {
    if let Some(healed) = &fsck.healed {
        let (blobs, trees) = (plural(healed.blobs, "blob", "blobs"), plural(healed.trees, "tree", "trees"));
        out.line(format_args!("restored {blobs} and {trees} from {}", healed.from))?;
    }
    for finding in &fsck.findings {
        let code = out.paint(Tone::Deleted, format_args!("{}:", finding.code));
        out.line(format_args!("{code} {}", finding.message))?;
    }
    out.line(format_args!(
        "checked {}, {}, {}, {}, {}: {}",
        plural(fsck.versions, "version", "versions"),
        plural(fsck.trees, "tree", "trees"),
        plural(fsck.blobs, "blob", "blobs"),
        plural(fsck.runs, "run", "runs"),
        plural(fsck.audit_rows, "audit row", "audit rows"),
        plural(fsck.findings.len() as u64, "problem", "problems"),
    ))
}
