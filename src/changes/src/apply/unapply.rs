//! Reverts applied changes in the host directory: exactly the ones that were written, and only if they are
//! still in place.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, LinkId, RunId, RunPrefix};
use avfs_types::path::TreePath;
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{ApplicationRecord, Reader, RunRecord};
use avfs_vault::changes::Changes;
use avfs_vault::diff::Change;
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::own::OwnFile;
use avfs_vault::run::Runs;
use avfs_vault::set_ids::SetIds;
use avfs_vault::tree::Pages;
use avfs_vault::version::roots_to_compare;
use avfs_vault::write_out::{FreshPages, OverlayNames, WriteOut};
use avfs_vault::{Vault, VaultError, require_version};

use super::error::Reverted;
use super::host::{Host, Look};
use super::net::Net;
use super::path_digests::PathDigests;
use super::select::Choice;
use super::task::Plan;
use super::way::Way;
use super::{Applied, ApplyError, Selection, plan, write};

/// Applied changes that were not reverted: successive applications between the same two versions, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub applications: Vec<ApplicationRecord>,
}

impl Standing {
    /// The applications that must be reverted to revert those of a run, newest first. An application of several
    /// runs is reverted as a whole, with the other applications of these runs.
    pub fn of_run(reader: &dyn Reader, run: &RunRecord) -> Result<Vec<Self>, ApplyError> {
        let mut others = reader.applications_of_fork(&run.fork).map_err(VaultError::from)?;
        others.retain(ApplicationRecord::stands);
        let (mut all, mut runs) = (Vec::new(), HashSet::from([run.id.clone()]));
        while let Some(place) = others.iter().position(|of| of.runs.iter().any(|run| runs.contains(run))) {
            let of = others.remove(place);
            runs.extend(of.runs.iter().cloned());
            all.push(of);
        }
        all.sort_by_key(|of| Reverse(of.seq));
        if let (true, Some(at), Some(before), Some(after)) =
            (all.is_empty(), run.applied_at, run.version_before, run.version_after)
        {
            // Applied before applications were recorded.
            all.push(ApplicationRecord {
                seq: 0,
                fork: run.fork.clone(),
                runs: vec![run.id.clone()],
                before,
                after,
                choice: Choice::default().text(),
                already: Vec::new(),
                started_at: at,
                ended_at: Some(at),
                undone_at: None,
                expires_at: at,
            });
        }
        // A later apply of the fork may have removed its changes, but not those of the other runs.
        if all.is_empty() || in_directory(reader, run)? == Some(InDirectory::Unapplied) {
            return Err(ApplyError::NotApplied { what: format!("run {}", run.id) });
        }
        Ok(Self::grouped(all))
    }

