//! What is done once a run is kept: what changed is told, the upper becomes a layer, the changes are applied.
//!
//! Nothing here can take back that the run is in the vault.

use crate::backend::RunRecord;
use crate::ids::{ForkName, VersionId};
use crate::vault::capture::LeftOut;
use crate::vault::diff::ChangeKind;
use crate::vault::gc::Trial;
use crate::vault::layers::{Footprint, Made};
use crate::vault::require_version;
use crate::vault::run::{Landed, LandedRun};
use crate::vault::set_ids::SetIds;
use crate::vault::version::{full_root_of, root_of};

use super::apply::{ApplyOptions, Filter, Subject, apply};
use super::change_report::{ChangeReport, ChangeSummaryService};
use super::change_summary::ChangeSummary;
use super::choices::Retention;
use super::conclude::Before;
use super::error::ExecuteError;
use super::launcher::{Completion, Exit, Launcher};
use super::limits::LimitKind;
use super::mount_session::MountSession;
use super::proxy::{Ended, Outcome, ProxyRuntime};
use super::reproducible::clock_held;
use super::result::{Backend, BaseUsed, Enforcement};
use super::room::Scratch;
use super::run::Run;
use super::workspace_service::{Ground, import_options};

impl<L: Launcher> ProxyRuntime<'_, L> {
    /// What changed, as people are told.
    pub(super) fn changes(
        &self,
        run: &Run,
        before: Option<&Before>,
        landed: &LandedRun,
    ) -> crate::vault::Result<(ChangeSummary, Option<ChangeReport>)> {
        let (Some(before), Some(version)) = (before, landed.landed.version()) else {
            return Ok((ChangeSummary::default(), None));
        };
        let reader = self.site.vault.read()?;
        let root = |id: &VersionId| root_of(&require_version(&*reader, id)?);
        let from = match &landed.landed {
            // What others changed meanwhile is not this run's doing.
            Landed::Rebased { onto, .. } => root(onto)?,
            Landed::Nothing | Landed::Advanced { .. } | Landed::Diverted { .. } => before.root,
        };
        let service = ChangeSummaryService { reader: &*reader };
        crate::pause::point("changes");
        let summary = service.between(&from, &root(&version)?)?;
        let report = service.report(&summary, run.request.show)?;
        Ok((summary, report))
    }

    pub(super) fn note_landing(&self, run: &mut Run, landed: &LandedRun) {
        match &landed.landed {
            Landed::Nothing | Landed::Advanced { .. } => {}
            Landed::Rebased { .. } => run.note(
                "fork.rebased",
                format!("fork {} had moved meanwhile; the changes were made of its new head", run.fork),
            ),
            Landed::Diverted { fork, paths, .. } => {
                let why = match paths.first() {
                    Some(path) => format!("others changed {path} too"),
                    None => format!("fork {} was deleted", run.fork),
                };
                run.note("fork.diverted", format!("{why}: the changes are on fork {fork}"));
            }
        }
    }

    /// The host's directory lay beneath the command: if somebody changed it, what the command saw is not
    /// quite what the version says.
    pub(super) fn look_at_host(
        &self,
        run: &mut Run,
        ground: &Ground,
        before: &Before,
    ) -> crate::vault::Result<()> {
        let Ground::Live(dir) = ground else { return Ok(()) };
        let (root, _, _) = self.site.vault.survey(dir, &ForkName::main(), &import_options(self.site))?;
        if root.tree != before.root.tree {
            run.note(
                "host.changed",
                format!(
                    "{} was changed by others during the run; look at the changes with care",
                    dir.display()
                ),
            );
        }
        Ok(())
    }

    /// What was written becomes the topmost layer for the next run on the fork.
    pub(super) fn keep_layer(
        &self,
        session: &MountSession,
        ended: &Ended<'_>,
        landed: &LandedRun,
        left_out: &[LeftOut],
        size: Footprint,
    ) -> crate::vault::Result<()> {
        let (Ground::Stacked { stack, .. }, Landed::Advanced { version }) = (ended.ground, &landed.landed)
        else {
            return Ok(());
        };
        let site = self.site;
        let root = {
            let reader = site.vault.read()?;
            full_root_of(&*reader, &require_version(&*reader, version)?)?
        };
        match ended.completion.memory {
            None => site.layers.keep_upper(stack, &session.upper_dir(), left_out, size, &root).map(drop),
            // Memory goes with the run: the layer is written from what the vault has now.
            Some(_) => site.vault.stack(&root, &site.layers, site.meter).map(drop),
        }
    }

    /// A scratch that is full is told as such: the command has only seen "no space left on device".
    pub(super) fn note_room(&self, run: &mut Run, ended: &Ended<'_>) {
        let full = |fs: rustix::fs::StatVfs| fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0);
        match (&ended.completion.memory, ended.room) {
            (Some(memory), Scratch::Memory { size_bytes, .. }) => {
                let Ok(fs) = rustix::fs::fstatvfs(memory) else { return };
                let limits = run.request.limits;
                // At its limit: another scratch would have no more room.
                let bound = match (fs.f_bavail == 0, fs.f_favail == 0) {
                    (true, _) if limits.disk == Some(size_bytes) => Some(LimitKind::Disk),
                    (_, true) if limits.files.is_some() => Some(LimitKind::Files),
                    (true | false, true | false) => None,
                };
                if let Some((kind, value)) = bound.and_then(|kind| Some((kind, limits.get(kind)?))) {
                    let (option, value) = (kind.option(), kind.show(value));
                    run.note("limit.reached", format!("all of --{option} {value} was used up"));
                } else if full(fs) {
                    let size = super::units::show_bytes_size(size_bytes);
                    run.note(
                        "scratch.full",
                        format!("the scratch in memory ({size}) was full; run it again with: --scratch disk"),
                    );
                }
            }
            (None, _) | (Some(_), Scratch::Disk) => {
                if rustix::fs::statvfs(self.site.cache_dir.as_path()).is_ok_and(full) {
                    let dir = self.site.cache_dir.display();
                    run.note("scratch.full", format!("the file system of {dir} is full; free some space"));
                }
            }
        }
    }

    /// Limits that were felt without ending the command: it may have failed for them, or done less.
    pub(super) fn note_limits(&self, run: &mut Run, completion: &Completion) {
        for kind in &completion.limits_reached {
            let Some(value) = run.request.limits.get(*kind) else { continue };
            let value_text = kind.show(value);
            let text = match kind {
                LimitKind::Memory => {
                    format!("a process was killed for using more memory than --memory {value_text} leaves")
                }
                LimitKind::Pids => {
                    format!("there were {value_text} processes; more were refused (--pids)")
                }
                LimitKind::Disk | LimitKind::Files | LimitKind::Cpus | LimitKind::FileSize => {
                    format!("the command {}, and had ended by then", kind.exceeded(value))
                }
            };
            run.note("limit.reached", text);
        }
    }

    /// The number of paths that were written to the host's directory, if that was asked for.
    pub(super) fn apply_if_asked(
        &self,
        run: &mut Run,
        completion: &Completion,
        record: &RunRecord,
        landed: &Landed,
    ) -> Outcome<Option<u64>, L> {
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
            set_ids: SetIds::Stripped,
            trial: Trial::Real,
            meter: self.site.meter,
        };
        let applied = apply(self.site.vault, &subject, dir, &options).map_err(not_applied)?;
        for dir in &applied.kept_dirs {
            run.note(
                "apply.kept_dir",
                format!("{dir} was not removed: it holds files that are not versioned"),
            );
        }
        for file in &applied.stripped {
            run.note(
                "apply.set_ids_stripped",
                format!("{file} was applied without its setuid and setgid bits; keep them with: avfs apply --keep-setid"),
            );
        }
        let told = applied.changes.iter().filter(|change| change.kind != ChangeKind::Time).count() as u64;
        Ok(Some(told.saturating_sub(applied.already)))
    }
}

pub(super) fn enforcement(run: &Run, ground: &Ground, room: Scratch, completion: &Completion) -> Enforcement {
    let (backend, base) = match ground {
        Ground::Live(_) => (Backend::Overlay, BaseUsed::Live),
        Ground::Stacked { stack, .. } => (
            Backend::Overlay,
            match stack.made {
                Made::Reused => BaseUsed::Reused,
                Made::Layered => BaseUsed::Layered,
                Made::Materialized => BaseUsed::Materialized,
            },
        ),
        Ground::Copied { .. } => (Backend::Copy, BaseUsed::Materialized),
    };
    Enforcement {
        backend,
        confined: completion.confined,
        limits: completion.limits.clone(),
        base,
        net: run.request.net.clone(),
        clock: clock_held(&run.request),
        scratch: room,
        degraded: run.degraded.clone(),
    }
}
