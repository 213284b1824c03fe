//! Enforces a command's limits: one mechanism for each, chosen before the first process is created.
//!
//! A limit that is not set costs no lookup and no setup.

mod cgroup1;
mod cgroup2;
mod choose;
mod error;
mod footprint;
mod group;
mod hierarchy;
mod inside;
mod processes;
mod watch;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use avfs_engine::{Exit, SandboxPlan, UpperPlace, ViewStep, WorkspaceMount};
use avfs_hostfs::beneath;
use avfs_request::{EnforcedLimit, LimitKind, Limits, Mechanism};

use crate::sys::Pid;

pub use error::LimitError;
pub use inside::bound_file_size;
pub use watch::Watch;

use cgroup1::OldGroups;
use cgroup2::UnifiedGroup;
use choose::{Caller, Controller, Offer, Written};
use footprint::{Enough, is_there, measure};
use group::GroupError;
use hierarchy::Hierarchies;
use processes::Processes;
use watch::{DiskLook, Filled, Looks};

/// A pid namespace has its own pid_max since this kernel version. Before, pid_max is global, and writing it would
/// affect the whole host.
const PID_MAX_KERNEL_MIN: (u32, u32) = (6, 14);
/// The kernel assigns pids below this only once, so they do not count as available.
const PIDS_RESERVED: u64 = 300;

/// The upper in a scratch on disk.
const UPPER: &str = "upper";

/// Everything that enforces the limits of one sandbox; removed on drop.
pub struct Keeper {
    enforced: Vec<EnforcedLimit>,
    unified: Option<UnifiedGroup>,
    old: OldGroups,
    disk: Option<DiskLook>,
}

/// The two cgroup versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupKind {
    Unified,
    Old,
}

/// The result of enforcing the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsReport {
    pub limits: Vec<EnforcedLimit>,
    /// How the command ended; as if it was killed, if it ended with too much written.
    pub exit: Exit,
    /// The limit that the command was stopped for.
    pub stopped_by: Option<LimitKind>,
    /// Limits that were reached without stopping the command.
    pub reached: Vec<LimitKind>,
}

/// How the command ended, as far as it shows the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub exit: Exit,
    pub timed_out: bool,
    /// The limit that the watch reported as exceeded.
    pub exceeded: Option<LimitKind>,
}

impl Ended {
    /// The limit for which the watch had the command killed. A command that exited just before was not stopped.
    fn stopped_by_watch(&self) -> Option<LimitKind> {
        self.exceeded.filter(|_| ended_by(self.exit, libc::SIGKILL))
    }
}

impl Keeper {
    /// Chooses the mechanisms and sets up what does not need a process yet.
    pub fn prepare(plan: &SandboxPlan) -> Result<Self, LimitError> {
        let mut keeper = Self { enforced: Vec::new(), unified: None, old: OldGroups::default(), disk: None };
        let wanted: BTreeSet<Controller> =
            plan.limits.set().filter_map(|(kind, _)| Controller::of(kind)).collect();
        if plan.limits.set().next().is_none() {
            return Ok(keeper);
        }
        let (hierarchies, place) = match wanted.is_empty() {
            true => (Hierarchies::default(), None),
            false => {
                let hierarchies = Hierarchies::look();
                let place = hierarchies.unified.as_ref().and_then(|unified| cgroup2::place(unified, &wanted));
                (hierarchies, place)
            }
        };
        let (written, root) = written(&plan.view);
        let mut offer = Offer {
            cgroup2: place.as_ref().map(|place| place.offered.clone()).unwrap_or_default(),
            cgroup1: cgroup1::offered(&hierarchies.old),
            caller: if rustix::process::geteuid().is_root() { Caller::Root } else { Caller::Other },
            pid_max: has_proc(&plan.view) && avfs_hostfs::machine::kernel_version() >= PID_MAX_KERNEL_MIN,
            processes_seen: has_proc(&plan.view),
            written,
        };
        loop {
            keeper.enforced = choose::choose(&plan.limits, &offer)?;
            let Err((refused, error)) = keeper.make_groups(place.as_ref(), &hierarchies) else { break };
            // The directory looked writable but is not: use the next mechanism, which the result reports.
            tracing::debug!(%error, "cannot create a control group");
            match refused {
                GroupKind::Unified => offer.cgroup2.clear(),
                GroupKind::Old => offer.cgroup1.clear(),
            }
        }
        keeper.disk = match root {
            Some(root) => keeper.disk_look(root, &plan.view)?,
            None => None,
        };
        Ok(keeper)
    }

