//! The storage layer: what the rows of a backend mean.
//!
//! Blobs and trees are immutable and named by their digests; versions record a root tree and where it came
//! from; forks and checkpoints lead to versions; the audit log tells how they got there. Nothing here knows
//! of policy, execution or the command line.
#![forbid(unsafe_code)]

pub mod backend;
mod care;
mod error;
mod history;
pub mod meter;
mod object;
mod path_set;
mod store;
mod threads;
mod transfer;

pub use care::{fsck, gc, quota};
pub use error::{Result, VaultError};
pub use history::{
    approval, audit, audit_query, checkpoint, discard, fork, fork_use, join, memo, ops, run, undo, version,
};
pub use object::file_content::{copy_content, read_content};
pub use object::object_writer::Batch;
pub use object::{chunk, codec, content, delta, diff, edit, expansion, ingest, links, page, pages, tree};
pub use store::{Advance, Committed, Context, Transaction, Vault, When, key, require_version};
pub use transfer::{capture, export, ignore, import, layers, materialize, own, set_ids, write_out};

use care::witness;
use object::reach;
use transfer::{shelf, stat_cache};
