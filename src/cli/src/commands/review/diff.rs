//! `avfs diff`

use clap::{ArgGroup, Args};

use avfs_changes::{
    ApplyError, CHANGES_SHOWN_MAX, ChangeSummary, Inherited, PatchLeftOff, PatchLimits, PatchUse, Shown,
    StatView, Subject, TreeView, inherited_changes, patch_view, stat_view, tree_view,
};
use avfs_engine::bound_dir;
use avfs_ops::{GivenPath, OpError, VerbError, within};
use avfs_present::error_body;
use avfs_types::Size;
use avfs_types::ids::{ForkName, RunPrefix};
use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::{Reader, VersionRecord};
use avfs_vault::discard::ChangesOf;
use avfs_vault::page::DirRef;
use avfs_vault::run::find_run;
use avfs_vault::sync::{LastSync, last_sync};
use avfs_vault::tree::{Pages, StoppablePages};
use avfs_vault::version::roots_to_compare;
use avfs_vault::{Vault, VaultError, require_version, tree};
use avfs_wire::{Diff, ErrorBody};

use crate::commands::apply::note_inherited;
use crate::commands::patch;
use crate::commands::runs::last_change;
use crate::context::CommandContext;
use crate::given_path::tree_path;
use crate::ui::{Format, Out, Outcome};
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

pub fn run(ctx: &CommandContext, args: &DiffArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let reader = vault.read()?;
    let reader = &*reader;
    let first = match &args.before {
        Some(first) => first.clone(),
        None => format!("run:{}", last_change(ctx, &vault)?).parse().map_err(VaultError::from)?,
    };
    let (before, after) = sides(reader, &first, args.after.as_ref())?;
    let shown = if args.times { Shown::WithTimes } else { Shown::WithoutTimes };
    let pages: &dyn Pages = &reader;
    let roots = roots_to_compare(reader, &before, &after)?;
    let paths = within(&args.paths, &vault)?;
    require_paths(pages, &roots, &paths)
        .map_err(VerbError::in_version(args.after.as_ref().unwrap_or(&first)))?;
    let summary = {
        let progress = ctx.client.observer.unshown_operation()?;
        let pages = StoppablePages::new(pages, &progress.meter);
        ChangeSummary::compare(&vault, &pages, (&roots[0], &roots[1]), &paths, shown)?
    };
    let json = ctx.ui.format == Format::Json;
    let view = View::of(reader, &summary, args)?;
    let inherited = match args.after {
        None => inherited(ctx, &vault, reader, &first, &paths)?,
        Some(_) => Vec::new(),
    };
    let mut result = Diff {
        before: before.id.to_hex(),
        after: after.id.to_hex(),
        changes: avfs_present::change_list(&summary),
        change_counts: avfs_present::change_totals(&summary.counts),
        tree: None,
        stat: None,
        patch: None,
        left_off: 0,
        shortened: 0,
        beyond_git: 0,
        inherited: avfs_present::inherited(&inherited),
    };
    note_inherited(ctx, &inherited);
    let mut missing = PatchLeftOff::default();
    match &view {
        View::Summary | View::Names => {}
        View::Tree(view) => {
            result.tree = Some(view.lines.iter().map(avfs_present::diff_tree_line).collect());
            result.left_off = view.left_off;
        }
        View::Stat(view) => {
            result.stat = Some(
                view.paths.iter().map(|(change, extent)| avfs_present::file_stat(change, *extent)).collect(),
            );
            result.left_off = view.left_off;
        }
        View::Patch(limits) if json => {
            let (text, left_off) = patch_text(reader, &summary, *limits)?;
            missing = left_off;
            result.patch = Some(text);
            (result.left_off, result.shortened) = (missing.left_off, missing.shortened);
            result.beyond_git = missing.beyond_git;
        }
        View::Patch(_) => {}
    }
    if let Some(error) = incomplete(&missing) {
        return ctx.ui.answer_no(&result, &error_body(&error, &ctx.ui.avfs), |_| Ok(()));
    }
    let human = |out: &mut Out| match &view {
        View::Summary => patch::show_summary(out, &summary),
        View::Names => patch::show_names(out, &summary),
        View::Tree(view) => {
            patch::show_tree(out, view)?;
            note_left_off(ctx, view.left_off);
            out.line(format_args!("{}", patch::counts_line(&summary.counts)))
        }
        View::Stat(view) => {
            note_left_off(ctx, view.left_off);
            patch::show_stats(out, view)
        }
        View::Patch(limits) => {
            let missing = show_patch(ctx, reader, out, &summary, *limits)?;
            incomplete(&missing).map_or(Ok(()), |error| Err(error.into()))
        }
    };
    if args.exit_code && !summary.changes.is_empty() {
        let message = patch::counts_line(&summary.counts);
        let why = ErrorBody { code: "diff.differs".to_owned(), message, hint: None };
        ctx.ui.answer_no(&result, &why, human)
    } else {
        ctx.ui.answer(&result, human)
    }
}

