//! `avfs-run`: runs one command over a fork of a workspace.
//!
//! This version knows its command line and its exit codes, and that it cannot run anything yet: the sandbox
//! is not built. It says so instead of running a command unconfined.

mod args;
mod report;

use std::io::Write;
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
    let report = report::not_available(&args);
    let written = if args.json {
        writeln!(std::io::stdout().lock(), "{}", report.envelope)
    } else {
        writeln!(std::io::stderr().lock(), "{}", report.message)
    };
    match written {
        Ok(()) => ExitCode::from(exit_code::RUN_SETUP),
        Err(_) => ExitCode::from(exit_code::RUN_OWN),
    }
}