    fn by(&self, mechanism: Mechanism) -> impl Iterator<Item = EnforcedLimit> {
        self.enforced.iter().copied().filter(move |limit| limit.mechanism == mechanism)
    }

    fn value(&self, kind: LimitKind, mechanism: Mechanism) -> Option<u64> {
        self.by(mechanism).find(|limit| limit.kind == kind).map(|limit| limit.value)
    }

    fn make_groups(
        &mut self,
        place: Option<&cgroup2::GroupPlace>,
        hierarchies: &Hierarchies,
    ) -> Result<(), (GroupKind, GroupError)> {
        (self.unified, self.old) = (None, OldGroups::default());
        let is_wanted = self.by(Mechanism::Cgroup2).next().is_some();
        if let Some(place) = place.filter(|_| is_wanted) {
            let failed = |error| (GroupKind::Unified, error);
            let unified = UnifiedGroup::make(place).map_err(failed)?;
            for limit in self.by(Mechanism::Cgroup2) {
                unified.limit(limit.kind, limit.value).map_err(failed)?;
            }
            self.unified = Some(unified);
        }
        let old: Vec<EnforcedLimit> = self.by(Mechanism::Cgroup1).collect();
        for limit in old {
            let set = self.old.limit(&hierarchies.old, limit.kind, limit.value);
            set.map_err(|error| (GroupKind::Old, error))?;
        }
        Ok(())
    }

    fn disk_look(&self, root: Root, view: &[ViewStep]) -> Result<Option<DiskLook>, LimitError> {
        let (bytes, files) =
            (self.value(LimitKind::Disk, Mechanism::Watch), self.value(LimitKind::Files, Mechanism::Watch));
        if bytes.is_none() && files.is_none() {
            return Ok(None);
        }
        let Root { dir, workspace } = root;
        let opened =
            beneath::open_root(&dir).map_err(|source| LimitError::Root { path: dir.clone(), source })?;
        let everything = Enough { bytes: u64::MAX, files: u64::MAX };
        let before = measure(&opened, everything, &AtomicBool::new(false)).unwrap_or_default();
        let made = view.iter().filter_map(made_path).filter_map(|path| path.strip_prefix(&workspace).ok());
        let mounted_later = made
            .filter(|path| !path.as_os_str().is_empty())
            .map(Path::to_owned)
            .filter(|path| !is_there(&opened, path))
            .collect();
        let filled = Filled::look(opened.as_fd());
        Ok(Some(DiskLook { root: opened, bytes, files, before, mounted_later, filled }))
    }

    /// The highest pid inside, if pid_max limits the number of processes.
    #[must_use]
    pub fn pid_max(&self) -> Option<u64> {
        let pids = self.value(LimitKind::Pids, Mechanism::PidMax)?;
        Some(pids.saturating_add(PIDS_RESERVED + 1))
    }

    /// True if processor affinity is used as a limit.
    #[must_use]
    pub fn pins_processors(&self) -> bool {
        self.by(Mechanism::Affinity).next().is_some()
    }

    /// The file size limit in bytes, which a command sets on itself after all larger files have been created.
    /// `narrower` are the limits of that command, which can have no other one.
    pub fn file_size(&self, narrower: &Limits) -> Result<Option<u64>, LimitError> {
        if let Some((kind, value)) = narrower.set().find(|(kind, _)| *kind != LimitKind::FileSize) {
            return Err(LimitError::Unenforceable { kind, value });
        }
        let of_all = self.value(LimitKind::FileSize, Mechanism::Rlimit);
        Ok(of_all.into_iter().chain(narrower.file_size).min().map(inside::file_size))
    }

    /// True if init must send its /proc to the supervisor.
    #[must_use]
    pub fn wants_processes(&self) -> bool {
        self.by(Mechanism::Watch).next().is_some()
    }

    #[must_use]
    pub fn keeps_anything(&self) -> bool {
        !self.enforced.is_empty()
    }

