//! `avfs apply`

use std::fmt::Display;

use clap::Args;

use avfs_ops::review::{Applied, ApplyQuery};
use avfs_ops::{ChangesOf, OpError};
use avfs_terminal::Tone;
use avfs_wire::Apply;

use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::{Out, Outcome};
use crate::view::plural;

/// Write the changes of a fork or a run to the bound directory
///
/// First compares every path with the version that the changes are based on. If a path has changed in the
/// directory since (a conflict), nothing is written and all such paths are listed. Unversioned files are never
/// touched. Changes that the fork or run was made on top of are not written: a note names those that the directory
/// lacks.
/// Applying again completes an interrupted apply. Paths that host tools execute automatically, such as git
/// hooks and shell start-up files, are listed first. Setuid and setgid bits are stripped, and the files are
/// listed.
///
/// GLOB: * matches within a name, ** also matches slashes; a pattern without a slash matches a name in any
/// directory; a directory matches everything in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs apply --dry-run
  avfs apply last
  avfs apply run:3f9a
  avfs apply experiment --include 'src/**' --exclude '*.tmp'")]
pub struct ApplyArgs {
    /// The fork (all changes since it began) or the run (its ID, last or last~N) [default: the newest run
    /// in effect that changed content]
    #[arg(value_name = "FORK|RUN")]
    what: Option<ChangesOf>,
    /// Apply only paths that match; can be repeated
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Do not apply paths that match; can be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Keep setuid and setgid bits of regular files [default: strip them]
    #[arg(long)]
    keep_setid: bool,
    /// Only compare, and print the changes that would be written
    #[arg(long)]
    dry_run: bool,
}

pub fn run(ctx: &CommandContext, args: ApplyArgs) -> Outcome {
    let ApplyArgs { what, include, exclude, keep_setid, dry_run } = args;
    let query = ApplyQuery { what, include, exclude, keep_setid, dry_run };
    match avfs_ops::review::apply(&ctx.client.open()?, &query)? {
        Ok(applied) => ctx.ui.answer(&applied.apply, |out| show(ctx, out, &applied)),
        Err(refused) => ctx.ui.refuse(refused),
    }
}

fn show(ctx: &CommandContext, out: &mut Out, applied: &Applied) -> Result<(), OpError> {
    let Applied { apply, lines, requested } = applied;
    if *requested > 0 && apply.already == *requested {
        out.line(format_args!("already up to date: {}", apply.dir))?;
        return show_left_out(out, apply);
    }
    if *requested == 0 && apply.left_out > 0 {
        out.line(format_args!("nothing to apply: --include and --exclude leave no changes"))?;
        return show_left_out(out, apply);
    }
    if *requested == 0 {
        return out.line(format_args!("no changes to apply"));
    }
    patch::show_summary(out, lines.clone())?;
    show_kept(out, &apply.kept_dirs)?;
    show_stripped(out, &apply.set_ids_stripped)?;
    if apply.already > 0 {
        let count = plural(apply.already, "change was", "changes were");
        out.line(format_args!("{count} already in the directory, including times"))?;
    }
    show_left_out(out, apply)?;
    let word = if apply.dry_run { "would be applied to" } else { "applied to" };
    out.line(format_args!("{word} {}", apply.dir))?;
    match apply.dry_run {
        true => Ok(()),
        false => out.line(format_args!("revert with: {} unapply", ctx.ui.avfs)),
    }
}

/// Lists directories that stay although the changes delete them.
pub fn show_kept(out: &mut Out, dirs: &[impl Display]) -> Result<(), OpError> {
    for kept in dirs {
        let word = out.paint(Tone::Changed, "kept    ");
        out.line(format_args!("{word}  {kept}/  (contains files that are not versioned)"))?;
    }
    Ok(())
}

/// Lists files that are written without their setuid and setgid bits, which would take effect on the host.
pub fn show_stripped(out: &mut Out, files: &[impl Display]) -> Result<(), OpError> {
    for file in files {
        let word = out.paint(Tone::Changed, "stripped");
        out.line(format_args!("{word}  {file}  (setuid and setgid bits; keep them with: --keep-setid)"))?;
    }
    Ok(())
}

fn show_left_out(out: &mut Out, apply: &Apply) -> Result<(), OpError> {
    if apply.left_out == 0 {
        return Ok(());
    }
    let count = plural(apply.left_out, "change was", "changes were");
    out.line(format_args!("{count} left out"))
}