    /// The runs whose changes are in the directory because of these applications, sorted.
    pub fn runs(reader: &dyn Reader, all: &[Self]) -> Result<Vec<RunRecord>, ApplyError> {
        let ids: BTreeSet<&RunId> =
            all.iter().flat_map(|standing| &standing.applications).flat_map(|of| &of.runs).collect();
        let mut runs = Vec::new();
        for id in ids {
            let run = reader.run(id).map_err(VaultError::from)?;
            let run = run.ok_or_else(|| VaultError::NoRun { id: RunPrefix::from(id) })?;
            if in_directory(reader, &run)? != Some(InDirectory::Unapplied) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// The applications of a fork that were not reverted, newest first.
    pub fn of_fork(reader: &dyn Reader, fork: &ForkName) -> Result<Vec<Self>, ApplyError> {
        let mut all = reader.applications_of_fork(fork).map_err(VaultError::from)?;
        all.retain(ApplicationRecord::stands);
        if all.is_empty() {
            return Err(ApplyError::NotApplied { what: format!("fork {fork}") });
        }
        Ok(Self::grouped(all))
    }

    fn grouped(all: Vec<ApplicationRecord>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for of in all {
            let ends = |group: &Self| (group.applications[0].before, group.applications[0].after);
            match groups.last_mut() {
                Some(group) if ends(group) == (of.before, of.after) => group.applications.push(of),
                Some(_) | None => groups.push(Self { applications: vec![of] }),
            }
        }
        groups
    }

    /// The fork or run whose changes were applied last and not reverted.
    pub fn newest(reader: &dyn Reader) -> Result<ChangesOf, ApplyError> {
        let all = reader.applications_after(Timestamp(i64::MIN)).map_err(VaultError::from)?;
        if let Some(of) = all.into_iter().find(ApplicationRecord::stands) {
            let run = of.runs.first().map(|run| ChangesOf::Run(RunPrefix::from(run)));
            return Ok(run.unwrap_or(ChangesOf::Fork(of.fork)));
        }
        let applied =
            |run: &Result<RunRecord, VaultError>| run.as_ref().map_or(true, |run| run.applied_at.is_some());
        let run = Runs::new(reader).find(applied).transpose()?.ok_or(ApplyError::NothingApplied)?;
        Ok(ChangesOf::Run(RunPrefix::from(&run.id)))
    }
}

/// Reverts all of these applications in `dir`, newest first, and records it, unless this is a trial. Everything is
/// checked before the first path changes. The changes of the result are the net ones.
pub fn unapply(
    vault: &Vault,
    all: &[Standing],
    dir: &Path,
    trial: Trial,
    meter: &Meter,
) -> Result<Applied, ApplyError> {
    let _pin = vault.backend().pin().map_err(VaultError::from)?;
    let pages = FreshPages::stoppable(vault, meter);
    let mut steps: Vec<Step<'_>> = all
        .iter()
        .map(|standing| Step::of(vault, &pages, standing, meter))
        .collect::<Result<_, ApplyError>>()?;
    let outs: Vec<WriteOut<'_>> = steps
        .iter()
        .map(|Step { set_ids, .. }| {
            let (set_ids, overlay_names) = (*set_ids, OverlayNames::Plain);
            WriteOut { vault, overlay_names, set_ids, meter, unwritten: None }
        })
        .collect();
    let hosts = outs.iter().map(|out| Host::open(dir, out)).collect::<Result<Vec<_>, ApplyError>>()?;
    if let (Some(step), Some(host)) = (steps.first_mut(), hosts.first()) {
        step.leave_out(&step.changed_links(host)?)?;
    }
    let changes: Vec<_> = steps.iter().map(|step| (&step.changes, &step.linked)).collect();
    let net = Net::of(&*vault.read()?, &changes)?;
    for (step, superseded) in steps.iter_mut().zip(&net.superseded) {
        step.leave_out(superseded)?;
    }
    let (newest, already) = check(&pages, &steps, &hosts, &net)?;
    let mut kept_dirs = Vec::new();
    if trial == Trial::Real {
        let mut newest = Some(newest);
        for (place, step) in steps.iter().enumerate() {
            let reverted = if place == 0 { Reverted::Nothing } else { Reverted::NewerApplies };
            let kept;
            let plan = match newest.take() {
                Some(plan) => plan,
                // The steps before it changed the directory: its plan is made from the new state.
                None => {
                    let links = step.changed_links(&hosts[place])?;
                    kept = (!links.is_empty()).then(|| without(&step.changes, &links)).transpose()?;
                    let plan = step.plan(kept.as_ref().unwrap_or(&step.changes), &hosts[place], &pages);
                    plan.map_err(|error| since(error, reverted))?
                }
            };
            let kept = write::carry_out(&hosts[place], &outs[place], &plan, &step.written, || Ok(()));
            kept_dirs.extend(kept.map_err(|error| since(error, reverted))?);
            let detail = format!("paths={}", step.changes.len());
            vault.undo_applications(&step.standing.applications, &detail)?;
        }
        kept_dirs.sort();
        kept_dirs.dedup();
    }
    Ok(Applied { already, changes: net.changes, kept_dirs, ..Applied::default() })
}

/// The reversal of applications between the same two versions.
struct Step<'s> {
    standing: &'s Standing,
    changes: Changes,
    /// Names of hard-linked files that are linked again, although the apply did not write them.
    linked: HashSet<TreePath>,
    /// The paths of the changes.
    written: PathDigests,
    set_ids: SetIds,
}

impl<'s> Step<'s> {
    fn of(
        vault: &Vault,
        pages: &FreshPages<'_>,
        standing: &'s Standing,
        meter: &Meter,
    ) -> Result<Self, ApplyError> {
        let reader = vault.read()?;
        let newest = &standing.applications[0];
        let version = |id| match require_version(&*reader, id) {
            Err(VaultError::MissingObject { .. }) if newest.expires_at <= vault.now() => {
                Err(ApplyError::Expired { fork: newest.fork.clone() })
            }
            other => other.map_err(ApplyError::from),
        };
        let [before, after] =
            roots_to_compare(&*reader, &version(&newest.before)?, &version(&newest.after)?)?;
        let forward = Changes::between(pages, (&before, &after), vault.temporary_dirs(), |_| true)?;
        let own_file = OwnFile::of_bound(vault)?;
        let mut written = PathDigests::default();
        for of in &standing.applications {
            let filter = Choice::read(&of.choice)?.filter()?;
            let selection = Selection::of(&forward, &filter, &own_file, meter)?;
            let already: HashSet<&TreePath> = of.already.iter().collect();
            let own = |change: &Change| selection.takes(change) && !already.contains(&change.path);
            written.extend(paths_of(&forward, own))?;
        }
        let linked = linked_with(&forward, &written)?;
        written.extend(linked.iter().cloned().map(Ok::<_, VaultError>))?;
        drop(forward);
        let is_written = |change: &Change| written.contains(&change.path);
        let changes = Changes::between(pages, (&after, &before), vault.temporary_dirs(), is_written)?;
        let set_ids = Choice::read(&newest.choice)?.set_ids();
        Ok(Self { standing, changes, linked, written, set_ids })
    }