    /// Applies the limits to init, before it does anything.
    pub fn take_in(&self, init: Pid) -> Result<(), LimitError> {
        if let Some(unified) = &self.unified {
            unified.group.take_in(init)?;
        }
        self.old.take_in(init)?;
        for limit in &self.enforced {
            inside::bound(init, *limit)
                .map_err(|errno| LimitError::Process { kind: limit.kind, source: errno.into() })?;
        }
        Ok(())
    }

    /// Starts the watch, for limits that no kernel mechanism enforces. `beyond` is called when one is exceeded.
    pub fn watch(
        &mut self,
        proc: Option<OwnedFd>,
        beyond: impl FnOnce(LimitKind) + Send + 'static,
    ) -> std::io::Result<Option<Watch>> {
        if !self.wants_processes() {
            return Ok(None);
        }
        let memory = self.value(LimitKind::Memory, Mechanism::Watch);
        let disk = self.disk.take().map(DiskLook::with_mount_points);
        let looks = Looks { memory, disk, processes: proc.map(Processes::new) };
        Watch::start(looks, beyond).map(Some)
    }

    /// Reports how the limits were enforced, after the command has ended. `looks` are those of the watch after all
    /// processes have ended.
    #[must_use]
    pub fn settle(&self, ended: Ended, looks: Option<Looks>) -> LimitsReport {
        let mut stopped_by = ended.stopped_by_watch();
        let mut reached = Vec::new();
        for limit in &self.enforced {
            let events = match limit.mechanism {
                Mechanism::Cgroup2 => self.unified.as_ref().map_or(0, |unified| unified.events(limit.kind)),
                Mechanism::Cgroup1 => self.old.events(limit.kind),
                Mechanism::Rlimit
                | Mechanism::PidMax
                | Mechanism::Tmpfs
                | Mechanism::Affinity
                | Mechanism::Watch => 0,
            };
            match verdict(*limit, events, &ended) {
                LimitOutcome::Kept => {}
                LimitOutcome::Reached => reached.push(limit.kind),
                LimitOutcome::Stopped => stopped_by = stopped_by.or(Some(limit.kind)),
            }
        }
        let mut exit = ended.exit;
        if stopped_by.is_none()
            && let Some(kind) = looks.and_then(|looks| looks.exceeded_in_the_end())
        {
            // What the command left decides, not whether it was noticed in time.
            reached.retain(|it| *it != kind);
            if ended.timed_out {
                reached.push(kind);
            } else {
                stopped_by = Some(kind);
                exit = Exit::Signal(libc::SIGKILL);
            }
        }
        LimitsReport { limits: self.enforced.clone(), exit, stopped_by, reached }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitOutcome {
    Kept,
    /// A process hit the limit, and the command continued.
    Reached,
    Stopped,
}

/// How a limit contributed to the end of the command.
fn verdict(limit: EnforcedLimit, events: u64, ended: &Ended) -> LimitOutcome {
    if ended.exceeded == Some(limit.kind) {
        return if ended.stopped_by_watch().is_some() {
            LimitOutcome::Stopped
        } else {
            LimitOutcome::Reached
        };
    }
    match limit.kind {
        // The kernel counts the processes it has killed; a shell reports by its exit status that its command was.
        LimitKind::Memory if events > 0 && !ended.timed_out && ended_by(ended.exit, libc::SIGKILL) => {
            LimitOutcome::Stopped
        }
        LimitKind::Memory | LimitKind::Pids if events > 0 => LimitOutcome::Reached,
        LimitKind::FileSize if ended_by(ended.exit, libc::SIGXFSZ) => LimitOutcome::Stopped,
        LimitKind::Memory
        | LimitKind::Cpus
        | LimitKind::Pids
        | LimitKind::Disk
        | LimitKind::Files
        | LimitKind::FileSize => LimitOutcome::Kept,
    }
}

fn ended_by(exit: Exit, signal: i32) -> bool {
    match exit {
        Exit::Signal(by) => by == signal,
        Exit::Code(code) => i32::from(code) == i32::from(avfs_types::exit_code::RUN_SIGNALLED) + signal,
    }
}

/// The directory in which writes to the workspace show up: an upper, or a copy of the workspace.
struct Root {
    dir: PathBuf,
    /// Its path in the sandbox.
    workspace: PathBuf,
}

/// The path that a step creates if it does not exist.
fn made_path(step: &ViewStep) -> Option<&Path> {
    match step {
        ViewStep::Dir { path, .. }
        | ViewStep::Symlink { path, .. }
        | ViewStep::File { path, .. }
        | ViewStep::Bind { path, .. }
        | ViewStep::Overlaid { path, .. }
        | ViewStep::Tmpfs { path, .. }
        | ViewStep::MountPoint { path }
        | ViewStep::Secrets { path }
        | ViewStep::Proc { path }
        | ViewStep::Devices { path } => Some(path),
        ViewStep::Workspace(_) | ViewStep::Hide { .. } | ViewStep::Pin { .. } | ViewStep::Seal { .. } => None,
    }
}

fn written(view: &[ViewStep]) -> (Written, Option<Root>) {
    let workspace =
        view.iter().find_map(|step| if let ViewStep::Workspace(it) = step { Some(it) } else { None });
    match workspace {
        Some(WorkspaceMount::Overlay { path, upper: UpperPlace::Disk { dir }, .. }) => {
            (Written::Disk, Some(Root { dir: dir.join(UPPER), workspace: path.clone() }))
        }
        Some(WorkspaceMount::Overlay { upper: UpperPlace::Memory { .. }, .. }) => (Written::Memory, None),
        Some(WorkspaceMount::Copy { path, source }) => {
            (Written::Disk, Some(Root { dir: source.clone(), workspace: path.clone() }))
        }
        Some(WorkspaceMount::ReadOnly { .. }) | None => (Written::Nowhere, None),
    }
}

fn has_proc(view: &[ViewStep]) -> bool {
    view.iter().any(|step| matches!(step, ViewStep::Proc { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reported_as_stopping_only_if_it_ended_the_command() {
        let (kill, code) = (Exit::Signal(libc::SIGKILL), Exit::Code);
        let table = [
            (LimitKind::Memory, 1, kill, false, LimitOutcome::Stopped),
            (LimitKind::Memory, 1, code(137), false, LimitOutcome::Stopped),
            (LimitKind::Memory, 1, code(0), false, LimitOutcome::Reached),
            (LimitKind::Memory, 1, kill, true, LimitOutcome::Reached),
            (LimitKind::Memory, 0, kill, false, LimitOutcome::Kept),
            (LimitKind::Memory, 0, code(137), false, LimitOutcome::Kept),
            (LimitKind::Pids, 3, code(1), false, LimitOutcome::Reached),
            (LimitKind::Pids, 3, kill, false, LimitOutcome::Reached),
            (LimitKind::FileSize, 0, Exit::Signal(libc::SIGXFSZ), false, LimitOutcome::Stopped),
            (LimitKind::FileSize, 0, code(153), false, LimitOutcome::Stopped),
            (LimitKind::FileSize, 0, kill, false, LimitOutcome::Kept),
            (LimitKind::Cpus, 0, kill, false, LimitOutcome::Kept),
        ];
        for (kind, events, exit, timed_out, expected) in table {
            let limit = EnforcedLimit { kind, value: 1, mechanism: Mechanism::Cgroup2 };
            let ended = Ended { exit, timed_out, exceeded: None };
            assert_eq!(verdict(limit, events, &ended), expected, "{kind} {events} {exit:?}");
        }
        let watched = [
            (LimitKind::Memory, kill, LimitOutcome::Stopped),
            (LimitKind::Disk, code(137), LimitOutcome::Stopped),
            (LimitKind::Memory, code(0), LimitOutcome::Reached),
            (LimitKind::Files, code(1), LimitOutcome::Reached),
            (LimitKind::Disk, Exit::Signal(libc::SIGTERM), LimitOutcome::Reached),
        ];
        for (kind, exit, expected) in watched {
            let limit = EnforcedLimit { kind, value: 1, mechanism: Mechanism::Watch };
            let ended = Ended { exit, timed_out: false, exceeded: Some(kind) };
            assert_eq!(verdict(limit, 0, &ended), expected, "{kind} {exit:?}");
            let stopped_by = ended.stopped_by_watch();
            assert_eq!(
                stopped_by,
                Some(kind).filter(|_| expected == LimitOutcome::Stopped),
                "{kind} {exit:?}"
            );
        }
    }
}
