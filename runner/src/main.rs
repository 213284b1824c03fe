//! The command `avfs-run`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(avfs_run::main(std::env::args_os().collect()))
}
