//! The enforcement of a run as wire types.

use avfs_engine::{Enforcement, Scratch};
use avfs_request::{EnforcedLimit, NestedUserns};
use avfs_wire::{EnforcementObject, LandlockObject, LimitObject, ScratchObject};

#[must_use]
pub fn limit(limit: &EnforcedLimit) -> LimitObject {
    LimitObject {
        limit: limit.kind.word().into(),
        value: limit.value,
        mechanism: limit.mechanism.word().into(),
    }
}

#[must_use]
pub fn enforcement(enforcement: &Enforcement) -> EnforcementObject {
    let mut namespaces = vec!["user", "mount", "pid", "ipc", "uts", "cgroup"];
    if enforcement.net.is_apart() {
        namespaces.push("net");
    }
    let scratch = match enforcement.scratch {
        Scratch::Memory { size_bytes, .. } => {
            ScratchObject { kind: "memory".into(), size_bytes: Some(size_bytes) }
        }
        Scratch::Disk => ScratchObject { kind: "disk".into(), size_bytes: None },
    };
    EnforcementObject {
        backend: enforcement.backend.word().into(),
        namespaces: namespaces.into_iter().map(Into::into).collect(),
        seccomp: enforcement.confined.seccomp.word().into(),
        landlock: enforcement.confined.landlock_abi.map(|abi| LandlockObject { abi }),
        nested_userns: enforcement.confined.userns == NestedUserns::Allowed,
        net: enforcement.net.to_string(),
        clock: enforcement.clock.map(|clock| clock.word().into()),
        limits: enforcement.limits.iter().map(crate::limit).collect(),
        base: enforcement.base.word().into(),
        scratch,
        degraded: enforcement.degraded.clone(),
    }
}
