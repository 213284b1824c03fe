//! What both commands need above the vault: which vault and directory are meant, how a request becomes a run,
//! what changed in words and numbers, and the wire types of `--json`.
//!
//! Nothing here prints, and the environment comes in as a value.

mod afterwards;
mod apply;
mod change_report;
mod change_summary;
mod change_view;
mod checkpoint;
mod conclude;
mod decision;
pub mod envelope;
mod environment;
mod error;
mod file_content;
mod ground;
mod journal;
mod launcher;
mod locate;
mod mount_session;
mod permission;
mod plan;
pub mod policy;
mod policy_files;
mod proxy;
mod recover;
mod rehearsal;
mod remember;
mod request;
mod result;
mod room;
mod run;
mod session_record;
mod state;
mod timeout;
mod truth;
mod units;
mod unsettled;
mod view;
mod words;
mod workspace;
mod workspace_service;

/// A setting of whoever asks for runs; what it means is the vault's business.
pub use crate::vault::checkpoint::KeepCount;
pub use apply::{Applied, ApplyError, ApplyOptions, Conflict, Filter, Subject, apply};
pub use change_report::{ChangeForm, ChangeReport, ChangeSummaryService};
pub use change_summary::{ChangeCounts, ChangeSummary, LineStat, Shown, TextChange, is_binary, text_change};
pub use change_view::{
    CHANGES_SHOWN_MAX, Extent, PatchLeftOff, PatchLimits, StatView, TreeLine, TreeView, file_sizes, is_dir,
    kind_words, patch_view, stat_view, tree_view,
};
pub use checkpoint::CheckpointService;
pub use decision::{Action, ExecutionDecision, OnViolation};
pub use environment::{EnvChoice, Environment};
pub use error::ExecuteError;
pub use file_content::{copy_content, read_content};
pub use ground::{GroundError, UNBOUND_PATH};
pub use launcher::{
    Access, Completion, Exit, LOWERS_MAX, LaunchPlan, Launcher, NetMode, Output, ProcMode, Refused, Streams,
    TmpfsSize, UpperPlace, UpperRoot, Usage, ViewStep, WorkspaceMount,
};
pub use locate::{
    CONFIG_FILE, LocateError, Located, Surroundings, VAULT_DIR, VAULT_FILE, VaultChoice, VaultSource,
    directory_config,
};
pub use mount_session::{MountSession, MountState, ScratchDir, SessionError};
pub use permission::{Approver, Denial};
pub use policy_files::{LayerText, POLICY_FILE, PolicyText, PolicyTexts, REGO_FILE, UnreadablePolicy};
pub use proxy::{Came, Executed, ProxyRuntime, Site};
pub use recover::{Doubt, RecoverError, Recovered, Recovery};
pub use rehearsal::Rehearsal;
pub use remember::{RememberError, RememberFor, Remembered};
pub use request::{
    ApprovalMode, BackendChoice, BaseChoice, CheckpointMode, CommandLine, Degradation, ExecutionRequest,
    ForkChoice, RequestError, Retention, ScratchChoice, Writing,
};
pub use result::{Backend, BaseUsed, Enforcement, ExecutionResult, Note, Phases};
pub use room::Scratch;
pub use state::ProxyExecutionState;
pub use timeout::ExecutionTimeout;
pub use units::{Limit, Since, Size, Span, UnitError, show_bytes_size};
pub use unsettled::{RunLife, Unsettled};
pub use view::{Extra, Profile, ViewRequest, view};
pub use words::WordError;
pub use workspace::{BOUND_ABOVE, WorkspaceError, bound_dir, make_vault, require_bound_dir, stat_cache_path};
pub use workspace_service::WorkspaceService;
