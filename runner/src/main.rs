//! `avfs-run`: runs one command over a fork of a workspace, in a sandbox, and keeps what it changed.
//!
//! Three processes: the supervisor (this one, outside), init (process 1 inside) and the payload (the
//! command). See docs/ARCHITECTURE.md.

mod args;
mod control;
mod error;
mod idmap;
mod init;
mod launch;
mod prepare;
mod probe;
mod remedy;
mod render;
mod run;
mod settings;
mod stage;
mod stdio;
mod supervisor;
mod sys;

use std::process::ExitCode;

use clap::Parser;

use avfs::exit_code;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are answers, not failures; everything else is bad usage.
            let failed = error.use_stderr();
            let printed = error.print();
            let code = if failed || printed.is_err() { exit_code::RUN_OWN } else { exit_code::OK };
            return ExitCode::from(code);
        }
    };
    ExitCode::from(run::run(&args))
}
