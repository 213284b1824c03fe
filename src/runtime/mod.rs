//! What both commands need above the vault: which vault and directory are meant, how a request becomes a run,
//! what changed in words and numbers, and the wire types of `--json`.
//!
//! Nothing here prints, and the environment comes in as a value.

mod afterwards;
mod aliases;
mod apply;
pub mod batch;
pub mod bisect;
mod change_report;
mod change_summary;
mod change_view;
mod checkpoint;
mod choices;
mod command_line;
mod conclude;
mod confinement;
mod decision;
pub mod egress;
pub mod envelope;
mod environment;
mod error;
mod file_content;
mod ground;
mod host_executed;
mod journal;
mod launcher;
mod limits;
mod line_diff;
pub mod list;
mod locate;
mod memo;
mod mount_session;
mod net;
mod net_offer;
mod permission;
mod plan;
pub mod policy;
mod policy_files;
mod proxy;
pub mod race;
pub mod record;
mod recover;
mod redact;
mod rehearsal;
mod remember;
pub mod replay;
mod reproducible;
mod request;
mod request_digest;
mod result;
mod room;
mod run;
mod secret;
mod session_record;
mod state;
mod timeout;
mod trust;
mod truth;
mod units;
mod unsettled;
mod view;
mod words;
mod workspace;
mod workspace_service;
mod zone;

/// A setting of whoever asks for runs; what it means is the vault's business.
pub use crate::vault::checkpoint::KeepCount;
pub use apply::{Applied, ApplyError, ApplyOptions, Conflict, Filter, Subject, apply, changes_to_apply};
pub use change_report::{ChangeForm, ChangeReport, ChangeSummaryService};
pub use change_summary::{
    ChangeCounts, ChangeSummary, LineStat, Shown, TextChange, each_line, is_binary, lines,
};
pub use change_view::{
    CHANGES_SHOWN_MAX, Extent, PatchLeftOff, PatchLimits, StatView, TreeLine, TreeView, beside_content,
    file_sizes, is_dir, kind_words, patch_view, stat_view, tree_view,
};
pub use checkpoint::CheckpointService;
pub use choices::{
    ApprovalMode, BackendChoice, BaseChoice, CacheMode, CheckpointMode, Degradation, ForkChoice, Purity,
    Retention, ScratchChoice, SecretsInFiles, VaultPlace, Writing,
};
pub use command_line::CommandLine;
pub use conclude::OUTPUT_LOST;
pub use confinement::{
    Confined, Confinement, Explanation, LandlockMode, NestedUserns, RefusedCall, SeccompProfile,
    explanations, refusals,
};
pub use decision::{Action, ExecutionDecision, OnViolation};
pub use environment::{EnvChoice, Environment};
pub use error::ExecuteError;
pub use file_content::{copy_content, read_content};
pub use ground::{GroundError, UNBOUND_PATH};
pub use host_executed::{called_out, runs_on_host};
pub use launcher::{
    Access, Completion, Connection, ConnectionVerdict, Connections, Exit, Input, LOWERS_MAX, LaunchPlan,
    Launcher, Links, Output, ProcMode, Refused, SecretFile, Streams, TmpfsSize, UpperPlace, UpperRoot, Usage,
    ViewStep, WorkspaceMount,
};
pub use limits::{CpuLimit, Cpus, EnforcedLimit, LimitKind, Limits, Mechanism};
pub use locate::{
    CONFIG_FILE, LocateError, Located, Surroundings, VAULT_DIR, VAULT_FILE, VaultChoice, VaultSource,
    directory_config,
};
pub use memo::{CacheUse, Found, Look, Machine, MemoError, MemoSite, Reason, look, why_not_remembered};
pub use mount_session::{MountSession, MountState, ScratchDir, SessionError};
pub use net::{AllowList, AllowRule, HostRule, NetError, NetMode, is_beneath, is_within};
pub use net_offer::offered_networks;
pub use permission::{Approver, Denial};
pub use policy_files::{LayerText, POLICY_FILE, PolicyText, PolicyTexts, REGO_FILE, UnreadablePolicy};
pub use proxy::{Came, Executed, ProxyRuntime, Site};
pub use recover::{
    Doubt, HalfCaptured, RecoverError, RecoverOptions, Recoverable, Recovered, Recovery, sweep,
};
pub use redact::redact;
pub use rehearsal::Rehearsal;
pub use remember::{RememberError, RememberFor, Remembered};
pub use reproducible::{ClockHeld, EPOCH_VARIABLE, FixedClock, Reproducible, seed};
pub use request::{ExecutionRequest, Named, RequestError};
pub use result::{Backend, BaseUsed, Enforcement, ExecutionResult, HostUse, Note, Phases, RunsOnHost};
pub use room::Scratch;
pub use run::message as version_message;
pub use secret::{SECRET_BYTES_MAX, SECRETS_DIR, SecretError, SecretWord};
pub use state::ProxyExecutionState;
pub use timeout::ExecutionTimeout;
pub use trust::{TrustError, TrustOrigin, TrustedVaults};
pub use units::{Limit, Since, Size, Span, UnitError, show_bytes_size};
pub use unsettled::{RunLife, Unsettled, bases_in_use};
pub use view::{Extra, HostPath, Profile, SecretFiles, ShownAs, ViewRequest, view};
pub use words::WordError;
pub use workspace::{WorkspaceError, bound_dir, cache_line, make_vault, require_bound_dir, stat_cache_path};
pub use workspace_service::WorkspaceService;
pub use zone::Zone;
