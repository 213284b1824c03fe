//! Report: what a landed run changed, and the steps that only a kept run has: an apply, and the layer for the next run.
//!
//! Nothing here can remove the run from the vault: an error becomes a note, except an error of the apply.

use avfs_changes::{
    ApplyError, ApplyOptions, ChangeReport, ChangeSummary, ChangeSummaryService, Filter, RunsOnHost, Subject,
    apply, called_out,
};
use avfs_request::reproducible::clock_held;
use avfs_request::{ForkChoice, Retention};
use avfs_types::ids::VersionId;
use avfs_types::path::TreePath;
use avfs_types::secrets::Secrets;
use avfs_vault::backend::RunRecord;
use avfs_vault::capture::LeftOut;
use avfs_vault::changes::Changes;
use avfs_vault::diff::ChangeKind;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::run::{Landed, LandedRun};
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::{full_root_of, root_of_either};
use avfs_vault::write_out::FreshPages;
use avfs_vault::{require_version, transfer};

use super::capture::{Before, Captured};
use super::effective::Effective;
use super::execute::Ended;
use super::land::Kept;
use super::notes::{note_git_settings, note_landing, note_sandbox};
use super::plan::caches;
use super::record::Run;
use super::result::{Enforcement, ExecutionResult, Note, Notes, Phases};
use super::site::Site;
use super::state::enter;
use crate::error::ExecuteError;
use crate::fork_behind::LookBeside;
use crate::host_look::HostLook;
use crate::launcher::{Completion, Exit, Sandboxes};
use crate::recover::leftover;
use crate::result_cache::CacheUse;
use crate::run_base::RunBase;

/// The changes of a landed run.
pub(crate) struct Changed {
    pub summary: ChangeSummary,
    /// The changes as text, in the requested form.
    pub report: Option<ChangeReport>,
    /// Those that take effect on the host automatically once they are applied.
    pub runs_on_host: Vec<RunsOnHost>,
}

/// A landed run, executed or cached, and everything else that its result has.
pub(crate) struct Reported {
    pub landed: LandedRun,
    pub changed: Changed,
    pub completion: Completion,
    pub left_out: Vec<LeftOut>,
    pub caches: Vec<TreePath>,
    pub violated: bool,
    pub phases: Phases,
    pub enforcement: Option<Enforcement>,
    pub cache: Option<CacheUse>,
}

/// Reports an executed run, and removes its scratch.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn report(
    site: &Site<'_>,
    launcher: &dyn Sandboxes,
    effective: &Effective<'_>,
    mut ended: Ended<'_>,
    mut kept: Kept,
    mut notes: Notes,
) -> Result<ExecutionResult, ExecuteError> {
    let run = &effective.run;
    let changed = changed(site, run, kept.before, &kept.landed.landed, &mut notes);
    if let (Some(before), Some(_)) = (kept.before, kept.landed.landed.version()) {
        let looked = look_at_host(site, &ended, &mut kept, before, &changed.summary.changes, &mut notes);
        if let Err(error) =
            looked.map_err(transfer::Error::from).and_then(|()| keep_layer(site, &ended, &kept))
        {
            note_afterwards(&error, &mut notes);
        }
    }
    ended.sandbox.close();
    note_sandbox(&ended.completion, &mut notes);
    notes.extend(leftover(run.id.as_str(), ended.prepared.session.captured()));
    if let Err(error) = note_behind(site, run, ended.look.take(), &changed.summary, &mut notes) {
        note_afterwards(&error, &mut notes);
    }
    note_git_settings(site, run, &changed.summary, &mut notes);
    let secrets = run.request.secrets();
    let enforcement = Enforcement {
        backend: ended.base.backend(),
        confined: ended.completion.confined,
        limits: ended.completion.limits.clone(),
        base: ended.base.used(),
        net: run.request.net.clone(),
        clock: clock_held(&run.request),
        scratch: ended.scratch_place,
        degraded: effective.degraded.clone(),
    };
    let reported = Reported {
        landed: kept.landed,
        changed,
        completion: ended.completion,
        left_out: kept.left_out.into_iter().map(|left| without_secrets(&secrets, left)).collect(),
        caches: caches(&run.request, &effective.admitted.places),
        violated: kept.violated,
        phases: kept.phases,
        enforcement: Some(enforcement),
        cache: kept.cache,
    };
    result(site, launcher, run, reported, notes)
}

/// The changes of a landed run, and a note on where they went.
#[tracing::instrument(level = "debug", skip_all)]
pub(crate) fn changed(
    site: &Site<'_>,
    run: &Run,
    before: Option<Before>,
    landed: &Landed,
    notes: &mut Notes,
) -> Changed {
    note_landing(run, landed, notes);
    let (summary, report) = summary(site, run, before, landed).unwrap_or_else(|error| {
        notes.add("changes.unknown", format!("cannot determine the changes: {error}"));
        (ChangeSummary::default(), None)
    });
    let runs_on_host = runs_on_host(site, run, landed, &summary).unwrap_or_else(|error| {
        notes.add("changes.unknown", format!("cannot determine what the host would execute: {error}"));
        Vec::new()
    });
    Changed { summary, report, runs_on_host }
}

