//! Steps after a run is kept: its changes are reported and applied, and the upper becomes a layer.
//!
//! Nothing here can remove the run from the vault.

use avfs_changes::{
    ApplyError, ApplyOptions, ChangeReport, ChangeSummary, ChangeSummaryService, Filter, RunsOnHost, Subject,
    apply, called_out,
};
use avfs_request::reproducible::clock_held;
use avfs_request::{EnforcedLimit, ForkChoice, LimitKind, Mechanism, Retention};
use avfs_types::ids::VersionId;
use avfs_vault::backend::RunRecord;
use avfs_vault::capture::{LeftOut, WrittenLinks};
use avfs_vault::changes::Changes;
use avfs_vault::diff::ChangeKind;
use avfs_vault::gc::Trial;
use avfs_vault::layers::{Footprint, Made};
use avfs_vault::meter::Meter;
use avfs_vault::require_version;
use avfs_vault::run::{Landed, LandedRun};
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::{full_root_of, root_of_either};
use avfs_vault::write_out::FreshPages;

use crate::conclude::Before;
use crate::error::ExecuteError;
use crate::fork_behind::LookBeside;
use crate::host_look::HostLook;
use crate::launcher::{Completion, Exit};
use crate::mount_session::MountSession;
use crate::proxy::{Ended, ProxyRuntime, Step};
use crate::result::{Backend, BaseUsed, Enforcement, Note};
use crate::run::Run;
use crate::scratch_size::Scratch;
use crate::workspace_service::RunBase;

