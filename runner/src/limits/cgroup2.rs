//! The cgroup v2 hierarchy: finds a place where a group with controllers can be created, and sets its limits.
//!
//! A group other than the root that contains processes cannot delegate controllers to its children. So the new group
//! is a sibling of ours, not a child, unless we are alone in our group and can move out of it.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use avfs_request::LimitKind;

use super::choose::Controller;
use super::group::{Group, GroupError, write};
use super::hierarchy::Unified;

/// In microseconds: the period of the processor quota.
pub const CPU_PERIOD: u64 = 100_000;

/// A group in which children can be created, and their controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlace {
    pub dir: PathBuf,
    pub offered: BTreeSet<Controller>,
    /// This process is the only one in the group, and has to leave it first.
    pub step_aside: bool,
}

/// The state of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    dir: PathBuf,
    /// Children can be created, and processes moved.
    writable: bool,
    is_root: bool,
    /// Controllers that are enabled for its children.
    enabled: BTreeSet<Controller>,
    /// Controllers that could be enabled for its children.
    available: BTreeSet<Controller>,
    /// The processes directly in it.
    processes: Processes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Processes {
    #[default]
    None,
    OnlyUs,
    Others,
}

/// The nearest group that offers the most of the wanted controllers.
#[must_use]
pub fn place(unified: &Unified, wanted: &BTreeSet<Controller>) -> Option<GroupPlace> {
    let within = unified.own.ancestors().take_while(|dir| dir.starts_with(&unified.top));
    best(within.map(Seen::look), wanted)
}

fn best(groups: impl Iterator<Item = Seen>, wanted: &BTreeSet<Controller>) -> Option<GroupPlace> {
    let mut best: Option<GroupPlace> = None;
    for group in groups.filter(|group| group.writable) {
        let (can_enable, step_aside) = match (group.is_root, group.processes) {
            (true, _) | (false, Processes::None) => (true, false),
            (false, Processes::OnlyUs) => (true, true),
            (false, Processes::Others) => (false, false),
        };
        let given = if can_enable { &group.available | &group.enabled } else { group.enabled };
        let offered = wanted & &given;
        if offered.len() > best.as_ref().map_or(0, |best| best.offered.len()) {
            best = Some(GroupPlace { dir: group.dir, offered, step_aside });
        }
    }
    best
}

impl Seen {
    fn look(dir: &Path) -> Self {
        let may_write =
            |name: &str| accessat(CWD, dir.join(name), Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        let kind = text("cgroup.type");
        let processes = text("cgroup.procs");
        let us = std::process::id().to_string();
        Self {
            dir: dir.to_owned(),
            // A threaded group does not take whole processes.
            writable: ["", "cgroup.procs", "cgroup.subtree_control"].into_iter().all(may_write)
                && matches!(kind.trim(), "" | "domain"),
            is_root: !dir.join("cgroup.type").exists(),
            enabled: controllers(&text("cgroup.subtree_control")),
            available: controllers(&text("cgroup.controllers")),
            processes: match processes.lines().next() {
                None => Processes::None,
                Some(_) if processes.lines().all(|line| line == us) => Processes::OnlyUs,
                Some(_) => Processes::Others,
            },
        }
    }
}

fn controllers(text: &str) -> BTreeSet<Controller> {
    let words: BTreeSet<&str> = text.split_whitespace().collect();
    let all = [Controller::Memory, Controller::Cpu, Controller::Pids];
    all.into_iter().filter(|controller| words.contains(controller.word())).collect()
}

/// The group of a run, and the group for this process if it had to move.
#[derive(Debug)]
pub struct UnifiedGroup {
    pub group: Group,
    /// This process stays in it until it exits, so it cannot be removed here; the next run or the owner of the parent
    /// group removes it.
    _aside: Option<ManuallyDrop<Group>>,
}

impl UnifiedGroup {
    pub fn make(place: &GroupPlace) -> Result<Self, GroupError> {
        let aside = if place.step_aside {
            let aside = Group::make(&place.dir)?;
            aside.set("cgroup.procs", &std::process::id().to_string())?;
            Some(ManuallyDrop::new(aside))
        } else {
            None
        };
        let control = place.dir.join("cgroup.subtree_control");
        let enabled = controllers(&std::fs::read_to_string(&control).unwrap_or_default());
        for controller in place.offered.difference(&enabled) {
            write(&control, &format!("+{}", controller.word()))?;
        }
        Ok(Self { group: Group::make(&place.dir)?, _aside: aside })
    }

