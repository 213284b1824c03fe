//! `avfs-run` as a library: runs one command over a fork of a workspace, in a sandbox, and keeps its changes.
//!
//! Three processes: the supervisor (the caller, outside), init (process 1 inside) and the payload (the command). See
//! docs/ARCHITECTURE.md.
#![deny(unsafe_code)]

mod command;
mod confine;
mod control;
mod egress;
mod idmap;
mod init;
mod limits;
mod outside_writes;
mod prepare;
mod probe;
mod remedy;
mod renames;
mod sandbox;
mod signals;
mod stage;
mod stdio;
#[expect(unsafe_code, reason = "system calls without a safe wrapper in any crate")]
mod sys;

pub use sandbox::{HostSandboxes, sandboxes};

pub use command::{as_helper, command_line, main, manual_page, option_meant};
