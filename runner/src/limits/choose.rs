//! Selects the mechanism for each limit, depending on what the host supports.
//!
//! Pure: reads nothing and sets nothing.

use std::collections::BTreeSet;

use avfs_request::{EnforcedLimit, LimitKind, Limits, Mechanism};

/// A cgroup controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    /// The kernel's name for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }

    /// The controller for this limit.
    #[must_use]
    pub const fn of(kind: LimitKind) -> Option<Self> {
        match kind {
            LimitKind::Memory => Some(Self::Memory),
            LimitKind::Cpus => Some(Self::Cpu),
            LimitKind::Pids => Some(Self::Pids),
            LimitKind::Disk | LimitKind::Files | LimitKind::FileSize => None,
        }
    }
}

/// Whether an rlimit binds the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// RLIMIT_NPROC does not apply to root.
    Root,
    Other,
}

/// Where the command's writes to the workspace go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Memory,
    Disk,
    Nowhere,
}

/// The mechanisms that this host supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub cgroup2: BTreeSet<Controller>,
    pub cgroup1: BTreeSet<Controller>,
    pub caller: Caller,
    /// The pid namespace has its own pid_max, and it can be set.
    pub pid_max: bool,
    /// The supervisor can inspect the command's processes.
    pub processes_seen: bool,
    pub written: Written,
}

/// A limit that no mechanism on this host can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unenforceable {
    pub kind: LimitKind,
    pub value: u64,
}

/// One mechanism for each limit that is set, the strongest available.
pub fn choose(limits: &Limits, offer: &Offer) -> Result<Vec<EnforcedLimit>, Unenforceable> {
    let chosen = limits.set().map(|(kind, value)| match mechanism(kind, value, offer) {
        Some(mechanism) => Ok(EnforcedLimit { kind, value, mechanism }),
        None => Err(Unenforceable { kind, value }),
    });
    chosen.collect()
}

fn mechanism(kind: LimitKind, value: u64, offer: &Offer) -> Option<Mechanism> {
    if let Some(controller) = Controller::of(kind) {
        if offer.cgroup2.contains(&controller) {
            return Some(Mechanism::Cgroup2);
        }
        if offer.cgroup1.contains(&controller) {
            return Some(Mechanism::Cgroup1);
        }
    }
    match kind {
        LimitKind::Memory => offer.processes_seen.then_some(Mechanism::Watch),
        LimitKind::Cpus => value.is_multiple_of(1000).then_some(Mechanism::Affinity),
        LimitKind::Pids => match offer.caller {
            Caller::Other => Some(Mechanism::Rlimit),
            Caller::Root => offer.pid_max.then_some(Mechanism::PidMax),
        },
        LimitKind::Disk | LimitKind::Files => Some(match offer.written {
            Written::Disk => Mechanism::Watch,
            Written::Memory | Written::Nowhere => Mechanism::Tmpfs,
        }),
        LimitKind::FileSize => Some(Mechanism::Rlimit),
    }
}

#[cfg(test)]
mod tests {
    use avfs_request::Cpus;

    use super::*;

    const ALL: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

    fn nothing() -> Offer {
        Offer {
            cgroup2: BTreeSet::new(),
            cgroup1: BTreeSet::new(),
            caller: Caller::Other,
            pid_max: true,
            processes_seen: true,
            written: Written::Disk,
        }
    }

    fn every(cpus: u64) -> Limits {
        Limits {
            memory: Some(1 << 30),
            cpus: Some(Cpus(cpus)),
            pids: Some(100),
            disk: Some(1 << 30),
            files: Some(1000),
            file_size: Some(1 << 20),
        }
    }

    fn words(limits: &Limits, offer: &Offer) -> String {
        match choose(limits, offer) {
            Ok(chosen) => chosen.iter().map(|limit| limit.mechanism.word()).collect::<Vec<_>>().join(" "),
            Err(lacking) => format!("no {}", lacking.kind),
        }
    }

    #[test]
    fn each_limit_gets_the_strongest_available_mechanism() {
        let root = || Offer { caller: Caller::Root, ..nothing() };
        let two = || BTreeSet::from(ALL);
        // In the order memory, cpus, pids, disk, files, file_size.
        let table = [
            ("a user", 2000, nothing(), "watch affinity rlimit watch watch rlimit"),
            ("root", 2000, root(), "watch affinity pid_max watch watch rlimit"),
            (
                "delegated",
                1500,
                Offer { cgroup2: two(), ..nothing() },
                "cgroup2 cgroup2 cgroup2 watch watch rlimit",
            ),
            (
                "cgroup1 as root",
                500,
                Offer { cgroup1: two(), ..root() },
                "cgroup1 cgroup1 cgroup1 watch watch rlimit",
            ),
            (
                "both: cgroup2 is preferred for each controller",
                500,
                Offer { cgroup1: two(), cgroup2: BTreeSet::from([Controller::Pids]), ..root() },
                "cgroup1 cgroup1 cgroup2 watch watch rlimit",
            ),
            (
                "systemd delegates no processors",
                1000,
                Offer { cgroup2: BTreeSet::from([Controller::Memory, Controller::Pids]), ..nothing() },
                "cgroup2 affinity cgroup2 watch watch rlimit",
            ),
            (
                "writes to memory",
                1000,
                Offer { written: Written::Memory, ..nothing() },
                "watch affinity rlimit tmpfs tmpfs rlimit",
            ),
            (
                "writes nothing",
                1000,
                Offer { written: Written::Nowhere, ..nothing() },
                "watch affinity rlimit tmpfs tmpfs rlimit",
            ),
            ("half a processor by affinity", 500, nothing(), "no cpus"),
            ("processes are not visible", 1000, Offer { processes_seen: false, ..nothing() }, "no memory"),
            ("root on an old kernel", 1000, Offer { pid_max: false, ..root() }, "no pids"),
            (
                "a user on an old kernel",
                1000,
                Offer { pid_max: false, ..nothing() },
                "watch affinity rlimit watch watch rlimit",
            ),
        ];
        for (what, cpus, offer, expected) in table {
            assert_eq!(words(&every(cpus), &offer), expected, "{what}");
        }
    }

    #[test]
    fn limits_that_are_not_set_get_no_mechanism() {
        assert_eq!(choose(&Limits::default(), &nothing()), Ok(Vec::new()));
        let only = Limits { file_size: Some(7), ..Limits::default() };
        let expected = EnforcedLimit { kind: LimitKind::FileSize, value: 7, mechanism: Mechanism::Rlimit };
        assert_eq!(choose(&only, &nothing()), Ok(vec![expected]));
    }
}