/// Changes that the fork or run was made on top of, and that the bound directory lacks. Earlier runs of the same fork
/// do not count: the diff of one run is a part of its fork.
fn inherited(
    ctx: &CommandContext,
    vault: &Vault,
    reader: &dyn Reader,
    one: &Reference,
    paths: &[TreePath],
) -> Result<Vec<Inherited>, OpError> {
    let Some(dir) = bound_dir(vault)?.filter(|dir| dir.is_dir()) else { return Ok(Vec::new()) };
    let subject = match (one.fork_name(), RunPrefix::parse(one.text())) {
        (Some(name), _) if reader.fork(&name)?.is_some() => {
            let is_unchanged = reader.fork(&name)?.is_some_and(|fork| fork.head == fork.base);
            if is_unchanged || name == ForkName::main() {
                return Ok(Vec::new());
            }
            Subject::of(vault, &ChangesOf::Fork(name))
        }
        (_, Ok(prefix)) => match find_run(reader, &prefix)? {
            Some(run) if run.version_after.is_some() => Subject::of_run(reader, &run),
            Some(_) | None => return Ok(Vec::new()),
        },
        (_, Err(_)) => return Ok(Vec::new()),
    };
    // A run that was discarded, or whose start has expired, can still be compared.
    let Ok(subject) = subject else { return Ok(Vec::new()) };
    let is_wanted = |path: &TreePath| {
        paths.is_empty() || paths.contains(path) || path.ancestors().any(|above| paths.contains(&above))
    };
    let progress = ctx.client.observer.operation("comparing")?;
    let mut all = match inherited_changes(vault, &subject, &dir, &is_wanted, &progress.meter) {
        // The directory cannot be read: the versions can still be compared.
        Err(ApplyError::Dir { .. }) => return Ok(Vec::new()),
        found => found?,
    };
    all.retain(|of| of.fork.as_ref() != Some(&subject.fork));
    Ok(all)
}

/// The two versions to compare.
fn sides(
    reader: &dyn Reader,
    one: &Reference,
    other: Option<&Reference>,
) -> Result<(VersionRecord, VersionRecord), OpError> {
    let (first, fork) = avfs_vault::version::resolve(reader, one)?;
    if let Some(after) = other {
        return Ok((first, avfs_vault::version::resolve(reader, after)?.0));
    }
    let moved_from = match (fork, one.fork_name()) {
        (Some(name), Some(_)) => match reader.fork(&name)? {
            Some(fork) => {
                let base = match last_sync(reader, &fork, usize::MAX)? {
                    LastSync::Found { merged, .. } => merged,
                    LastSync::Never | LastSync::Unknown => fork.base,
                };
                Some(base).filter(|base| *base != first.id)
            }
            None => None,
        },
        (Some(_) | None, _) => None,
    };
    if is_run_without_changes(reader, one, &first)? {
        return Ok((first.clone(), first));
    }
    // The main fork starts empty, so a diff with its base would show everything: show its last step instead.
    let began_empty = |base: &VersionRecord| base.parents.is_empty() && base.entries == 0;
    if let Some(base) = moved_from {
        let base = require_version(reader, &base)?;
        if !began_empty(&base) {
            return Ok((base, first));
        }
    }
    match first.parents.first() {
        Some(parent) => Ok((require_version(reader, parent)?, first)),
        None => Err(VerbError::NoParent { version: first.id.short() }.into()),
    }
}

