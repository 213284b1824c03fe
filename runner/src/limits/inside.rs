//! Limits that processes carry with them: set on init from outside, and inherited by everybody it starts. But for
//! the size of a file, which the command sets on itself: init writes files that it does not hold for.

use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use avfs_request::{EnforcedLimit, LimitKind, Mechanism};

use crate::sys;
use crate::sys::Pid;

/// One process alone may have this many times the memory, and something on top: address space that is asked for and
/// not used counts too. Only what is faster than the watch comes up against it.
const DATA_TIMES: u64 = 4;
const DATA_MORE_BYTES: u64 = 1 << 30;

/// Sets what a limit needs on a process, where its mechanism is one of the process itself.
pub fn bound(pid: Pid, limit: EnforcedLimit) -> sys::Result<()> {
    let value = limit.value;
    match (limit.kind, limit.mechanism) {
        // Init is one of the user's processes.
        (LimitKind::Pids, Mechanism::Rlimit) => lower(pid, Resource::Nproc, value.saturating_add(1)),
        (LimitKind::Memory, Mechanism::Watch) => {
            let backstop = value.saturating_mul(DATA_TIMES).saturating_add(DATA_MORE_BYTES);
            lower(pid, Resource::Data, backstop)
        }
        (LimitKind::Cpus, Mechanism::Affinity) => share_processors(pid, value / 1000),
        (
            LimitKind::Memory
            | LimitKind::Cpus
            | LimitKind::Pids
            | LimitKind::Disk
            | LimitKind::Files
            | LimitKind::FileSize,
            Mechanism::Cgroup2
            | Mechanism::Cgroup1
            | Mechanism::Rlimit
            | Mechanism::PidMax
            | Mechanism::Tmpfs
            | Mechanism::Affinity
            | Mechanism::Watch,
        ) => Ok(()),
    }
}

fn lower(pid: Pid, resource: Resource, value: u64) -> sys::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(sys::Errno::SRCH)?;
    prlimit(Some(pid), resource, lowered(resource, value)).map(drop)
}

/// Never above what we have ourselves: that would be refused.
fn lowered(resource: Resource, value: u64) -> Rlimit {
    let ours = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let value = Some(value.min(ours));
    Rlimit { current: value, maximum: value }
}

/// The size of a file, for [`bound_file_size`].
pub fn file_size(bytes: u64) -> Rlimit {
    lowered(Resource::Fsize, bytes)
}

/// Sets it on the process that calls, which is about to become the command.
pub fn bound_file_size(limit: Rlimit) -> sys::Result<()> {
    setrlimit(Resource::Fsize, limit)
}

fn share_processors(pid: Pid, count: u64) -> sys::Result<()> {
    let own = sched_getaffinity(None)?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).collect();
    // Runs at the same time should not all get the first ones.
    let first = usize::try_from(pid.unsigned_abs()).unwrap_or(0);
    let mut set = CpuSet::new();
    for cpu in chosen(&own, first, usize::try_from(count).unwrap_or(usize::MAX)) {
        set.set(cpu);
    }
    sched_setaffinity(rustix::process::Pid::from_raw(pid), &set)
}

/// So many of those there are, from a place on.
fn chosen(own: &[usize], first: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(own.len());
    (0..count).filter_map(move |at| own.get((first + at) % own.len()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_taken_in_turn() {
        let taken = |first, count| chosen(&[0, 2, 5], first, count).collect::<Vec<_>>();
        assert_eq!(taken(0, 2), [0, 2]);
        assert_eq!(taken(2, 2), [5, 0]);
        assert_eq!(taken(7, 9), [2, 5, 0]);
        assert_eq!(chosen(&[], 1, 1).count(), 0);
    }
}