/// The result of a landed run. Applies its changes first, if that was requested.
#[tracing::instrument(level = "debug", skip_all)]
pub(crate) fn result(
    site: &Site<'_>,
    launcher: &dyn Sandboxes,
    run: &Run,
    reported: Reported,
    mut notes: Notes,
) -> Result<ExecutionResult, ExecuteError> {
    let Reported { landed, changed, completion, left_out, caches, violated, phases, enforcement, cache } =
        reported;
    let LandedRun { landed, record, checkpoint_before, checkpoint_after, remembered: _, expires_at } = landed;
    let applied = apply_if_asked(site, launcher, run, &completion, &record, &landed, &mut notes)?;
    let Completion { exit, timed_out, stdout, stderr, usage, .. } = completion;
    let Completion { stopped_by, connections, refused_calls, outside_writes, .. } = completion;
    enter::<Captured<'_>, ExecutionResult>();
    Ok(ExecutionResult {
        run_id: run.id.clone(),
        fork: landed.version().map(|_| record.fork.clone()),
        version_before: record.version_before,
        version_after: record.version_after,
        checkpoint_before,
        checkpoint_after,
        exit,
        timed_out,
        stopped_by,
        started_at: run.started_at,
        duration: run.begun.elapsed(),
        stdout,
        stderr,
        changes: changed.summary,
        change_report: changed.report,
        left_out,
        caches,
        landed,
        classification_violated: violated,
        runs_on_host: changed.runs_on_host,
        connections,
        refused_calls,
        outside_writes,
        is_bound: site.bound.is_some(),
        applied,
        kept_until: expires_at.filter(|_| applied.is_none()),
        usage,
        phases,
        notes: notes.into_list(),
        enforcement,
        cache,
    })
}

fn note_afterwards(error: &dyn std::fmt::Display, notes: &mut Notes) {
    notes.add("run.afterwards", format!("the run is kept, but an error occurred afterwards: {error}"));
}

/// The changes to report.
fn summary(
    site: &Site<'_>,
    run: &Run,
    before: Option<Before>,
    landed: &Landed,
) -> avfs_vault::Result<(ChangeSummary, Option<ChangeReport>)> {
    let (Some(before), Some(version)) = (before, landed.version()) else {
        return Ok((ChangeSummary::default(), None));
    };
    let reader = site.vault.read()?;
    let root = |id: &VersionId| root_of_either(&require_version(&*reader, id)?);
    let from = match landed {
        // Changes that others made in the meantime are not part of this run.
        Landed::Rebased { onto, .. } => root(onto)?,
        Landed::Nothing | Landed::Advanced { .. } | Landed::Diverted { .. } => before.root,
    };
    let service = ChangeSummaryService { vault: site.vault, reader: &*reader };
    avfs_types::pause::point("changes");
    let unstopped = Meter::default();
    let summary = service.between(&from, &root(&version)?, meter_after(site, run, &unstopped))?;
    let report = service.report(&summary, run.request.show)?;
    Ok((summary, report))
}

/// The meter for the report of a stored run: a signal stops the report only before an apply, which does not begin
/// then.
fn meter_after<'m>(site: &'m Site<'_>, run: &Run, unstopped: &'m Meter) -> &'m Meter {
    if run.request.retention == Retention::Apply { site.meter } else { unstopped }
}

/// The changes that take effect on the host automatically once they are applied.
fn runs_on_host(
    site: &Site<'_>,
    run: &Run,
    landed: &Landed,
    changes: &ChangeSummary,
) -> avfs_vault::Result<Vec<RunsOnHost>> {
    let vault = site.vault;
    let Some(version) = landed.version() else { return Ok(Vec::new()) };
    let root = root_of_either(&require_version(&*vault.read()?, &version)?)?;
    let unstopped = Meter::default();
    let meter = meter_after(site, run, &unstopped);
    called_out(vault, &root, site.bound.as_deref(), &changes.changes, meter)
}

/// Notes that another process changed the lower directory during the run, so that the version may differ from what the
/// command saw. Detects changes found by the concurrent scan, and changes to paths that the run touched.
fn look_at_host(
    site: &Site<'_>,
    ended: &Ended<'_>,
    kept: &mut Kept,
    before: Before,
    changes: &Changes,
    notes: &mut Notes,
) -> avfs_vault::Result<()> {
    let vault = site.vault;
    let Some((dir, tree)) = ended.base.host(&before) else { return Ok(()) };
    let own;
    let changes = match (&kept.landed.landed, kept.edited.take()) {
        // Changes that others made in the meantime are not part of this run.
        (Landed::Rebased { .. }, Some(edited)) => {
            own = edited.changes(&FreshPages::new(vault), vault.temporary_dirs())?;
            &own
        }
        (Landed::Rebased { .. } | Landed::Nothing | Landed::Advanced { .. } | Landed::Diverted { .. }, _) => {
            changes
        }
    };
    let is_changed = kept.scan_met_change || {
        let pages = FreshPages::new(vault);
        HostLook::new(vault, &pages, tree, dir, ended.launched_at)?.is_changed(changes)?
    };
    if is_changed {
        let dir = dir.display();
        notes.add(
            "host.changed",
            format!("{dir} was changed by others during the run; review the changes carefully"),
        );
    }
    Ok(())
}

