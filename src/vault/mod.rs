//! The storage layer: what the rows of a backend mean.
//!
//! Blobs and trees are immutable and named by their digests; versions record a root tree and where it came
//! from; forks and checkpoints lead to versions; the audit log tells how they got there. Nothing here knows
//! of policy, execution or the command line.

pub mod approval;
pub mod audit;
pub mod audit_query;
mod batch;
pub mod batches;
pub mod capture;
pub mod checkpoint;
pub mod chunk;
pub mod codec;
pub mod content;
pub mod delta;
pub mod diff;
pub mod discard;
pub mod edit;
mod error;
pub mod export;
pub mod fork;
pub mod fork_use;
pub mod fsck;
pub mod gc;
pub mod glob;
pub mod ignore;
pub mod import;
pub mod ingest;
pub mod join;
pub mod layers;
pub mod links;
pub mod materialize;
pub mod memo;
mod merge;
pub mod meter;
pub mod ops;
pub(crate) mod own;
pub mod page;
mod page_codec;
pub mod pages;
pub mod path;
mod path_set;
pub mod quota;
mod reach;
pub mod rebase;
pub mod recording;
pub mod run;
pub mod secrets;
pub mod set_ids;
mod shelf;
pub mod stat_cache;
mod store;
mod threads;
pub mod tree;
pub mod undo;
pub mod version;
mod witness;
pub(crate) mod write_out;

pub use batch::Batch;
pub use error::{Result, VaultError};
pub use store::{Advance, Committed, Context, Transaction, Vault, When, key, require_version};
