//! A vault: a versioned workspace in one SQLite file.
//!
//! Blobs and trees are immutable and named by their digests. A version records a root tree and its parent versions.
//! Forks and checkpoints point to versions, and the audit log records every change to them. The [`backend`] stores
//! rows; the rest of this crate interprets them.
//!
//! - [`Vault`] opens a vault; its methods change it, each in one transaction.
//! - [`import`], [`capture`], [`export`] and [`materialize`] move files between a vault and the file system.
//! - [`page`], [`tree`] and [`diff`] read the content of a version.
//! - [`gc`], [`fsck`] and [`quota`] keep a vault small and intact.
//!
//! This crate never runs a command and never decides which commands are allowed. It prints nothing, and takes the clock
//! and the user's name only from its [`Context`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use avfs_types::clock::SystemClock;
//! use avfs_types::ids::ForkName;
//! use avfs_types::path::TreePath;
//! use avfs_types::reference::Reference;
//! use avfs_vault::backend::sqlite::OpenOptions;
//! use avfs_vault::page::Node;
//! use avfs_vault::{Context, Vault, read_content, tree, version};
//!
//! let dir = tempfile::tempdir()?;
//! let context = Context { clock: Arc::new(SystemClock), actor: "user".to_owned() };
//! let vault = Vault::create(&dir.path().join("vault.db"), None, OpenOptions::default(), context)?;
//!
//! // Each write creates a version; older versions stay unchanged.
//! let path = TreePath::parse(b"docs/note.txt")?;
//! vault.write_file(&ForkName::main(), &path, &b"first"[..], None, "write a note")?;
//! vault.write_file(&ForkName::main(), &path, &b"second"[..], None, "write it again")?;
//!
//! let reader = vault.read()?;
//! let (before, _) = version::resolve(&*reader, &Reference::parse("main~1")?)?;
//! let Some(Node::File(file)) = tree::lookup(&&*reader, &version::root_of(&before)?, &path)? else {
//!     panic!("the file exists")
//! };
//! assert_eq!(read_content(&*reader, &file)?, b"first");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod backend;
mod care;
mod error;
mod history;
pub mod meter;
mod object;
mod path_set;
mod store;
mod threads;
pub mod transfer;

pub use care::{fsck, gc, quota};
pub use error::{Result, VaultError};
pub use history::{
    application, approval, audit, audit_query, checkpoint, discard, fork, fork_use, join, kept_output, memo,
    ops, run, stored_output, sync, undo, version,
};
pub use object::file_content::{copy_content, read_content};
pub use object::object_writer::Batch;
pub use object::{
    changes, chunk, codec, content, delta, diff, edit, edited_tree, expansion, ingest, links, page, pages,
    renames, tree,
};
pub use store::{Advance, Committed, Context, Transaction, Vault, When, key, require_version};
pub use transfer::{
    account, capture, evict, export, ignore, import, layers, materialize, own, set_ids, unfinished, write_out,
};

use care::witness;
use object::reach;
use transfer::{shelf, spill, stat_cache};
