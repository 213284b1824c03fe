//! Applies the changes of a fork or run to the host directory they were made for (`avfs apply`, `--apply` of a
//! run), and reverts them (`avfs unapply`).
//!
//! Every path is first compared with the base version; a path that another process changed since then aborts
//! the apply before anything is written. New content is written completely to a staging directory before the
//! first name changes, and each name changes atomically, so that a reader sees either the old or the new file.
//! Applying again after a crash completes the work: a path that is already in its new state is not a conflict.

mod error;
mod host;
mod inherited;
mod moved;
mod net;
mod path_digests;
mod plan;
mod select;
mod staging_dirs;
mod task;
mod top_dirs;
mod unapply;
mod way;
mod write;

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::Path;

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, RunId, RunPrefix, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::backend::{ApplicationRecord, Reader, RunRecord, VersionRecord};
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::own::OwnFile;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::run::{Runs, find_run};
use avfs_vault::set_ids::SetIds;
use avfs_vault::sync::{LastSync, last_sync};
use avfs_vault::undo::versions_in_effect;
use avfs_vault::version::{History, root_of_either, roots_to_compare, why_none};
use avfs_vault::write_out::{FreshPages, OverlayNames, WriteOut};
use avfs_vault::{Vault, VaultError, require_version};

use path_digests::PathDigests;

pub use error::{ApplyError, Conflict};
pub use inherited::{Inherited, InheritedRemedy};
pub use select::{Choice, Filter};
pub use unapply::{Standing, unapply};

/// The changes to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub fork: ForkName,
    /// The runs that made the changes.
    pub runs: Vec<RunId>,
    /// Applied runs of the fork that were undone since: the changes remove theirs.
    undone: Vec<RunId>,
    pub before: VersionRecord,
    pub after: VersionRecord,
    /// Period in which a change on the host may have entered `before` although the command did not start from it.
    doubt: Option<RangeInclusive<Timestamp>>,
    /// The version that the fork or run started from, if it can have changes that the directory lacks.
    start: Option<VersionId>,
    /// The fork that `start` was taken from.
    source: Option<ForkName>,
}

/// A live directory is imported while the command runs on it. A change that another process makes in the
/// meantime may be in the run's start version, although the command may have read the file before that change.
fn doubt(run: &RunRecord, before: &VersionRecord) -> Option<RangeInclusive<Timestamp>> {
    let own_import = run.version_before == Some(before.id) && before.at >= run.started_at;
    own_import.then_some(run.started_at..=before.at)
}

impl Subject {
    /// The changes of a fork since it was created, last applied completely, or synced; or the changes of one run.
    pub fn of(vault: &Vault, what: &ChangesOf) -> Result<Self, VaultError> {
        let reader = vault.read()?;
        match what.meant(&*reader)? {
            ChangesOf::Fork(name) => Self::of_fork(&*reader, &name),
            ChangesOf::Run(prefix) => {
                let run = find_run(&*reader, &prefix)?;
                let run = run.ok_or_else(|| VaultError::NoRun { id: prefix.clone() })?;
                Self::of_run(&*reader, &run)
            }
        }
    }

    pub fn of_run(reader: &dyn Reader, run: &RunRecord) -> Result<Self, VaultError> {
        let without = |reason| VaultError::RunWithoutVersion { id: run.id.clone(), reason };
        if run.discarded_at.is_some() {
            return Err(without("it was discarded"));
        }
        let before = run.version_before.ok_or_else(|| without(why_none(run)))?;
        let kept = |id| {
            reader.version(&id)?.ok_or_else(|| without("its fork was deleted, and its versions with it"))
        };
        let (before, after) = (kept(before)?, kept(run.version_after.unwrap_or(before))?);
        let doubt = doubt(run, &before);
        let start = Some(before.id);
        Ok(Self {
            fork: run.fork.clone(),
            runs: vec![run.id.clone()],
            undone: Vec::new(),
            before,
            after,
            doubt,
            start,
            source: Some(run.fork.clone()),
        })
    }

