//! `avfs diff`

use avfs::backend::{Reader, VersionRecord};
use avfs::runtime::envelope::{ChangeObject, ChangeTotals, Diff, ErrorBody};
use avfs::runtime::{ChangeSummary, Shown};
use avfs::vault::path::TreePath;
use avfs::vault::require_version;
use avfs::vault::tree::Pages;
use avfs::vault::version::{Reference, root_of};
use clap::Args;

use super::patch;
use crate::cli::tree_path;
use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Failure, Format, Out, Outcome};

/// Compare two versions
///
/// With one REF: a fork that was made of a version and has moved since is compared with that version; anything
/// else, the main fork too, is compared with its first parent. Files that went and came with the same content are shown as renamed;
/// changes of nothing but a modification time are left out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs diff main~1 main
  avfs diff experiment --stat
  avfs diff main experiment --patch -- src docs
  avfs diff main@good main --name-status --exit-code")]
pub struct DiffArgs {
    /// The older version; alone, the version whose changes are shown
    #[arg(value_name = "A")]
    before: Reference,
    /// The newer version
    #[arg(value_name = "B")]
    after: Option<Reference>,
    #[command(flatten)]
    form: Form,
    /// Also show changes of nothing but a modification time
    #[arg(long)]
    times: bool,
    /// Exit with 1 when there are differences
    #[arg(long)]
    exit_code: bool,
    /// Only what lies at or beneath these paths
    #[arg(last = true, value_name = "PATH", value_parser = tree_path())]
    paths: Vec<TreePath>,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct Form {
    /// Show how many lines came and went in each file
    #[arg(long)]
    stat: bool,
    /// Show one letter and the path for each change
    #[arg(long)]
    name_status: bool,
    /// Show the lines that differ, as a unified diff
    #[arg(short, long)]
    patch: bool,
}

pub fn run(ctx: &CommandContext, args: &DiffArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let reader = vault.read()?;
    let reader = &*reader;
    let (before, after) = sides(reader, args)?;
    let shown = if args.times { Shown::WithTimes } else { Shown::WithoutTimes };
    let pages: &dyn Pages = &reader;
    let summary = ChangeSummary::compare(pages, &root_of(&before)?, &root_of(&after)?, &args.paths, shown)?;
    let json = ctx.ui.format == Format::Json;
    let stat = if args.form.stat { Some(patch::stats(reader, &summary)?) } else { None };
    let text = if args.form.patch && json { Some(patch_text(reader, &summary)?) } else { None };
    let result = Diff {
        before: before.id.to_hex(),
        after: after.id.to_hex(),
        changes: if json { summary.changes.iter().map(ChangeObject::from).collect() } else { Vec::new() },
        change_counts: ChangeTotals::from(&summary.counts),
        stat,
        patch: text,
    };
    let human = |out: &mut Out| match &result.stat {
        Some(stats) => patch::show_stats(out, &summary, stats),
        None if args.form.name_status => patch::show_names(out, &summary),
        None if args.form.patch => show_patch(reader, out, &summary),
        None => patch::show_summary(out, &summary),
    };
    if args.exit_code && !summary.changes.is_empty() {
        let message = patch::counts_line(&summary.counts);
        let why = ErrorBody { code: "diff.differs".to_owned(), message, hint: None };
        return ctx.ui.answer_no(&result, &why, human);
    }
    ctx.ui.answer(&result, human)
}

/// The two versions to compare.
fn sides(reader: &dyn Reader, args: &DiffArgs) -> Result<(VersionRecord, VersionRecord), Failure> {
    let (first, fork) = args.before.resolve(reader)?;
    if let Some(after) = &args.after {
        return Ok((first, after.resolve(reader)?.0));
    }
    let moved_from = match (fork, args.before.fork_name()) {
        (Some(name), Some(_)) => reader.fork(&name)?.map(|fork| fork.base).filter(|base| *base != first.id),
        (Some(_) | None, _) => None,
    };
    // The main fork begins empty: what it has gained since is everything, so its last step is shown.
    let began_empty = |base: &VersionRecord| base.parents.is_empty() && base.entries == 0;
    if let Some(base) = moved_from {
        let base = require_version(reader, &base)?;
        if !began_empty(&base) {
            return Ok((base, first));
        }
    }
    match first.parents.first() {
        Some(parent) => Ok((require_version(reader, parent)?, first)),
        None => Err(EdgeError::NoParent { version: first.id.short() }.into()),
    }
}

fn show_patch(reader: &dyn Reader, out: &mut Out, summary: &ChangeSummary) -> Result<(), Failure> {
    for change in &summary.changes {
        for line in patch::patch_lines(reader, change)? {
            patch::show_patch_line(out, &line)?;
        }
    }
    Ok(())
}

fn patch_text(reader: &dyn Reader, summary: &ChangeSummary) -> Result<String, Failure> {
    let mut text = String::new();
    for change in &summary.changes {
        for line in patch::patch_lines(reader, change)? {
            text.push_str(&String::from_utf8_lossy(&line));
            text.push('\n');
        }
    }
    Ok(text)
}
