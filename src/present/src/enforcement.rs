//! The enforcement of a run as wire types.

use avfs_engine::{Enforcement, Scratch};
use avfs_request::{ClockHeld, EnforcedLimit, NestedUserns};
use avfs_wire::{EnforcementObject, LandlockObject, LimitObject, ScratchObject};

#[must_use]
pub fn limit(limit: &EnforcedLimit) -> LimitObject {
    LimitObject { limit: limit.kind.word(), value: limit.value, mechanism: limit.mechanism.word() }
}

#[must_use]
pub fn enforcement(enforcement: &Enforcement) -> EnforcementObject {
    let mut namespaces = vec!["user", "mount", "pid", "ipc", "uts", "cgroup"];
    if enforcement.net.is_apart() {
        namespaces.push("net");
    }
    let scratch = match enforcement.scratch {
        Scratch::Memory { size_bytes, .. } => ScratchObject { kind: "memory", size_bytes: Some(size_bytes) },
        Scratch::Disk => ScratchObject { kind: "disk", size_bytes: None },
    };
    EnforcementObject {
        backend: enforcement.backend.word(),
        namespaces,
        seccomp: enforcement.confined.seccomp.word(),
        landlock: enforcement.confined.landlock_abi.map(|abi| LandlockObject { abi }),
        nested_userns: enforcement.confined.userns == NestedUserns::Allowed,
        net: enforcement.net.to_string(),
        clock: enforcement.clock.map(ClockHeld::word),
        limits: enforcement.limits.iter().map(crate::limit).collect(),
        base: enforcement.base.word(),
        scratch,
        degraded: enforcement.degraded.clone(),
    }
}