    fn of_fork(reader: &dyn Reader, name: &ForkName) -> Result<Self, VaultError> {
        let fork = reader.fork(name)?.ok_or_else(|| VaultError::NoFork { name: name.clone() })?;
        // Every version of the fork, with its distance from the head.
        let mut own = HashMap::from([(fork.head, 0)]);
        for version in History::new(reader, fork.head) {
            let version = version?;
            if version.id == fork.base {
                break;
            }
            let steps = own.len();
            own.entry(version.id).or_insert(steps);
        }
        let in_effect = versions_in_effect(reader, &fork)?;
        let (mut made, mut undone) = (Vec::new(), Vec::new());
        for run in Runs::of_fork(reader, name) {
            let run = run?;
            let Some(after) = run.version_after.filter(|id| own.contains_key(id)) else { continue };
            match (in_effect.contains(&after), run.applied_at.is_some()) {
                (true, _) => made.push((run, after)),
                (false, true) => {
                    undone.push(run.id.clone());
                    made.push((run, after));
                }
                // The directory never had its changes, or no longer has them.
                (false, false) => {}
            }
        }
        // The host has the changes of all runs that were applied without a gap from the start. A run applied on
        // its own, before earlier runs, does not count: the earlier ones are still to apply. Nor does one that was
        // applied with parts of later ones, because the later apply compares with the version before all of them.
        let chosen = applied_by_choice(reader, name)?;
        let mut base = fork.base;
        while let Some((_, after)) =
            made.pop_if(|(run, _)| run.applied_at.is_some() && !chosen.contains(&run.id))
        {
            base = after;
        }
        let mut start = Some(fork.base).filter(|_| *name != ForkName::main());
        // After a sync, the changes are relative to the version that the sync merged.
        if let LastSync::Found { version, merged } = last_sync(reader, &fork, usize::MAX)? {
            let is_newer = match (own.get(&version), own.get(&base)) {
                (Some(synced), Some(applied)) => synced < applied,
                (_, None) => true,
                (None, Some(_)) => false,
            };
            base = if is_newer { merged } else { base };
            // The sync made the changes before it a part of the changes to apply.
            start = None;
        }
        let (before, after) = (require_version(reader, &base)?, require_version(reader, &fork.head)?);
        let doubt = made.last().and_then(|(oldest, _)| doubt(oldest, &before));
        let runs = made.into_iter().filter(|(_, after)| in_effect.contains(after));
        let runs = runs.map(|(run, _)| run.id).collect();
        Ok(Self { fork: fork.name, runs, undone, before, after, doubt, start, source: fork.parent })
    }
}

/// The runs of a fork whose newest apply chose paths.
fn applied_by_choice(reader: &dyn Reader, fork: &ForkName) -> Result<HashSet<RunId>, VaultError> {
    let (mut chosen, mut whole) = (HashSet::new(), HashSet::new());
    let applications = reader.applications_of_fork(fork)?;
    for of in applications.into_iter().filter(ApplicationRecord::stands) {
        let has_filter = Choice::read(&of.choice).is_ok_and(|choice| choice.has_filter());
        for run in of.runs {
            if !has_filter {
                whole.insert(run);
            } else if !whole.contains(&run) {
                chosen.insert(run);
            }
        }
    }
    Ok(chosen)
}

/// Earlier applies whose content is recognised in the directory.
const APPLIES_COMPARED_MAX: usize = 8;

pub struct ApplyOptions<'a> {
    pub filter: &'a Filter,
    /// How long the apply can be reverted.
    pub keep_seconds: i64,
    pub set_ids: SetIds,
    pub trial: Trial,
    pub meter: &'a Meter,
}

/// The result of an apply, or of a trial.
#[derive(Debug, Default)]
pub struct Applied {
    /// The requested changes, including time changes.
    pub changes: Changes,
    /// Number of those changes that the directory already has.
    pub already: u64,
    /// Files whose setuid and setgid bits are not applied.
    pub stripped: Vec<TreePath>,
    /// Number of changes that the filter excludes, without those of a modification time only.
    pub left_out: u64,
    /// Directories that should be removed, but contain files that are not versioned.
    pub kept_dirs: Vec<TreePath>,
    /// Changes that the directory lacks, although the applied ones were made on top of them.
    pub inherited: Vec<Inherited>,
}

