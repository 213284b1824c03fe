//! Reverts applied changes in the host directory: exactly the ones that were written, and only if they are
//! still in place.

use std::collections::HashSet;
use std::path::Path;

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, LinkId, RunPrefix};
use avfs_types::path::TreePath;
use avfs_vault::application::applications_of_run;
use avfs_vault::backend::{ApplicationRecord, Reader, RunRecord};
use avfs_vault::changes::Changes;
use avfs_vault::diff::Change;
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::run::Runs;
use avfs_vault::version::roots_to_compare;
use avfs_vault::write_out::{FreshPages, OverlayNames, WriteOut};
use avfs_vault::{Vault, VaultError, require_version};

use super::path_digests::PathDigests;
use super::select::Choice;
use super::{Applied, ApplyError, Selection, host, plan, write};

/// Applied changes of a run that were not reverted: applications between the same two versions, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub applications: Vec<ApplicationRecord>,
}

impl Standing {
    /// The applications of a run that were not reverted, newest first. An application of several runs is
    /// reverted as a whole.
    pub fn of_run(reader: &dyn Reader, run: &RunRecord) -> Result<Vec<Self>, ApplyError> {
        let mut all = applications_of_run(reader, run)?;
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
        if all.is_empty() {
            return Err(ApplyError::NotApplied { what: format!("run {}", run.id) });
        }
        Ok(Self::grouped(all))
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
            match groups.iter_mut().find(|group| ends(group) == (of.before, of.after)) {
                Some(group) => group.applications.push(of),
                None => groups.push(Self { applications: vec![of] }),
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

/// Reverts the applications in `dir` and records it, unless this is a trial.
pub fn unapply(
    vault: &Vault,
    standing: &Standing,
    dir: &Path,
    trial: Trial,
    meter: &Meter,
) -> Result<Applied, ApplyError> {
    let _pin = vault.backend().pin().map_err(VaultError::from)?;
    let pages = FreshPages::new(vault);
    let reader = vault.read()?;
    let newest = &standing.applications[0];
    let version = |id| match require_version(&*reader, id) {
        Err(VaultError::MissingObject { .. }) if newest.expires_at <= vault.now() => {
            Err(ApplyError::Expired { fork: newest.fork.clone() })
        }
        other => other.map_err(ApplyError::from),
    };
    let [before, after] = roots_to_compare(&*reader, &version(&newest.before)?, &version(&newest.after)?)?;
    let forward = Changes::between(&pages, (&before, &after), vault.temporary_dirs(), |_| true)?;
    let mut written = PathDigests::default();
    for of in &standing.applications {
        let filter = Choice::read(&of.choice)?.filter()?;
        let selection = Selection::of(&forward, &filter)?;
        let already: HashSet<&TreePath> = of.already.iter().collect();
        let own = |change: &Change| selection.takes(change) && !already.contains(&change.path);
        written.extend(paths_of(&forward, own))?;
    }
    with_linked(&forward, &mut written)?;
    drop(forward);
    let is_written = |change: &Change| written.contains(&change.path);
    let changes = Changes::between(&pages, (&after, &before), vault.temporary_dirs(), is_written)?;
    let set_ids = Choice::read(&newest.choice)?.set_ids();
    let out = WriteOut { vault, overlay_names: OverlayNames::Plain, set_ids, meter, unwritten: None };
    let host = host::Host::open(dir, &out)?;
    let plan = plan::make(&host, &pages, (&changes, &written), None, &[]).map_err(since)?;
    let (already, mut kept_dirs) = (plan.already, Vec::new());
    if trial == Trial::Real {
        kept_dirs = write::carry_out(&host, &out, dir, &plan, &written).map_err(since)?;
        vault.undo_applications(&standing.applications, &format!("paths={}", changes.len()))?;
    }
    Ok(Applied { already, changes, kept_dirs, ..Applied::default() })
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

/// Adds all names of hard-linked files, including names whose content did not change: they are linked again together.
fn with_linked(forward: &Changes, written: &mut PathDigests) -> Result<(), VaultError> {
    let link = |change: &Change| change.before.as_ref().and_then(|side| side.node.link());
    let mut links: HashSet<LinkId> = HashSet::new();
    for change in forward {
        let change = change?;
        links.extend(link(&change).filter(|_| written.contains(&change.path)));
    }
    written.extend(paths_of(forward, |change| link(change).is_some_and(|link| links.contains(&link))))
}

/// Reports a conflict as a change since the apply.
fn since(error: ApplyError) -> ApplyError {
    let ApplyError::Conflict { dir, conflicts } = error else { return error };
    ApplyError::ChangedSince { dir, conflicts }
}
