//! The verbs about the versions of a fork: what happened, one step back or forward, and the names of versions.
//!
//! A fork, a run or a version comes in; a new version of the fork leaves, or a record. No verb rewrites a version: a
//! step back adds one that equals an older one (`undo.rs`). Names of versions are forks (`fork.rs`), which move, and
//! checkpoints (`checkpoint.rs`), which pin. The files in the bound directory never change here; an undo of changes
//! that are only there is passed back to the caller, who unapplies them.
//!
//! Start reading with `undo.rs`.

mod checkpoint;
mod fork;
mod log;
mod show;
mod undo;

pub use avfs_vault::fork::Deletion;
pub use avfs_vault::fork_use::Sizes;

pub use checkpoint::{checkpoint, checkpoints, delete_checkpoint, restore_checkpoint, save_checkpoint};
pub use fork::{ForkRow, create_fork, delete_fork, each_fork, fork_meant, fork_tree, forks};
pub use log::{LogPage, LogQuery, log};
pub use show::{ShowAnswer, show};
pub use undo::{UndoOutcome, redo, restore, undo};