/// Writes changes to `dir` and marks the runs that made them as applied, unless this is a trial.
///
/// Runs whose changes are applied only in part are not marked: the rest can still be applied.
pub fn apply(
    vault: &Vault,
    subject: &Subject,
    dir: &Path,
    options: &ApplyOptions<'_>,
) -> Result<Applied, ApplyError> {
    // Nothing stops it after the first write.
    apply_changes(vault, subject, dir, options).map_err(ApplyError::before_writes)
}

fn apply_changes(
    vault: &Vault,
    subject: &Subject,
    dir: &Path,
    options: &ApplyOptions<'_>,
) -> Result<Applied, ApplyError> {
    let _pin = vault.backend().pin().map_err(VaultError::from)?;
    let ApplyOptions { set_ids, meter, .. } = *options;
    let pages = FreshPages::stoppable(vault, meter);
    let [before, after] = roots_to_compare(&*vault.read()?, &subject.before, &subject.after)?;
    let all = Changes::between(&pages, (&before, &after), vault.temporary_dirs(), |_| true)?;
    let (changes, left_out) = chosen(all, options.filter, &OwnFile::of_bound(vault)?, meter)?;
    let out = WriteOut { vault, overlay_names: OverlayNames::Plain, set_ids, meter, unwritten: None };
    let host = host::Host::open(dir, &out)?;
    let mut wanted = PathDigests::default();
    wanted.extend(paths(&changes, meter))?;
    let earlier = made_from(&*vault.read()?, subject)?;
    let (version, doubt) = (subject.after.id, subject.doubt.as_ref());
    let plan = plan::make(&host, &pages, (&changes, &wanted), version, doubt, &earlier)
        .map_err(|error| explained(error, vault, subject, &host, &pages))?;
    let inherited = inherited::missing(vault, subject, &host, &pages, &|path| options.filter.accepts(path))?;
    let mut stripped = Vec::new();
    for change in &changes {
        meter.require_going()?;
        let change = change?;
        if change.after.as_ref().is_some_and(|side| set_ids.strips(&side.node)) {
            stripped.push(change.path.clone());
        }
    }
    let (already, mut kept_dirs) = (plan.already, Vec::new());
    // Without changes nothing is recorded: unapply would revert the empty apply and not the one before it.
    if options.trial == Trial::DryRun || changes.is_empty() {
        return Ok(Applied { already, stripped, left_out, changes, kept_dirs, inherited });
    }
    let parts = match left_out {
        0 => Parts::all(subject),
        _ => Parts::of(vault, subject, options.filter, meter)?,
    };
    let mut record = None;
    let begin = || -> Result<(), ApplyError> {
        let now = vault.now();
        record = Some(vault.begin_application(&ApplicationRecord {
            seq: 0,
            fork: subject.fork.clone(),
            runs: parts.some,
            before: subject.before.id,
            after: subject.after.id,
            choice: options.filter.choice(set_ids).text(),
            already: plan.there.clone(),
            started_at: now,
            ended_at: None,
            undone_at: None,
            expires_at: now.plus_seconds(options.keep_seconds),
        })?);
        Ok(())
    };
    kept_dirs.extend(write::carry_out(&host, &out, &plan, &wanted, begin)?);
    let Some(record) = record else { return Err(ApplyError::Interrupted) };
    let undone = if left_out == 0 { subject.undone.as_slice() } else { &[] };
    let detail = format!("paths={} left_out={left_out}", changes.len());
    vault.end_application(&record, (&parts.whole, undone), &detail)?;
    Ok(Applied { already, stripped, left_out, changes, kept_dirs, inherited })
}

/// The error of a plan, with the inherited changes that cause conflicts.
fn explained(
    error: ApplyError,
    vault: &Vault,
    subject: &Subject,
    host: &host::Host<'_>,
    pages: &FreshPages<'_>,
) -> ApplyError {
    let ApplyError::Conflict { dir, mut conflicts, version, repository, .. } = error else { return error };
    match inherited::explain(vault, subject, host, pages, &mut conflicts) {
        Ok(inherited) => ApplyError::Conflict { dir, conflicts, version, repository, inherited },
        Err(error) => error,
    }
}

