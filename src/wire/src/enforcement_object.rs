//! What was enforced in a run, as an envelope tells it.

use schemars::JsonSchema;
use serde::Serialize;

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
