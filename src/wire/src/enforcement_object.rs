//! The enforcement part of an envelope.

use serde::{Deserialize, Serialize};

use avfs_types::Word;

/// Where the changes of a run were held while it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScratchObject {
    /// `memory` or `disk`.
    pub kind: Word,
    /// The maximum size of a scratch in memory.
    pub size_bytes: Option<u64>,
}

/// An enforced limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitObject {
    /// `memory`, `cpus`, `pids`, `disk`, `files` or `file_size`.
    pub limit: Word,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
    /// The mechanism: `cgroup2`, `cgroup1`, `rlimit`, `pid_max`, `tmpfs`, `affinity` or `watch`.
    pub mechanism: Word,
}

/// The Landlock of the kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandlockObject {
    /// The version of the Landlock ABI.
    pub abi: u32,
}

/// The restrictions that were enforced during a run, which may be fewer than requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnforcementObject {
    /// How the workspace was made writable: `overlay` or `copy`.
    pub backend: Word,
    /// The kinds of namespaces created for the command, such as `pid`.
    pub namespaces: Vec<Word>,
    /// `default`, `strict` or `off`.
    pub seccomp: Word,
    /// The version of Landlock that was enforced; null without Landlock.
    pub landlock: Option<LandlockObject>,
    /// Whether the command could create user namespaces.
    pub nested_userns: bool,
    /// The network of the command, in the form of `--net`.
    pub net: String,
    /// The reach of a fixed clock: `files`, `files+programs`, or null.
    pub clock: Option<Word>,
    /// The enforced limits.
    pub limits: Vec<LimitObject>,
    /// `live`, `touched`, `reused`, `layered` or `materialized`.
    pub base: Word,
    /// Where the changes were held while the command ran.
    pub scratch: ScratchObject,
    /// Restrictions that could not be enforced and were not required, one text each.
    pub degraded: Vec<String>,
}