    /// Names to link again that do not have the content of the file.
    fn changed_links(&self, host: &Host<'_>) -> Result<HashSet<TreePath>, ApplyError> {
        let mut changed = HashSet::new();
        if self.linked.is_empty() {
            return Ok(changed);
        }
        for change in &self.changes {
            host.require_going()?;
            let change = change?;
            if !self.linked.contains(&change.path) {
                continue;
            }
            let has_content = match (host.look(&change.path)?, &change.after) {
                (Look::There(stat), Some(side)) => host.found(&change.path, stat).is(&side.node, None)?,
                (Look::There(_) | Look::Absent | Look::NoParent, _) => false,
            };
            if !has_content {
                changed.insert(change.path.clone());
            }
        }
        Ok(changed)
    }

    fn leave_out(&mut self, paths: &HashSet<TreePath>) -> Result<(), VaultError> {
        if !paths.is_empty() {
            self.changes = without(&self.changes, paths)?;
        }
        Ok(())
    }

    fn plan<'c>(
        &self,
        changes: &'c Changes,
        host: &Host<'_>,
        pages: &dyn Pages,
    ) -> Result<Plan<'c>, ApplyError> {
        let version = self.standing.applications[0].before;
        plan::make(host, pages, (changes, &self.written), version, None, &[])
    }
}

