//! `avfs apply`

use std::borrow::Cow;
use std::path::Path;

use clap::Args;

use avfs_changes::{
    Applied, ApplyError, ApplyOptions, ChangeSummary, Filter, Inherited, Subject, apply, called_out,
    changes_to_apply,
};
use avfs_engine::config_files::ConfigTexts;
use avfs_engine::require_bound_dir;
use avfs_ops::{OpError, VerbError};
use avfs_present::error_body;
use avfs_terminal::Tone;
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::root_of_either;
use avfs_wire::Apply;

use crate::commands::patch;
use crate::commands::runs::last_change;
use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
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

pub fn run(ctx: &CommandContext, args: &ApplyArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let dir = require_bound_dir(&vault)?;
    let filter = Filter::new(&args.include, &args.exclude)?;
    let what = match &args.what {
        Some(what) => what.clone(),
        None => ChangesOf::Run(last_change(ctx, &vault)?),
    };
    let subject = Subject::of(&vault, &what).map_err(VerbError::of_changes)?;
    let trial = if args.dry_run { Trial::DryRun } else { Trial::Real };
    let runs_on_host = {
        let progress = ctx.client.observer.unshown_operation()?;
        let changes = changes_to_apply(&vault, &subject, &filter, &progress.meter)?;
        called_out(&vault, &root_of_either(&subject.after)?, Some(&dir), &changes, &progress.meter)?
    };
    // Print before writing: afterwards a host tool may already have executed the path.
    for one in &runs_on_host {
        ctx.ui.note(format_args!("{one}"));
    }
    let keep_seconds =
        ConfigTexts::read(&ctx.client.surroundings, Some(&dir))?.merged()?.fork_expires.value.0;
    let outcome = {
        let progress = ctx.client.observer.operation("applying")?;
        let set_ids = if args.keep_setid { SetIds::Kept } else { SetIds::Stripped };
        let options = ApplyOptions { filter: &filter, keep_seconds, set_ids, trial, meter: &progress.meter };
        apply(&vault, &subject, &dir, &options)
    };
    let result = avfs_present::apply(&subject, &dir, args.dry_run, &runs_on_host);
    match outcome {
        Ok(applied) => answer(ctx, args, &dir, result, applied),
        Err(error) => refuse(ctx, result, error),
    }
}

/// With JSON, lists each conflicting path.
fn refuse(ctx: &CommandContext, result: Apply, error: ApplyError) -> Outcome {
    match (&error, ctx.ui.format) {
        (ApplyError::Conflict { conflicts, inherited, .. }, Format::Json) => {
            let why = error_body(&error, &ctx.ui.avfs);
            let result = avfs_present::apply_refused(result, conflicts, inherited);
            ctx.ui.answer_no(&result, &why, |_| Ok(()))
        }
        (_, Format::Json | Format::Human) => Err(error.into()),
    }
}

fn answer(ctx: &CommandContext, args: &ApplyArgs, dir: &Path, result: Apply, applied: Applied) -> Outcome {
    let summary = ChangeSummary::of(without_times(applied.changes.iter(), applied.changes.empty_like())?)?;
    let changes = avfs_present::change_list(&summary);
    let counts = avfs_present::change_totals(&summary.counts);
    let result = avfs_present::applied(result, &applied, changes, counts);
    note_inherited(ctx, &applied.inherited);
    ctx.ui.answer(&result, |out| show(ctx, out, args, dir, &summary, &applied))
}

/// Names the changes that the directory lacks and that an apply does not write.
pub fn note_inherited(ctx: &CommandContext, all: &[Inherited]) {
    for of in all {
        ctx.ui.note(format_args!("note: {}", of.text()));
    }
}

/// Appends changes to a list, except those of a modification time only.
pub fn without_times<'c>(
    changes: impl Iterator<Item = avfs_vault::Result<Cow<'c, Change>>>,
    mut list: Changes,
) -> avfs_vault::Result<Changes> {
    for change in changes {
        let change = change?;
        if change.kind != ChangeKind::Time {
            list.push(change.into_owned());
        }
    }
    Ok(list)
}

fn show(
    ctx: &CommandContext,
    out: &mut Out,
    args: &ApplyArgs,
    dir: &Path,
    summary: &ChangeSummary,
    applied: &Applied,
) -> Result<(), OpError> {
    let changes = applied.changes.len() as u64;
    if changes > 0 && applied.already == changes {
        out.line(format_args!("already up to date: {}", dir.display()))?;
        return show_left_out(out, applied);
    }
    if changes == 0 && applied.left_out > 0 {
        out.line(format_args!("nothing to apply: --include and --exclude leave no changes"))?;
        return show_left_out(out, applied);
    }
    if changes == 0 {
        return out.line(format_args!("no changes to apply"));
    }
    patch::show_summary(out, summary)?;
    for kept in &applied.kept_dirs {
        let word = out.paint(Tone::Changed, "kept    ");
        out.line(format_args!("{word}  {kept}/  (contains files that are not versioned)"))?;
    }
    show_stripped(out, &applied.stripped)?;
    if applied.already > 0 {
        let count = plural(applied.already, "change was", "changes were");
        out.line(format_args!("{count} already in the directory, including times"))?;
    }
    show_left_out(out, applied)?;
    let word = if args.dry_run { "would be applied to" } else { "applied to" };
    out.line(format_args!("{word} {}", dir.display()))?;
    match args.dry_run {
        true => Ok(()),
        false => out.line(format_args!("revert with: {} unapply", ctx.ui.avfs)),
    }
}

/// Lists files that are written without their setuid and setgid bits, which would take effect on the host.
pub fn show_stripped(out: &mut Out, files: &[TreePath]) -> Result<(), OpError> {
    for file in files {
        let word = out.paint(Tone::Changed, "stripped");
        out.line(format_args!("{word}  {file}  (setuid and setgid bits; keep them with: --keep-setid)"))?;
    }
    Ok(())
}

fn show_left_out(out: &mut Out, applied: &Applied) -> Result<(), OpError> {
    if applied.left_out == 0 {
        return Ok(());
    }
    let count = plural(applied.left_out, "change was", "changes were");
    out.line(format_args!("{count} left out"))
}