    pub fn limit(&self, kind: LimitKind, value: u64) -> Result<(), GroupError> {
        let group = &self.group;
        match kind {
            LimitKind::Memory => {
                group.set("memory.max", &value.to_string())?;
                // Swapped-out memory counts as used too.
                if group.has("memory.swap.max") { group.set("memory.swap.max", "0") } else { Ok(()) }
            }
            LimitKind::Cpus => group.set("cpu.max", &format!("{} {CPU_PERIOD}", quota(value))),
            LimitKind::Pids => group.set("pids.max", &with_init(value).to_string()),
            LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => Ok(()),
        }
    }

    /// How often the kernel refused or killed because of a limit.
    #[must_use]
    pub fn events(&self, kind: LimitKind) -> u64 {
        match kind {
            LimitKind::Memory => self.group.count("memory.events", "oom_kill "),
            LimitKind::Pids => self.group.count("pids.events", "max "),
            LimitKind::Cpus | LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => 0,
        }
    }
}

/// The quota in microseconds per period.
#[must_use]
pub fn quota(thousandths: u64) -> u64 {
    /// The kernel's minimum.
    const QUOTA_MIN: u64 = 1_000;
    (thousandths.saturating_mul(CPU_PERIOD) / 1000).max(QUOTA_MIN)
}

/// Adds one for init, which does not count as a process of the command.
#[must_use]
pub fn with_init(pids: u64) -> u64 {
    pids.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(controllers: &[Controller]) -> BTreeSet<Controller> {
        controllers.iter().copied().collect()
    }

    #[test]
    fn the_group_with_the_most_controllers_is_chosen() {
        use Controller::{Cpu, Memory, Pids};
        let all = set(&[Memory, Cpu, Pids]);
        let own = Seen {
            dir: "/g/slice/own".into(),
            writable: true,
            available: all.clone(),
            processes: Processes::Others,
            ..Seen::default()
        };
        let slice = Seen {
            dir: "/g/slice".into(),
            writable: true,
            enabled: set(&[Memory, Pids]),
            available: set(&[Memory, Pids]),
            processes: Processes::None,
            ..Seen::default()
        };
        let root = Seen {
            dir: "/g".into(),
            writable: true,
            is_root: true,
            available: all.clone(),
            processes: Processes::Others,
            ..Seen::default()
        };
        let alone = Seen { processes: Processes::OnlyUs, ..own.clone() };
        let closed = |seen: &Seen| Seen { writable: false, ..seen.clone() };
        let table = [
            ("among others: a sibling", vec![own.clone(), slice.clone()], Some(("/g/slice", 2, false))),
            (
                "more controllers further up",
                vec![own.clone(), slice.clone(), root.clone()],
                Some(("/g", 3, false)),
            ),
            ("alone: a child", vec![alone, slice.clone()], Some(("/g/slice/own", 3, true))),
            ("root", vec![root.clone()], Some(("/g", 3, false))),
            ("not ours", vec![closed(&own), closed(&slice), closed(&root)], None),
            ("only ours, with others in it", vec![own, closed(&slice)], None),
        ];
        for (what, groups, expected) in table {
            let found = best(groups.into_iter(), &all);
            let found = found.as_ref().map(|it| (it.dir.to_str().unwrap(), it.offered.len(), it.step_aside));
            assert_eq!(found, expected, "{what}");
        }
        assert_eq!(best([root].into_iter(), &BTreeSet::new()), None, "a group without controllers");
    }

    #[test]
    fn processors_are_converted_to_a_quota() {
        assert_eq!(quota(1500), 150_000);
        assert_eq!(quota(1), 1_000);
    }
}