/// Compares the directory with the newest step, and with the older ones where the newer ones change nothing. Returns
/// the plan of the newest step, and the number of changes that the directory already has.
fn check<'s>(
    pages: &dyn Pages,
    steps: &'s [Step<'_>],
    hosts: &[Host<'_>],
    net: &Net,
) -> Result<(Plan<'s>, u64), ApplyError> {
    let (Some(step), Some((host, older))) = (steps.first(), hosts.split_first()) else {
        return Err(ApplyError::NothingApplied);
    };
    let version = step.standing.applications[0].before;
    let (mut conflicts, mut already) = (net.conflicts.clone(), 0);
    let newest = match step.plan(&step.changes, host, pages) {
        Ok(plan) => Some(plan),
        Err(ApplyError::Conflict { conflicts: more, .. }) => {
            conflicts.extend(more);
            None
        }
        Err(error) => return Err(error),
    };
    let mut asked = PathDigests::default();
    for step in steps {
        asked.extend(paths_of(&step.changes, |_| true))?;
    }
    for (host, changes) in older.iter().zip(&net.older) {
        let changes = in_present_dirs(host, changes, &asked)?;
        match plan::make(host, pages, (&changes, &asked), version, None, &[]) {
            Ok(plan) => already += plan.already,
            Err(ApplyError::Conflict { conflicts: more, .. }) => conflicts.extend(more),
            Err(error) => return Err(error),
        }
    }
    match newest {
        Some(plan) if conflicts.is_empty() => {
            already += plan.already;
            Ok((plan, already))
        }
        Some(_) | None => {
            conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            Err(ApplyError::ChangedSince {
                dir: host.dir().to_owned(),
                conflicts,
                reverted: Reverted::Nothing,
            })
        }
    }
}

/// The changes without those in directories that the steps create: nothing is there yet.
fn in_present_dirs(host: &Host<'_>, changes: &Changes, asked: &PathDigests) -> Result<Changes, ApplyError> {
    let mut present = changes.empty_like();
    // Whether all directories on the way are there or to come.
    let mut way = Way::default();
    for change in changes {
        host.require_going()?;
        let change = change?;
        let mut is_to_come = change.after.is_some() && matches!(host.look(&change.path)?, Look::NoParent);
        if let (true, Some((parent, _))) = (is_to_come, change.path.split()) {
            is_to_come = way.value(&parent, true, |at, above| -> Result<bool, ApplyError> {
                Ok(above && (asked.contains(at) || matches!(host.look(at)?, Look::There(_))))
            })?;
        }
        if !is_to_come {
            present.push(change.into_owned());
        }
    }
    Ok(present)
}

/// The paths of the changes that `wanted` selects.
fn paths_of(
    changes: &Changes,
    wanted: impl Fn(&Change) -> bool,
) -> impl Iterator<Item = Result<TreePath, VaultError>> {
    changes.iter().filter_map(move |change| match change {
        Ok(change) => wanted(&change).then(|| Ok(change.path.clone())),
        Err(error) => Some(Err(error)),
    })
}

fn without(changes: &Changes, paths: &HashSet<TreePath>) -> Result<Changes, VaultError> {
    let mut kept = changes.empty_like();
    for change in changes {
        let change = change?;
        if !paths.contains(&change.path) {
            kept.push(change.into_owned());
        }
    }
    Ok(kept)
}

/// The other names of hard-linked files that were written.
fn linked_with(forward: &Changes, written: &PathDigests) -> Result<HashSet<TreePath>, VaultError> {
    let link = |change: &Change| change.before.as_ref().and_then(|side| side.node.link());
    let mut links: HashSet<LinkId> = HashSet::new();
    for change in forward {
        let change = change?;
        links.extend(link(&change).filter(|_| written.contains(&change.path)));
    }
    let mut linked = HashSet::new();
    if links.is_empty() {
        return Ok(linked);
    }
    for change in forward {
        let change = change?;
        let is_name = link(&change).is_some_and(|link| links.contains(&link));
        if is_name && !written.contains(&change.path) {
            linked.insert(change.path.clone());
        }
    }
    Ok(linked)
}

/// Reports a conflict as a change since the apply.
fn since(error: ApplyError, reverted: Reverted) -> ApplyError {
    let ApplyError::Conflict { dir, conflicts, version: _, repository: _, inherited: _ } = error else {
        return error;
    };
    ApplyError::ChangedSince { dir, conflicts, reverted }
}
