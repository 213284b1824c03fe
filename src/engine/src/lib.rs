//! One run from request to result: its base, its permission, its sandbox, and the version it creates.
//!
//! This crate never starts a process: that is the task of [`Sandboxes`].
//!
//! ```
//! use avfs_engine::ProxyExecutionState as State;
//!
//! // A command is never executed before the policy has decided, and changes are captured after its end.
//! assert!(!State::Validating.may_become(State::Executing));
//! assert!(State::Deciding.may_become(State::Checkpointing));
//! assert!(State::Executing.may_become(State::Capturing));
//! ```
#![forbid(unsafe_code)]

mod aliases;
mod cache_care;
mod checkpoint;
mod discover;
mod error;
mod git;
pub mod journal;
mod launcher;
mod output;
mod permission;
mod rehearsal;
mod result_cache;
mod run;
mod session;
#[cfg(test)]
mod tests;
mod view;
mod workspace;

pub use cache_care::{CacheCareError, CacheKeeper, CacheOwners, CacheUsage, Orphans, Part, Swept};
pub use discover::config_files;
pub use discover::file_text::{FileText, UnreadableFile};
use discover::first_import;
use discover::locate;
use discover::policy_files;
use discover::trust;
pub use error::{ExecuteError, is_disk_full};
pub use first_import::{FirstLook, WarnAbove, first_look};
pub use launcher::{
    Access, CommandPlan, Commands, Completion, Connection, ConnectionVerdict, Connections, Exec, Exit,
    LOWERS_MAX, LaunchError, Lookup, OutsideWrite, OutsideWrites, Refused, Sandbox, SandboxPlan, Sandboxes,
    Stdio, Stopped, TmpfsSize, Upper, UpperPlace, UpperRoot, Usage, ViewStep, WorkspaceMount,
};
pub use locate::{
    GitConfigs, LocateError, Located, NewVault, SkippedVault, Surroundings, VAULT_SKIPPED, VaultChoice,
    VaultSource, directory_config,
};
pub use mount_session::{MountSession, MountState, ScratchDir, SessionError};
pub use orphans::{RunLife, UnfinishedRun, bases_in_use};
pub use output::{Omitted, Output, OutputBuffer, OutputReader};
pub use permission::approval_rule::{RememberError, RememberFor, Remembered};
pub use permission::net_offer::offered_networks;
pub use permission::{Approver, Denial, explain};
pub use policy_files::{LayerText, POLICY_FILE, PolicyTexts, REGO_FILE};
pub use recover::{
    Doubt, HalfCaptured, RecoverError, RecoverOptions, Recoverable, Recovered, Recovery, sweep,
};
pub use rehearsal::Rehearsal;
pub use result_cache::Machine;
pub use result_cache::{CacheUse, MemoError, MemoSite, look};
pub use result_cache::{CachedResult, Look};
pub use result_cache::{Reason, why_not_remembered};
pub use run::message as version_message;
pub use run::{
    Backend, BaseUsed, Enforcement, Executed, ExecutionResult, Note, OLDER_COPY, OUTPUT_LOST, Outcome,
    Phases, ProxyExecutionState, ProxyRuntime, Remedy, SANDBOX_LOST, Site,
};
pub use scratch_size::Scratch;
pub use session::batch_lock::batch_lock;
use session::fork_dirs;
pub use session::fork_dirs::ForkDirs;
use session::mount_session;
pub use session::noted::NoteDelivery;
use session::orphans;
use session::recover;
use session::scratch_size;
use session::session_record;
pub use trust::{TrustError, TrustOrigin, TrustedVaults, Unsafe};
pub use view::{SecretFiles, ShownAs, ViewRequest, view};
pub use workspace::binding::{
    WorkspaceError, bound_dir, cache_line, make_first_vault, make_vault, reference_counts_path,
    require_bound_dir, stat_cache_path,
};
pub use workspace::workspace_root::{UNBOUND_PATH, WorkspaceRootError, check_fork, check_request};
pub use workspace::workspace_service::{BASE_LARGE, IMPORT_LARGE, base_announcement};
use workspace::{fork_behind, host_look, run_base, workspace_root, workspace_service};