/// The changes to wanted paths that a fork or run was made on top of, and that the directory lacks.
pub fn inherited_changes(
    vault: &Vault,
    subject: &Subject,
    dir: &Path,
    wanted: &dyn Fn(&TreePath) -> bool,
    meter: &Meter,
) -> Result<Vec<Inherited>, ApplyError> {
    let set_ids = SetIds::Stripped;
    let out = WriteOut { vault, overlay_names: OverlayNames::Plain, set_ids, meter, unwritten: None };
    let host = host::Host::open(dir, &out)?;
    inherited::missing(vault, subject, &host, &FreshPages::new(vault), wanted)
}

/// The runs whose changes an apply writes.
struct Parts {
    /// All changes.
    whole: Vec<RunId>,
    /// Some or all changes.
    some: Vec<RunId>,
}

impl Parts {
    fn all(subject: &Subject) -> Self {
        Self { whole: subject.runs.clone(), some: subject.runs.clone() }
    }

    fn of(vault: &Vault, subject: &Subject, filter: &Filter, meter: &Meter) -> Result<Self, ApplyError> {
        // The only run is written in part.
        if subject.runs.len() <= 1 {
            return Ok(Self { whole: Vec::new(), some: subject.runs.clone() });
        }
        let mut parts = Self { whole: Vec::new(), some: Vec::new() };
        for id in &subject.runs {
            let (is_taken, is_left_out) = match taken_and_left_out(vault, id, filter, meter) {
                // Its version was pruned.
                Err(VaultError::MissingObject { .. } | VaultError::Pruned { .. }) => (true, true),
                result => result?,
            };
            if is_taken {
                parts.some.push(id.clone());
            }
            if is_taken && !is_left_out {
                parts.whole.push(id.clone());
            }
        }
        Ok(parts)
    }
}

/// Whether a filter takes some changes of a run, and whether it leaves out some.
fn taken_and_left_out(
    vault: &Vault,
    id: &RunId,
    filter: &Filter,
    meter: &Meter,
) -> Result<(bool, bool), VaultError> {
    let (reader, prefix) = (vault.read()?, RunPrefix::from(id));
    let run = find_run(&*reader, &prefix)?.ok_or(VaultError::NoRun { id: prefix })?;
    let Some(after) = run.version_after else { return Ok((false, false)) };
    let after = require_version(&*reader, &after)?;
    // Not the version that the run started from: others may have changed the fork during the run.
    let Some(before) = after.parents.first() else { return Ok((true, true)) };
    let [before, after] = roots_to_compare(&*reader, &require_version(&*reader, before)?, &after)?;
    let pages = FreshPages::stoppable(vault, meter);
    let (mut is_taken, mut is_left_out) = (false, false);
    for change in &Changes::between(&pages, (&before, &after), vault.temporary_dirs(), |_| true)? {
        let change = change?;
        let (accepts, is_time) = (filter.accepts(&change.path), change.kind == ChangeKind::Time);
        is_taken |= accepts && !(is_time && is_dir(&change.after));
        is_left_out |= !accepts && !is_time;
    }
    Ok((is_taken, is_left_out))
}

/// An apply of the same fork that was not reverted.
pub struct EarlierApply {
    choice: String,
    version: VersionId,
    before: DirRef,
    pub after: DirRef,
}

