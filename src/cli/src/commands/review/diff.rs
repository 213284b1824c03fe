//! `avfs diff`

use clap::{ArgGroup, Args};

use avfs_ops::review::{DiffAnswer, DiffForm, DiffQuery};
use avfs_ops::{CHANGES_SHOWN_MAX, GivenPath};
use avfs_present::error_body;
use avfs_types::Size;
use avfs_types::reference::Reference;
use avfs_wire::{Diff, ErrorBody};

use crate::commands::patch;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome, after_the_fact};
use crate::view::plural;

/// Compare two versions
///
/// With one REF or run: compare a fork that has moved with the version it was created from, and anything
/// else, including main, with its first parent. Files that moved without a change of content are shown as
/// renamed. Changes of modification times alone are omitted.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("limited").args(["tree", "stat"]))]
#[command(after_help = "\
Examples:
  avfs diff
  avfs diff last --patch
  avfs diff main~1 main
  avfs diff experiment --stat
  avfs diff experiment --tree --limit 50
  avfs diff main experiment --patch -- src docs
  avfs diff main@good main --name-status --exit-code")]
pub struct DiffArgs {
    /// The older version; without B, the version or run whose changes to show [default: the newest run in
    /// effect that changed content]
    #[arg(value_name = "A")]
    before: Option<Reference>,
    /// The newer version
    #[arg(value_name = "B")]
    after: Option<Reference>,
    #[command(flatten)]
    form: Form,
    /// With --tree or --stat: show at most N changes
    #[arg(long, value_name = "N", default_value_t = CHANGES_SHOWN_MAX, requires = "limited")]
    limit: usize,
    /// With --patch: write at most SIZE, and exit with 1 if the patch is incomplete [default: 16MiB, and 1MiB
    /// per file]
    #[arg(long, value_name = "SIZE", requires = "patch")]
    patch_max: Option<Size>,
    /// Also show changes of modification times alone
    #[arg(long)]
    times: bool,
    /// Exit with 1 if there are differences
    #[arg(long)]
    exit_code: bool,
    /// Compare only these paths and the entries beneath them
    #[arg(last = true, value_name = "PATH", value_parser = tree_path())]
    paths: Vec<GivenPath>,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct Form {
    /// Show the changed paths as a tree, each with a letter and its size
    #[arg(long)]
    tree: bool,
    /// Show the number of added and deleted lines of each file
    #[arg(long)]
    stat: bool,
    /// Show a letter and the path of each change
    #[arg(long)]
    name_status: bool,
    /// Write a patch for `git apply`
    #[arg(short, long)]
    patch: bool,
}

pub fn run(ctx: &CommandContext, args: DiffArgs) -> Outcome {
    let DiffArgs { before, after, form, limit, patch_max: max, times, exit_code, paths } = args;
    let workplace = ctx.client.open()?;
    let mut out = ctx.ui.out();
    let receive = &mut |line: &[u8]| patch::show_patch_line(&mut out, line);
    let Form { tree, stat, name_status, patch } = form;
    let form = match (tree, stat, patch, ctx.ui.format) {
        (true, ..) => DiffForm::Tree { limit },
        (_, true, ..) => DiffForm::Stat { limit },
        (_, _, true, Format::Json) => DiffForm::PatchText { max },
        (_, _, true, Format::Human) => DiffForm::PatchLines { max, receive },
        (false, false, false, _) => DiffForm::List,
    };
    let query = DiffQuery { before, after, form, times, paths };
    let answer = avfs_ops::review::diff(&workplace, query).map_err(after_the_fact)?;
    out.flush().map_err(after_the_fact)?;
    drop(out);
    let DiffAnswer { diff, lines, listed, incomplete } = answer;
    if diff.beyond_git > 0 {
        let paths = plural(diff.beyond_git, "path", "paths");
        ctx.ui.note(format_args!("note: a git patch cannot express all of {paths}: see the lines with #"));
    }
    match (incomplete, ctx.ui.format) {
        (Some(error), Format::Json) => {
            return ctx.ui.answer_no(&diff, &error_body(&error, &ctx.ui.avfs), |_| Ok(()));
        }
        (Some(error), Format::Human) => return Err(error.into()),
        (None, Format::Json | Format::Human) => {}
    }
    let human = |out: &mut Out| match (&diff.tree, &diff.stat) {
        (Some(rows), _) => {
            patch::show_tree(out, rows, &listed)?;
            note_left_off(ctx, &diff);
            out.line(format_args!("{}", patch::counts_line(&diff.change_counts)))
        }
        (_, Some(stats)) => {
            note_left_off(ctx, &diff);
            patch::show_stats(out, stats, &listed)
        }
        (None, None) if patch => Ok(()),
        (None, None) if name_status => patch::show_names(out, &lines),
        (None, None) => patch::show_summary(out, lines.clone()),
    };
    if exit_code && !lines.is_empty() {
        let message = patch::counts_line(&diff.change_counts);
        let why = ErrorBody { code: "diff.differs".to_owned(), message, hint: None };
        ctx.ui.answer_no(&diff, &why, human)
    } else {
        ctx.ui.answer(&diff, human)
    }
}

fn note_left_off(ctx: &CommandContext, diff: &Diff) {
    if diff.left_off > 0 {
        let changes = plural(diff.left_off, "change", "changes");
        ctx.ui.note(format_args!("note: {changes} omitted; show more with: --limit N"));
    }
}
