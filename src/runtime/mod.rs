//! What both commands need above the vault: which vault and directory are meant, how a request becomes a run,
//! what changed in words and numbers, and the wire types of `--json`.
//!
//! Nothing here prints, and the environment comes in as a value.

mod afterwards;
mod apply;
mod change_summary;
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
pub mod policy;
mod proxy;
mod recover;
mod rehearsal;
mod request;
mod result;
mod room;
mod session_record;
mod state;
mod timeout;
mod units;
mod view;
mod words;
mod workspace;

pub use apply::{Applied, ApplyError, ApplyOptions, Conflict, Filter, Subject, apply};
pub use change_summary::{ChangeCounts, ChangeSummary, LineStat, Shown, TextChange, is_binary, text_change};
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
pub use proxy::{ProxyRuntime, Site};
pub use recover::{Doubt, RecoverError, Recovered, Recovery};
pub use rehearsal::Rehearsal;
pub use request::{
    BackendChoice, BaseChoice, CheckpointMode, CommandLine, Degradation, ExecutionRequest, ForkChoice,
    Retention, ScratchChoice, Writing,
};
pub use result::{Backend, BaseUsed, Enforcement, ExecutionResult, Note, Phases};
pub use room::Scratch;
pub use state::ProxyExecutionState;
pub use timeout::ExecutionTimeout;
pub use units::{Limit, Since, Size, Span, UnitError, show_bytes_size};
pub use view::{Extra, Profile, ViewRequest, view};
pub use words::WordError;
pub use workspace::{BOUND_ABOVE, WorkspaceError, bound_dir, make_vault, require_bound_dir, stat_cache_path};