impl EarlierApply {
    /// The newest applies of a fork, newest first.
    pub fn all(reader: &dyn Reader, fork: &ForkName) -> Result<Vec<Self>, VaultError> {
        let mut all = Vec::new();
        let applications = reader.applications_of_fork(fork)?.into_iter().filter(ApplicationRecord::stands);
        for ApplicationRecord { choice, before, after, .. } in applications.take(APPLIES_COMPARED_MAX) {
            let root = |id| require_version(reader, &id).and_then(|version| root_of_either(&version));
            match root(before).and_then(|before| Ok((before, root(after)?))) {
                Ok((before, root)) => all.push(Self { choice, version: after, before, after: root }),
                // It has expired.
                Err(VaultError::MissingObject { .. } | VaultError::Pruned { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// The earlier applies of versions between the two that are compared, with their filters. The others wrote content
/// that is newer, or older than what the changes were made from.
fn made_from(reader: &dyn Reader, subject: &Subject) -> Result<Vec<(EarlierApply, Filter)>, ApplyError> {
    let mut all = EarlierApply::all(reader, &subject.fork)?;
    let start = reader.fork(&subject.fork).map_err(VaultError::from)?.map(|fork| fork.base);
    let mut unseen: HashSet<VersionId> = all.iter().map(|of| of.version).collect();
    let mut history = History::new(reader, subject.after.id);
    while !unseen.is_empty() {
        match history.next() {
            Some(Ok(version)) => {
                unseen.remove(&version.id);
                if Some(version.id) == start || version.id == subject.before.id {
                    break;
                }
            }
            // The fork was deleted, and its older versions with it.
            Some(Err(VaultError::MissingObject { .. })) | None => break,
            Some(Err(error)) => return Err(error.into()),
        }
    }
    all.retain(|of| !unseen.contains(&of.version));
    let with_filter = |of: EarlierApply| Choice::read(&of.choice)?.filter().map(|filter| (of, filter));
    all.into_iter().map(with_filter).collect()
}

/// The changes that an apply would write, according to the vault alone: the directory is not read.
pub fn changes_to_apply(
    vault: &Vault,
    subject: &Subject,
    filter: &Filter,
    meter: &Meter,
) -> Result<Changes, VaultError> {
    let [before, after] = roots_to_compare(&*vault.read()?, &subject.before, &subject.after)?;
    let pages = FreshPages::stoppable(vault, meter);
    let all = Changes::between(&pages, (&before, &after), vault.temporary_dirs(), |_| true)?;
    Ok(chosen(all, filter, &OwnFile::of_bound(vault)?, meter)?.0)
}

/// The paths of changes.
fn paths(changes: &Changes, meter: &Meter) -> impl Iterator<Item = Result<TreePath, VaultError>> {
    changes.iter().map(|change| meter.require_going().and_then(|()| Ok(change?.path.clone())))
}

/// The changes that a filter selects, with the new directories they need.
struct Selection<'f> {
    filter: &'f Filter,
    own: &'f OwnFile,
    /// Directories above a selected change that adds something.
    above: PathDigests,
    /// Whether a change is excluded.
    excludes: bool,
}

impl<'f> Selection<'f> {
    fn of(all: &Changes, filter: &'f Filter, own: &'f OwnFile, meter: &Meter) -> Result<Self, VaultError> {
        let mut selection = Self { filter, own, above: PathDigests::default(), excludes: false };
        // The directory whose ancestors were added last.
        let mut last: Option<TreePath> = None;
        for change in all {
            meter.require_going()?;
            let change = change?;
            let accepts = selection.accepts(&change);
            selection.excludes |= !accepts;
            let parent = change.path.split().map(|(parent, _)| parent);
            if accepts && change.after.is_some() && parent != last {
                let is_new = |above: &TreePath| last.as_ref().is_none_or(|last| !above.contains(last));
                change.path.ancestors().take_while(is_new).for_each(|above| selection.above.push(&above));
                last = parent;
            }
        }
        selection.above.sort();
        Ok(selection)
    }

    fn accepts(&self, change: &Change) -> bool {
        self.filter.accepts(&change.path) && !self.own.covers(&change.path)
    }

    fn takes(&self, change: &Change) -> bool {
        let makes_dir = is_dir(&change.after) && !is_dir(&change.before);
        self.accepts(change) || makes_dir && self.above.contains(&change.path)
    }
}

fn is_dir(side: &Option<Side>) -> bool {
    matches!(side.as_ref().map(|side| &side.node), Some(Node::Dir(_)))
}

/// The selected changes, and the number of excluded changes other than times.
fn chosen(all: Changes, filter: &Filter, own: &OwnFile, meter: &Meter) -> Result<(Changes, u64), VaultError> {
    let selection = Selection::of(&all, filter, own, meter)?;
    if !selection.excludes {
        return Ok((all, 0));
    }
    let (mut chosen, mut left_out) = (all.empty_like(), 0);
    let mut only_times_of_dirs = true;
    for change in &all {
        meter.require_going()?;
        let change = change?;
        if selection.takes(&change) {
            only_times_of_dirs &= change.kind == ChangeKind::Time && is_dir(&change.after);
            chosen.push(change.into_owned());
        } else if change.kind != ChangeKind::Time {
            // A change of a time alone is not shown as a change either.
            left_out += 1;
        }
    }
    // They come from names that are left out.
    let chosen = if only_times_of_dirs && left_out > 0 { all.empty_like() } else { chosen };
    Ok((chosen, left_out))
}
