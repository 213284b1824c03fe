//! The changes between two versions, or those of a fork or run.

use avfs_changes::{
    ApplyError, ChangeSummary, Inherited, PatchLeftOff, PatchLimits, PatchUse, Shown, StatView, Subject,
    TreeView, inherited_changes, patch_view, stat_view, tree_view,
};
use avfs_engine::bound_dir;
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
use avfs_vault::version::{resolve, roots_to_compare};
use avfs_vault::{VaultError, require_version, tree};
use avfs_wire::Diff;
use avfs_workplace::{OpError, Workplace};

use super::note_inherited;
use crate::changes::{ChangeLine, ChangeLines};
use crate::error::VerbError;
use crate::given_path::{GivenPath, within};
use crate::named_run::last_change;
use crate::text::plural;

/// What to compare, and how the changes are reported.
pub struct DiffQuery<'r> {
    /// The older version; without `after`, the version or run whose changes to report. `None`: the newest run in
    /// effect that changed content.
    pub before: Option<Reference>,
    pub after: Option<Reference>,
    pub form: DiffForm<'r>,
    /// Also report changes of modification times alone.
    pub times: bool,
    /// Report only changes at these paths and beneath them; if empty, all changes.
    pub paths: Vec<GivenPath>,
}

/// The report in addition to the list of changes.
pub enum DiffForm<'r> {
    List,
    /// The first `limit` changes as a tree.
    Tree {
        limit: usize,
    },
    /// The numbers of changed lines of the first `limit` changes.
    Stat {
        limit: usize,
    },
    /// A patch as a text of the answer. `max` replaces the default limits.
    PatchText {
        max: Option<Size>,
    },
    /// A patch whose lines go to `receive`: they may have any bytes.
    PatchLines {
        max: Option<Size>,
        receive: &'r mut dyn FnMut(&[u8]) -> Result<(), OpError>,
    },
}

pub struct DiffAnswer {
    pub diff: Diff,
    pub lines: ChangeLines,
    /// The changes of the rows of `diff.tree` or `diff.stat`; `None` for a directory that only leads to changes.
    pub listed: Vec<Option<ChangeLine>>,
    /// Why the patch does not have all changes.
    pub incomplete: Option<VerbError>,
}

pub fn diff(workplace: &Workplace, query: DiffQuery<'_>) -> Result<DiffAnswer, OpError> {
    let vault = &workplace.vault;
    let reader = vault.read()?;
    let reader = &*reader;
    let first = match query.before {
        Some(first) => first,
        None => format!("run:{}", last_change(workplace)?).parse().map_err(VaultError::from)?,
    };
    let (before, after) = sides(reader, &first, query.after.as_ref())?;
    let pages: &dyn Pages = &reader;
    let roots = roots_to_compare(reader, &before, &after)?;
    let paths = within(&query.paths, vault)?;
    require_paths(pages, &roots, &paths)
        .map_err(VerbError::in_version(query.after.as_ref().unwrap_or(&first)))?;
    let summary = {
        let shown = if query.times { Shown::WithTimes } else { Shown::WithoutTimes };
        let progress = workplace.client.observer.unshown_operation()?;
        let pages = StoppablePages::new(pages, &progress.meter);
        ChangeSummary::compare(vault, &pages, (&roots[0], &roots[1]), &paths, shown)?
    };
    let inherited = match query.after {
        None => inherited(workplace, reader, &first, &paths)?,
        Some(_) => Vec::new(),
    };
    note_inherited(workplace, &inherited);
    let lines = ChangeLines::from(&summary);
    let mut answer = DiffAnswer {
        diff: Diff {
            before: before.id.to_hex(),
            after: after.id.to_hex(),
            changes: avfs_present::change_list(&summary),
            change_counts: lines.counts,
            tree: None,
            stat: None,
            patch: None,
            left_off: 0,
            shortened: 0,
            beyond_git: 0,
            inherited: avfs_present::inherited(&inherited),
        },
        lines,
        listed: Vec::new(),
        incomplete: None,
    };
    match query.form {
        DiffForm::List => {}
        DiffForm::Tree { limit } => answer.list_tree(&tree_view(&summary, limit)?),
        DiffForm::Stat { limit } => answer.list_stat(&stat_view(reader, &summary, limit)?),
        DiffForm::PatchText { max } => {
            let mut text = String::new();
            let left_off = patch_view(reader, &summary, PatchUse::Text, patch_limits(max), |lines| {
                for line in lines {
                    text.push_str(&String::from_utf8_lossy(&line));
                    text.push('\n');
                }
                Ok::<(), OpError>(())
            })?;
            answer.diff.patch = Some(text);
            answer.count_left_off(&left_off);
        }
        DiffForm::PatchLines { max, receive } => {
            let left_off = patch_view(reader, &summary, PatchUse::Bytes, patch_limits(max), |lines| {
                lines.iter().try_for_each(|line| receive(line))
            })?;
            answer.count_left_off(&left_off);
        }
    }
    Ok(answer)
}

impl DiffAnswer {
    fn list_tree(&mut self, view: &TreeView) {
        self.listed = view.lines.iter().map(|line| line.change.as_ref().map(ChangeLine::of)).collect();
        self.diff.tree = Some(view.lines.iter().map(avfs_present::diff_tree_line).collect());
        self.diff.left_off = view.left_off;
    }

    fn list_stat(&mut self, view: &StatView) {
        self.listed = view.paths.iter().map(|(change, _)| Some(ChangeLine::of(change))).collect();
        let stats = view.paths.iter().map(|(change, extent)| avfs_present::file_stat(change, *extent));
        self.diff.stat = Some(stats.collect());
        self.diff.left_off = view.left_off;
    }

    fn count_left_off(&mut self, missing: &PatchLeftOff) {
        let PatchLeftOff { shortened, left_off, beyond_git } = *missing;
        (self.diff.shortened, self.diff.left_off, self.diff.beyond_git) = (shortened, left_off, beyond_git);
        let paths = |count| plural(count, "path", "paths");
        let (shortened, left_off) = (paths(shortened), paths(left_off));
        self.incomplete =
            (!missing.is_complete()).then_some(VerbError::PatchIncomplete { shortened, left_off });
    }
}

fn patch_limits(max: Option<Size>) -> PatchLimits {
    let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    max.map_or(PatchLimits::DEFAULT, |size| PatchLimits::of(bytes(size)))
}

/// Changes that the fork or run was made on top of, and that the bound directory lacks. Earlier runs of the same fork
/// do not count: the diff of one run is a part of its fork.
fn inherited(
    workplace: &Workplace,
    reader: &dyn Reader,
    one: &Reference,
    paths: &[TreePath],
) -> Result<Vec<Inherited>, OpError> {
    let vault = &workplace.vault;
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
    let progress = workplace.client.observer.operation("comparing")?;
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
    let (first, fork) = resolve(reader, one)?;
    if let Some(after) = other {
        return Ok((first, resolve(reader, after)?.0));
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
