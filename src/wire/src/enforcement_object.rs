//! What was enforced in a run, as an envelope tells it.

use serde::Serialize;

/// Where the changes of a run were kept while it ran.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScratchObject {
    /// `memory` or `disk`.
    pub kind: &'static str,
    /// The bound of a scratch in memory.
    pub size_bytes: Option<u64>,
}

/// A limit that held.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitObject {
    /// `memory`, `cpus`, `pids`, `disk`, `files` or `file_size`.
    pub limit: &'static str,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
    /// What held it: `cgroup2`, `cgroup1`, `rlimit`, `pid_max`, `tmpfs`, `affinity` or `watch`.
    pub mechanism: &'static str,
}

/// The Landlock of the kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandlockObject {
    /// The version of the Landlock ABI.
    pub abi: u32,
}

/// What was enforced during a run, which may be less than what was asked for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnforcementObject {
    /// How the command was confined.
    pub backend: &'static str,
    /// The kinds of namespaces that the command had of its own, such as `pid`.
    pub namespaces: Vec<&'static str>,
    /// `default`, `strict` or `off`.
    pub seccomp: &'static str,
    /// The version of Landlock that held; null if none did.
    pub landlock: Option<LandlockObject>,
    /// Whether the command could make user namespaces of its own.
    pub nested_userns: bool,
    /// The network that the command had, as `--net` takes it.
    pub net: String,
    /// How far a fixed clock held: `files`, `files+programs`, or null.
    pub clock: Option<&'static str>,
    /// The limits that were in force.
    pub limits: Vec<LimitObject>,
    /// `live`, `reused`, `layered` or `materialized`.
    pub base: &'static str,
    /// Where the changes were kept while the command ran.
    pub scratch: ScratchObject,
    /// What could not be enforced and was not required, one text each.
    pub degraded: Vec<String>,
}
