//! `avfs-run` as a library: runs one command over a fork of a workspace, in a sandbox, and keeps what it changed.
//!
//! Three processes: the supervisor (the caller's, outside), init (process 1 inside) and the payload (the
//! command). See docs/ARCHITECTURE.md.
#![deny(unsafe_code)]

mod command;
mod confine;
mod control;
mod egress;
mod idmap;
mod init;
mod launch;
mod limits;
mod outside_writes;
mod prepare;
mod probe;
mod remedy;
mod renames;
mod stage;
mod stdio;
mod supervisor;
#[expect(unsafe_code, reason = "calls to the kernel that no crate offers safely")]
mod sys;

pub use command::{as_helper, main};
