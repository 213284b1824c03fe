//! Limits on the processes themselves: set on init from outside, and inherited by all processes it starts. The
//! exception is the file size limit, which the command sets on itself, because init writes files that it does not
//! apply to.

use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use avfs_request::{EnforcedLimit, LimitKind, Mechanism};

use crate::sys;
use crate::sys::Pid;

/// A single process may have this many times the memory limit, plus a constant: reserved but unused address space
/// counts as well. Only a process that grows faster than the watch can react hits it.
const DATA_TIMES: u64 = 4;
const DATA_MORE_BYTES: u64 = 1 << 30;

/// Applies a limit to a process, if its mechanism is an attribute of the process.
pub fn bound(pid: Pid, limit: EnforcedLimit) -> sys::Result<()> {
    let value = limit.value;
    match (limit.kind, limit.mechanism) {
        // Init counts as one of the user's processes.
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

/// Never above our own limit: the kernel would refuse that.
fn lowered(resource: Resource, value: u64) -> Rlimit {
    let ours = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let value = Some(value.min(ours));
    Rlimit { current: value, maximum: value }
}

/// The file size limit, for [`bound_file_size`].
pub fn file_size(bytes: u64) -> u64 {
    lowered(Resource::Fsize, bytes).maximum.unwrap_or(bytes)
}

/// Sets it on the calling process, which is about to execute the command.
pub fn bound_file_size(limit: Rlimit) -> sys::Result<()> {
    setrlimit(Resource::Fsize, limit)
}

fn share_processors(pid: Pid, count: u64) -> sys::Result<()> {
    let own = sched_getaffinity(None)?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).collect();
    // Concurrent runs should not all get the first processors.
    let first = usize::try_from(pid.unsigned_abs()).unwrap_or(0);
    let mut set = CpuSet::new();
    for cpu in chosen(&own, first, usize::try_from(count).unwrap_or(usize::MAX)) {
        set.set(cpu);
    }
    sched_setaffinity(rustix::process::Pid::from_raw(pid), &set)
}

/// `count` of the available processors, starting at `first` and wrapping around.
fn chosen(own: &[usize], first: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(own.len());
    (0..count).filter_map(move |at| own.get((first + at) % own.len()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_chosen_round_robin() {
        let taken = |first, count| chosen(&[0, 2, 5], first, count).collect::<Vec<_>>();
        assert_eq!(taken(0, 2), [0, 2]);
        assert_eq!(taken(2, 2), [5, 0]);
        assert_eq!(taken(7, 9), [2, 5, 0]);
        assert_eq!(chosen(&[], 1, 1).count(), 0);
    }
}
