//! cgroup v1 hierarchies, one for each controller: a group below our own in each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use avfs_request::LimitKind;

use super::cgroup2::{CPU_PERIOD, quota, with_init};
use super::choose::Controller;
use super::group::{Group, GroupError};

/// The controllers for which groups can be created.
#[must_use]
pub fn offered(old: &[(Controller, PathBuf)]) -> BTreeSet<Controller> {
    let writable = |dir: &Path| accessat(CWD, dir, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    old.iter().filter(|(_, dir)| writable(dir)).map(|(controller, _)| *controller).collect()
}

/// The groups of a run; two controllers of one hierarchy share a group.
#[derive(Debug, Default)]
pub struct OldGroups {
    groups: Vec<(PathBuf, Group)>,
    of: Vec<(Controller, usize)>,
}

impl OldGroups {
    pub fn limit(
        &mut self,
        old: &[(Controller, PathBuf)],
        kind: LimitKind,
        value: u64,
    ) -> Result<(), GroupError> {
        let place = old.iter().find(|(controller, _)| Controller::of(kind) == Some(*controller));
        let Some((controller, parent)) = place else { return Ok(()) };
        let group = self.group(*controller, parent)?;
        match kind {
            LimitKind::Memory => {
                group.set("memory.limit_in_bytes", &value.to_string())?;
                // Swapped-out memory counts as used too.
                let both = "memory.memsw.limit_in_bytes";
                if group.has(both) { group.set(both, &value.to_string()) } else { Ok(()) }
            }
            LimitKind::Cpus => {
                group.set("cpu.cfs_period_us", &CPU_PERIOD.to_string())?;
                group.set("cpu.cfs_quota_us", &quota(value).to_string())
            }
            LimitKind::Pids => group.set("pids.max", &with_init(value).to_string()),
            LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => Ok(()),
        }
    }

    fn group(&mut self, controller: Controller, parent: &Path) -> Result<&Group, GroupError> {
        let at = match self.groups.iter().position(|(dir, _)| dir == parent) {
            Some(at) => at,
            None => {
                self.groups.push((parent.to_owned(), Group::make(parent)?));
                self.groups.len() - 1
            }
        };
        self.of.push((controller, at));
        Ok(&self.groups[at].1)
    }

    pub fn take_in(&self, pid: crate::sys::Pid) -> Result<(), GroupError> {
        self.groups.iter().try_for_each(|(_, group)| group.take_in(pid))
    }

    /// How often the kernel refused or killed because of a limit.
    #[must_use]
    pub fn events(&self, kind: LimitKind) -> u64 {
        let of = self.of.iter().find(|(controller, _)| Controller::of(kind) == Some(*controller));
        let Some(group) = of.and_then(|(_, at)| self.groups.get(*at)).map(|(_, group)| group) else {
            return 0;
        };
        match kind {
            LimitKind::Memory => group.count("memory.oom_control", "oom_kill "),
            LimitKind::Pids => group.count("pids.events", "max "),
            LimitKind::Cpus | LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => 0,
        }
    }
}
