//! The request for a run: command, limits, network, environment and secrets; and the settings that provide its
//! defaults.
//!
//! This crate never decides whether a request may run: `avfs-policy` does.
//!
//! ```
//! use avfs_request::NetMode;
//! use avfs_request::spec::RunSpec;
//! use avfs_types::CommandLine;
//!
//! let spec = RunSpec::parse(br#"{"schema_version": 1, "command": ["make", "test"]}"#)?;
//! assert_eq!(spec.command_line()?, CommandLine::Argv(vec!["make".into(), "test".into()]));
//!
//! let net: NetMode = "allow=crates.io,10.0.0.1:8080".parse()?;
//! assert_eq!(net.kind(), "allow");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod choices;
pub mod config;
pub mod confinement;
mod environment;
mod extra;
mod limits;
pub mod net;
mod preset;
pub mod provided;
pub mod reproducible;
pub mod request;
mod secret;
pub mod spec;
mod streams;
mod timeout;

pub use choices::{
    ApprovalMode, BackendChoice, BaseChoice, CacheMode, ChangeForm, CheckpointMode, Degradation, ForkChoice,
    GitIdentity, HomeMode, JsonForm, OutputRetention, Purity, Retention, ScratchChoice, SecretsInFiles,
    TmpMode, VaultPlace, Writing,
};
pub use confinement::{Confined, Confinement, LandlockMode, NestedUserns, RefusedCall, SeccompProfile};
pub use confinement::{Explanation, explanations};
pub use environment::{EnvChoice, Environment};
pub use extra::{Extra, HostPath, Profile};
pub use limits::{CpuLimit, Cpus, EnforcedLimit, LimitKind, Limits, MEMORY_BYTES_MIN, Mechanism};
pub use net::{AllowList, AllowRule, HostRule, NetError, NetMode, is_beneath, is_within};
pub use preset::{CI_VARIABLES, Preset, PresetData, is_read, variables_read_by, with_hosts};
pub use reproducible::{ClockHeld, EPOCH_VARIABLE, FixedClock, Reproducible, seed};
pub use request::{ExecutionRequest, Named, Outside, RequestError, ResolveError, Terminal};
pub use secret::{SECRET_BYTES_MAX, SECRETS_DIR, SecretError, SecretFile, SecretWord};
pub use spec::RunSpec;
pub use streams::{MergedOutput, ProcMode, Streams};
pub use timeout::ExecutionTimeout;