/// Whether the reference names a run that changed nothing; it then means the version that the run started from.
fn is_run_without_changes(
    reader: &dyn Reader,
    reference: &Reference,
    version: &VersionRecord,
) -> Result<bool, OpError> {
    let Ok(prefix) = RunPrefix::parse(reference.text()) else { return Ok(false) };
    let run = find_run(reader, &prefix)?;
    Ok(run.is_some_and(|run| run.version_after.is_none() && run.version_before == Some(version.id)))
}

/// Returns an error for a path that exists on neither side: it is a mistake, not a path without changes.
fn require_paths(pages: &dyn Pages, roots: &[DirRef], paths: &[TreePath]) -> avfs_vault::Result<()> {
    for path in paths {
        let mut there = false;
        for root in roots {
            there |= tree::lookup(pages, root, path)?.is_some();
        }
        if !there {
            return Err(VaultError::NoPath { path: path.clone() });
        }
    }
    Ok(())
}

/// The requested view of the changes.
enum View {
    Summary,
    Names,
    Tree(TreeView),
    Stat(StatView),
    Patch(PatchLimits),
}

impl View {
    fn of(reader: &dyn Reader, summary: &ChangeSummary, args: &DiffArgs) -> Result<Self, OpError> {
        let Form { tree, stat, name_status, patch } = args.form;
        Ok(match (tree, stat, name_status, patch) {
            (true, ..) => Self::Tree(tree_view(summary, args.limit)?),
            (_, true, ..) => Self::Stat(stat_view(reader, summary, args.limit)?),
            (_, _, true, _) => Self::Names,
            (.., true) => Self::Patch(args.patch_limits()),
            (false, false, false, false) => Self::Summary,
        })
    }
}

impl DiffArgs {
    fn patch_limits(&self) -> PatchLimits {
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        self.patch_max.map_or(PatchLimits::DEFAULT, |size| PatchLimits::of(bytes(size)))
    }
}

fn note_left_off(ctx: &CommandContext, left_off: u64) {
    if left_off > 0 {
        let changes = plural(left_off, "change", "changes");
        ctx.ui.note(format_args!("note: {changes} omitted; show more with: --limit N"));
    }
}

/// The error for a patch that does not contain all changes.
fn incomplete(missing: &PatchLeftOff) -> Option<VerbError> {
    let paths = |count| plural(count, "path", "paths");
    let (shortened, left_off) = (paths(missing.shortened), paths(missing.left_off));
    (!missing.is_complete()).then_some(VerbError::PatchIncomplete { shortened, left_off })
}

fn show_patch(
    ctx: &CommandContext,
    reader: &dyn Reader,
    out: &mut Out,
    summary: &ChangeSummary,
    limits: PatchLimits,
) -> Result<PatchLeftOff, OpError> {
    let missing = patch_view(reader, summary, PatchUse::Bytes, limits, |lines| {
        lines.iter().try_for_each(|line| patch::show_patch_line(out, line))
    })?;
    out.flush()?;
    if missing.beyond_git > 0 {
        let paths = plural(missing.beyond_git, "path", "paths");
        ctx.ui.note(format_args!("note: a git patch cannot express all of {paths}: see the lines with #"));
    }
    Ok(missing)
}

fn patch_text(
    reader: &dyn Reader,
    summary: &ChangeSummary,
    limits: PatchLimits,
) -> Result<(String, PatchLeftOff), OpError> {
    let mut text = String::new();
    let missing = patch_view(reader, summary, PatchUse::Text, limits, |lines| {
        for line in lines {
            text.push_str(&String::from_utf8_lossy(&line));
            text.push('\n');
        }
        Ok::<(), OpError>(())
    })?;
    Ok((text, missing))
}
