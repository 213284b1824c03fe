//! One run, as a pipeline of values. Open `proxy.rs` first: it has all steps in order.
//!
//! ```text
//! ExecutionRequest  the request as asked
//!     │ resolve    an id, and the directories
//!     │ admit      the policy decides, a person may approve, caps apply
//! Admitted          the request as granted
//!     │ recall     only with --cache: a cached result lands instead, and the run ends here
//! Effective         the request as this host can carry it out; each fallback makes a new one
//!     │ prepare    the scratch, with the data for a recovery
//!     │ base       the directory itself, or a version as layers or as a copy
//! Based
//!     │ plan       what the command sees, and where it writes
//! Planned
//!     │ execute    a sandbox runs the command; an import and a look at the directory run beside it
//! Ended             nothing can write to the upper anymore
//!     │ capture    the upper becomes a tree
//! Captured
//!     │ land       one transaction: version, fork, checkpoints, journal and audit rows
//! Kept              the run cannot be lost anymore: later errors are notes
//!     │ report     the changes, an apply, the layer for the next run
//! ExecutionResult
//! ```
//!
//! A step takes values and returns one: it does not change what an earlier step made. Only `Notes` are added on the
//! way. The type of the value that is being made gives the state in the scratch and in the journal (`state.rs`). Each
//! step is a span of the log. An error before `Ended` removes the scratch, an error between `Ended` and `Kept` leaves
//! it to a recovery (`left_behind.rs`). Nothing expensive is done before the decision.

mod admit;
mod base;
mod capture;
mod effective;
mod execute;
mod judge;
mod kept_output;
mod land;
mod left_behind;
mod notes;
mod plan;
mod prepare;
mod proxy;
mod record;
mod report;
mod result;
mod site;
mod state;
mod withheld;

pub use notes::{OUTPUT_LOST, SANDBOX_LOST};
pub use proxy::{Executed, Outcome, ProxyRuntime};
pub use record::message;
pub use result::{Backend, BaseUsed, Enforcement, ExecutionResult, Note, Phases, Remedy};
pub use site::{OLDER_COPY, Site};
pub use state::ProxyExecutionState;

pub(crate) use admit::{Admitted, capped, wants_version};
pub(crate) use base::Based;
pub(crate) use capture::{Before, earliest_time, times};
pub(crate) use effective::Effective;
pub(crate) use kept_output::kept_output;
pub(crate) use land::{land, run_landing};
pub(crate) use notes::{note_foreign_files, note_import};
pub(crate) use prepare::VaultIdentity;
pub(crate) use record::Run;
pub(crate) use report::{Reported, changed, result};
pub(crate) use result::Notes;
pub(crate) use state::{Failure, Stage, enter};