/// Keeps the upper as the topmost layer for the next run on the fork.
#[tracing::instrument(level = "debug", skip_all)]
fn keep_layer(site: &Site<'_>, ended: &Ended<'_>, kept: &Kept) -> transfer::Result<()> {
    let (RunBase::Stacked { stack, .. }, Landed::Advanced { version }) = (&ended.base, &kept.landed.landed)
    else {
        return Ok(());
    };
    let root = {
        let reader = site.vault.read()?;
        full_root_of(&*reader, &require_version(&*reader, version)?)?
    };
    match ended.upper.memory() {
        None => {
            let left = (kept.left_out.as_slice(), &kept.links);
            site.layers
                .keep_upper(stack, &ended.prepared.session.upper_dir(), left, kept.size, &root)
                .map(drop)
        }
        // The next run scans the directory, and writes the layer if it can use the directory again.
        Some(_) if stack.host_dir().is_some() => Ok(()),
        // Memory is freed with the run: the layer is written from the content in the vault.
        Some(_) => site.vault.stack_over(stack, &root, &site.layers, site.meter),
    }
}

/// Notes that the directory changed since a fork was created or last synced.
#[tracing::instrument(level = "debug", skip_all)]
fn note_behind(
    site: &Site<'_>,
    run: &Run,
    look: Option<LookBeside<'_>>,
    changes: &ChangeSummary,
    notes: &mut Notes,
) -> avfs_vault::Result<()> {
    let ForkChoice::Persistent { name, .. } = &run.request.fork else { return Ok(()) };
    let Some(behind) = look.and_then(LookBeside::wait) else { return Ok(()) };
    if behind.is_behind(site, changes)? {
        let text = format!("the directory changed since fork {name} was created or last synced");
        let remedy = format!("sync {name}");
        notes.push(Note::new("fork.behind", text).with_remedy("merge its changes with", remedy));
    }
    Ok(())
}

/// The number of paths written to the host directory, if `--apply` was given.
#[tracing::instrument(level = "debug", skip_all)]
fn apply_if_asked(
    site: &Site<'_>,
    launcher: &dyn Sandboxes,
    run: &Run,
    completion: &Completion,
    record: &RunRecord,
    landed: &Landed,
    notes: &mut Notes,
) -> Result<Option<u64>, ExecuteError> {
    let Some(dir) = site.bound.as_deref().filter(|_| run.request.retention == Retention::Apply) else {
        return Ok(None);
    };
    if landed.version().is_none() {
        return Ok(None);
    }
    if completion.exit != Exit::Code(0) || completion.timed_out || completion.stopped_by.is_some() {
        notes.add("apply.skipped", "the command failed, so nothing was written to the directory".to_owned());
        return Ok(None);
    }
    let not_applied = |source| ExecuteError::NotApplied { id: record.id.clone(), source: Box::new(source) };
    let subject = {
        let reader = site.vault.read()?;
        Subject::of_run(&*reader, record)?
    };
    let options = ApplyOptions {
        filter: &Filter::default(),
        keep_seconds: site.expires_seconds,
        set_ids: SetIds::Stripped,
        trial: Trial::Real,
        meter: site.meter,
    };
    // A signal stops it until the first name changes.
    let interrupted = |signal| ExecuteError::ApplyInterrupted { id: record.id.clone(), signal };
    if let Some(signal) = launcher.asked_to_end() {
        return Err(interrupted(signal));
    }
    let applied = apply(site.vault, &subject, dir, &options);
    let applied = applied.map_err(|error| match (&error, site.meter.stopped_by()) {
        (ApplyError::Interrupted, Some(signal)) => interrupted(signal),
        _ => not_applied(error),
    })?;
    for of in &applied.inherited {
        notes.add("apply.inherited", of.text());
    }
    for dir in &applied.kept_dirs {
        notes.add(
            "apply.kept_dir",
            format!("{dir} was not removed: it contains files that are not versioned"),
        );
    }
    for file in &applied.stripped {
        let text = format!("{file} was applied without its setuid and setgid bits");
        let remedy = format!("apply --keep-setid run:{}", run.id);
        notes.push(Note::new("apply.set_ids_stripped", text).with_remedy("keep them with", remedy));
    }
    let mut counted = 0_u64;
    for change in &applied.changes {
        counted += u64::from(change?.kind != ChangeKind::Time);
    }
    Ok(Some(counted.saturating_sub(applied.already)))
}

/// The path itself may contain the secret for which the file was left out.
fn without_secrets(secrets: &Secrets, left: LeftOut) -> LeftOut {
    let scrubbed = secrets.scrub(left.path.as_bytes().to_vec());
    // Parse only if needed: a path that is left out may be deeper than any path that can be kept.
    if scrubbed == left.path.as_bytes() {
        return left;
    }
    LeftOut { path: TreePath::parse(&scrubbed).unwrap_or_default(), ..left }
}