impl ProxyRuntime<'_> {
    /// The changes to report.
    pub(super) fn changes(
        &self,
        run: &Run,
        before: Option<&Before>,
        landed: &LandedRun,
    ) -> avfs_vault::Result<(ChangeSummary, Option<ChangeReport>)> {
        let (Some(before), Some(version)) = (before, landed.landed.version()) else {
            return Ok((ChangeSummary::default(), None));
        };
        let reader = self.site.vault.read()?;
        let root = |id: &VersionId| root_of_either(&require_version(&*reader, id)?);
        let from = match &landed.landed {
            // Changes that others made in the meantime are not part of this run.
            Landed::Rebased { onto, .. } => root(onto)?,
            Landed::Nothing | Landed::Advanced { .. } | Landed::Diverted { .. } => before.root,
        };
        let service = ChangeSummaryService { vault: self.site.vault, reader: &*reader };
        avfs_types::pause::point("changes");
        let unstopped = Meter::default();
        let summary = service.between(&from, &root(&version)?, self.meter_after(run, &unstopped))?;
        let report = service.report(&summary, run.request.show)?;
        Ok((summary, report))
    }

    /// The meter for the report of a stored run: a signal stops the report only before an apply, which does not begin
    /// then.
    fn meter_after<'m>(&'m self, run: &Run, unstopped: &'m Meter) -> &'m Meter {
        if run.request.retention == Retention::Apply { self.site.meter } else { unstopped }
    }

    /// The changes that take effect on the host automatically once they are applied.
    pub(super) fn acts_on_host(
        &self,
        run: &Run,
        landed: &Landed,
        changes: &ChangeSummary,
    ) -> avfs_vault::Result<Vec<RunsOnHost>> {
        let vault = self.site.vault;
        let Some(version) = landed.version() else { return Ok(Vec::new()) };
        let root = root_of_either(&require_version(&*vault.read()?, &version)?)?;
        let unstopped = Meter::default();
        let meter = self.meter_after(run, &unstopped);
        called_out(vault, &root, self.site.bound.as_deref(), &changes.changes, meter)
    }

    pub(super) fn note_landing(&self, run: &mut Run, landed: &LandedRun) {
        match &landed.landed {
            Landed::Nothing | Landed::Advanced { .. } => {}
            Landed::Rebased { .. } => run.note(
                "fork.rebased",
                format!("fork {} has moved since; the changes were rebased onto its new head", run.fork),
            ),
            Landed::Diverted { fork, paths, .. } => {
                let why = match paths.first() {
                    Some(path) => format!("{path} was also changed by others"),
                    None => format!("fork {} was deleted", run.fork),
                };
                run.note("fork.diverted", format!("{why}: the changes are on fork {fork}"));
            }
        }
    }

    /// Notes that another process changed the lower directory during the run, so that the version may differ
    /// from what the command saw. Detects changes found by the concurrent scan, and changes to paths that the
    /// run touched.
    pub(super) fn look_at_host(
        &self,
        run: &mut Run,
        ended: &Ended<'_>,
        before: &Before,
        changes: &Changes,
    ) -> avfs_vault::Result<()> {
        let (dir, tree) = match ended.run_base {
            RunBase::Live(dir) | RunBase::Touched(dir) => (dir.as_path(), &before.root.tree),
            RunBase::Stacked { stack, .. } => match stack.host_dir() {
                Some(host) => host,
                None => return Ok(()),
            },
            RunBase::Copied { .. } => return Ok(()),
        };
        let is_changed = ended.scan_met_change || {
            let pages = FreshPages::new(self.site.vault);
            HostLook::new(self.site.vault, &pages, tree, dir, ended.launched_at)?.is_changed(changes)?
        };
        if is_changed {
            run.note(
                "host.changed",
                format!(
                    "{} was changed by others during the run; review the changes carefully",
                    dir.display()
                ),
            );
        }
        Ok(())
    }

    /// Notes that the directory changed since a fork was created or last synced.
    pub(super) fn note_behind(
        &self,
        run: &mut Run,
        look: Option<LookBeside<'_>>,
        changes: &ChangeSummary,
    ) -> avfs_vault::Result<()> {
        let ForkChoice::Persistent { name, .. } = &run.request.fork else { return Ok(()) };
        let Some(behind) = look.and_then(LookBeside::wait) else { return Ok(()) };
        if behind.is_behind(self.site, changes)? {
            let text = format!("the directory changed since fork {name} was created or last synced");
            let remedy = format!("sync {name}");
            run.notes.push(Note::new("fork.behind", text).with_remedy("merge its changes with", remedy));
        }
        Ok(())
    }

    /// Keeps the upper as the topmost layer for the next run on the fork.
    pub(super) fn keep_layer(
        &self,
        session: &MountSession,
        ended: &Ended<'_>,
        landed: &LandedRun,
        left_out: &[LeftOut],
        size: Footprint,
        links: &WrittenLinks,
    ) -> avfs_vault::transfer::Result<()> {
        let (RunBase::Stacked { stack, .. }, Landed::Advanced { version }) = (ended.run_base, &landed.landed)
        else {
            return Ok(());
        };
        let site = self.site;
        let root = {
            let reader = site.vault.read()?;
            full_root_of(&*reader, &require_version(&*reader, version)?)?
        };
        match ended.upper.memory() {
            None => {
                let left = (left_out, links);
                site.layers.keep_upper(stack, &session.upper_dir(), left, size, &root).map(drop)
            }
            // The next run scans the directory, and writes the layer if it can use the directory again.
            Some(_) if stack.host_dir().is_some() => Ok(()),
            // Memory is freed with the run: the layer is written from the content in the vault.
            Some(_) => site.vault.stack_over(stack, &root, &site.layers, site.meter),
        }
    }

    /// Notes that the scratch is full: the command only sees "no space left on device".
    pub(super) fn note_room(&self, run: &mut Run, ended: &Ended<'_>) {
        let full = |fs: rustix::fs::StatVfs| fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0);
        match (ended.upper.memory(), ended.scratch_place) {
            (Some(memory), Scratch::Memory { size_bytes, .. }) => {
                let Ok(fs) = rustix::fs::fstatvfs(memory) else { return };
                let limits = run.request.limits;
                // At its limit: a scratch elsewhere would have the same limit.
                let bound = match (fs.f_bavail == 0, fs.f_favail == 0) {
                    (true, _) if limits.disk == Some(size_bytes) => Some(LimitKind::Disk),
                    (_, true) if limits.files.is_some() => Some(LimitKind::Files),
                    (true | false, true | false) => None,
                };
                if let Some((kind, value)) = bound.and_then(|kind| Some((kind, limits.get(kind)?))) {
                    let (option, value) = (kind.option(), kind.show(value));
                    run.note("limit.reached", format!("the limit --{option} {value} was used up"));
                } else if full(fs) {
                    let size = avfs_types::show_bytes_size(size_bytes);
                    run.note(
                        "scratch.full",
                        format!("the scratch in memory ({size}) was full; run it again with: --scratch disk"),
                    );
                }
            }
            (None, _) | (Some(_), Scratch::Disk) => {
                if rustix::fs::statvfs(self.site.cache_dir.as_path()).is_ok_and(full) {
                    let dir = self.site.cache_dir.display();
                    self.site.layers.account().note_disk_full();
                    run.note("scratch.full", format!("the file system of {dir} is full; free some space"));
                }
            }
        }
    }

    /// Notes limits that were reached without stopping the command: it may have failed or done less because of them.
    pub(super) fn note_limits(&self, run: &mut Run, completion: &Completion) {
        for kind in &completion.limits_reached {
            let Some(value) = run.request.limits.get(*kind) else { continue };
            let value_text = kind.show(value);
            let text = match kind {
                LimitKind::Memory => {
                    format!("a process was killed because it exceeded --memory {value_text}")
                }
                LimitKind::Pids => {
                    format!("the limit of {value_text} processes was reached (--pids)")
                }
                LimitKind::Disk | LimitKind::Files | LimitKind::Cpus | LimitKind::FileSize => {
                    format!("the command {}, but ended before it was stopped", kind.exceeded(value))
                }
            };
            run.note("limit.reached", text);
        }
        // These mechanisms count no refusals.
        let is_inexact = |limit: &&EnforcedLimit| {
            limit.kind == LimitKind::Pids && [Mechanism::Rlimit, Mechanism::PidMax].contains(&limit.mechanism)
        };
        let has_failed =
            completion.exit != Exit::Code(0) && !completion.timed_out && completion.stopped_by.is_none();
        if has_failed && let Some(limit) = completion.limits.iter().find(is_inexact) {
            let value = limit.kind.show(limit.value);
            let text = format!(
                "the command failed: it may have met the limit of {value} processes (--pids), which is not counted here"
            );
            run.note("limit.reached", text);
        }
    }

    /// The number of paths written to the host directory, if `--apply` was given.
    pub(super) fn apply_if_asked(
        &self,
        run: &mut Run,
        completion: &Completion,
        record: &RunRecord,
        landed: &Landed,
    ) -> Step<Option<u64>> {
        let Some(dir) = self.site.bound.as_deref().filter(|_| run.request.retention == Retention::Apply)
        else {
            return Ok(None);
        };
        if landed.version().is_none() {
            return Ok(None);
        }
        if completion.exit != Exit::Code(0) || completion.timed_out || completion.stopped_by.is_some() {
            run.note(
                "apply.skipped",
                "the command failed, so nothing was written to the directory".to_owned(),
            );
            return Ok(None);
        }
        let not_applied =
            |source| ExecuteError::NotApplied { id: record.id.clone(), source: Box::new(source) };
        let subject = {
            let reader = self.site.vault.read()?;
            Subject::of_run(&*reader, record)?
        };
        let options = ApplyOptions {
            filter: &Filter::default(),
            keep_seconds: self.site.expires_seconds,
            set_ids: SetIds::Stripped,
            trial: Trial::Real,
            meter: self.site.meter,
        };
        // A signal stops it until the first name changes.
        let interrupted = |signal| ExecuteError::ApplyInterrupted { id: record.id.clone(), signal };
        if let Some(signal) = self.launcher.asked_to_end() {
            return Err(interrupted(signal));
        }
        let applied = apply(self.site.vault, &subject, dir, &options);
        let applied = applied.map_err(|error| match (&error, self.site.meter.stopped_by()) {
            (ApplyError::Interrupted, Some(signal)) => interrupted(signal),
            _ => not_applied(error),
        })?;
        for of in &applied.inherited {
            run.note("apply.inherited", of.text());
        }
        for dir in &applied.kept_dirs {
            run.note(
                "apply.kept_dir",
                format!("{dir} was not removed: it contains files that are not versioned"),
            );
        }
        for file in &applied.stripped {
            let text = format!("{file} was applied without its setuid and setgid bits");
            let remedy = format!("apply --keep-setid run:{}", run.id);
            run.notes.push(Note::new("apply.set_ids_stripped", text).with_remedy("keep them with", remedy));
        }
        let mut counted = 0_u64;
        for change in &applied.changes {
            counted += u64::from(change?.kind != ChangeKind::Time);
        }
        Ok(Some(counted.saturating_sub(applied.already)))
    }
}

pub(super) fn enforcement(
    run: &Run,
    run_base: &RunBase,
    scratch_place: Scratch,
    completion: &Completion,
) -> Enforcement {
    let (backend, base) = match run_base {
        RunBase::Live(_) => (Backend::Overlay, BaseUsed::Live),
        RunBase::Touched(_) => (Backend::Overlay, BaseUsed::Touched),
        RunBase::Stacked { stack, .. } => (
            Backend::Overlay,
            match stack.made {
                Made::Reused => BaseUsed::Reused,
                Made::Layered => BaseUsed::Layered,
                Made::Materialized => BaseUsed::Materialized,
                Made::OverHost => BaseUsed::Live,
            },
        ),
        RunBase::Copied { .. } => (Backend::Copy, BaseUsed::Materialized),
    };
    Enforcement {
        backend,
        confined: completion.confined,
        limits: completion.limits.clone(),
        base,
        net: run.request.net.clone(),
        clock: clock_held(&run.request),
        scratch: scratch_place,
        degraded: run.degraded.clone(),
    }
}
