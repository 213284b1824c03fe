//! What was enforced in a run, as an envelope tells it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::runtime::confinement::NestedUserns;
use crate::runtime::limits::EnforcedLimit;
use crate::runtime::reproducible::ClockHeld;
use crate::runtime::result::Enforcement;
use crate::runtime::room::Scratch;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScratchObject {
    pub kind: &'static str,
    /// The bound of a scratch in memory.
    pub size_bytes: Option<u64>,
}

/// A limit that held.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitObject {
    pub limit: &'static str,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
    /// What held it: `cgroup2`, `cgroup1`, `rlimit`, `pid_max`, `tmpfs`, `affinity` or `watch`.
    pub mechanism: &'static str,
}

impl From<&EnforcedLimit> for LimitObject {
    fn from(limit: &EnforcedLimit) -> Self {
        Self { limit: limit.kind.word(), value: limit.value, mechanism: limit.mechanism.word() }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LandlockObject {
    pub abi: u32,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EnforcementObject {
    pub backend: &'static str,
    pub namespaces: Vec<&'static str>,
    /// `default`, `strict` or `off`.
    pub seccomp: &'static str,
    /// The version of Landlock that held; nothing if none did.
    pub landlock: Option<LandlockObject>,
    /// Whether the command could make user namespaces of its own.
    pub nested_userns: bool,
    pub net: String,
    /// How far a fixed clock held: `files`, `files+programs`, or nothing.
    pub clock: Option<&'static str>,
    pub limits: Vec<LimitObject>,
    /// `live`, `reused`, `layered` or `materialized`.
    pub base: &'static str,
    pub scratch: ScratchObject,
    pub degraded: Vec<String>,
}

impl From<&Enforcement> for EnforcementObject {
    fn from(enforcement: &Enforcement) -> Self {
        let mut namespaces = vec!["user", "mount", "pid", "ipc", "uts", "cgroup"];
        if enforcement.net.is_apart() {
            namespaces.push("net");
        }
        let scratch = match enforcement.scratch {
            Scratch::Memory { size_bytes, .. } => {
                ScratchObject { kind: "memory", size_bytes: Some(size_bytes) }
            }
            Scratch::Disk => ScratchObject { kind: "disk", size_bytes: None },
        };
        Self {
            backend: enforcement.backend.word(),
            namespaces,
            seccomp: enforcement.confined.seccomp.word(),
            landlock: enforcement.confined.landlock_abi.map(|abi| LandlockObject { abi }),
            nested_userns: enforcement.confined.userns == NestedUserns::Allowed,
            net: enforcement.net.to_string(),
            clock: enforcement.clock.map(ClockHeld::word),
            limits: enforcement.limits.iter().map(LimitObject::from).collect(),
            base: enforcement.base.word(),
            scratch,
            degraded: enforcement.degraded.clone(),
        }
    }
}
