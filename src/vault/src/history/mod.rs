//! The records about versions: forks, checkpoints, runs, approvals, the audit log.

pub mod application;
pub mod approval;
pub mod audit;
pub mod audit_query;
pub mod batches;
pub mod checkpoint;
pub mod discard;
pub mod fork;
pub mod fork_use;
pub mod join;
pub mod kept_output;
pub mod memo;
pub mod ops;
pub mod rebase;
pub mod recording;
pub mod run;
pub mod stored_output;
pub mod sync;
pub mod undo;
pub mod version;
