//! Command lists: reading, running in order or in parallel, recording, replaying and bisecting.
//!
//! This crate never starts a command: callers supply the code that does. A list is checked completely before
//! the first command runs.
//!
//! ```
//! use avfs_lists::list::ListFile;
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("commands.jsonl");
//! std::fs::write(
//!     &path,
//!     r#"{"id": "build", "command": ["make"]}
//!        {"needs": ["build"], "command": ["make", "test"]}"#,
//! )?;
//!
//! let list = ListFile::open(&path, dir.path())?;
//! assert_eq!((list.len(), list.id(0), list.id(1)), (2, "build", "2"));
//! assert_eq!(list.needs(1), [0], "the second command waits for the first");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod batch;
pub mod bisect;
pub mod list;
pub mod race;
pub mod record;
pub mod replay;
