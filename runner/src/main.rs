//! `avfs-run`: runs one command over a fork of a workspace, in a sandbox, and keeps what it changed.
//!
//! Three processes: the supervisor (this one, outside), init (process 1 inside) and the payload (the
//! command). See docs/ARCHITECTURE.md.
#![deny(unsafe_code)]

mod approve;
mod args;
mod cache;
mod confine;
mod control;
mod egress;
mod error;
mod idmap;
mod init;
mod launch;
mod limits;
mod prepare;
mod probe;
mod remedy;
mod render;
mod request_file;
mod run;
mod serve;
mod settings;
mod stage;
mod station;
mod stdio;
mod supervisor;
#[expect(unsafe_code, reason = "calls to the kernel that no crate offers safely")]
mod sys;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use avfs_hostfs::{mask, size_limit};
use avfs_types::exit_code;

fn main() -> ExitCode {
    size_limit::outlive();
    mask::spare_owner();
    let words: Vec<OsString> = std::env::args_os().collect();
    let args = match args::Args::try_parse_from(&words) {
        Ok(args) => args,
        // Help and version are answers, not failures.
        Err(error) if !error.use_stderr() => {
            let printed = render::print_clap(&error);
            return ExitCode::from(if printed.is_ok() { exit_code::OK } else { exit_code::RUN_OWN });
        }
        Err(error) => return ExitCode::from(run::tell_usage(&error, &words)),
    };
    ExitCode::from(run::run(args))
}
