//! The command line of `avfs-run`: from arguments to a request, and from its result to the output.

mod approve;
mod args;
mod cache;
mod error;
mod invocation;
mod listed;
mod meant;
mod render;
mod request_file;
mod run;
mod serve;
mod waiting;

use std::ffi::OsString;

use args::Args;
use clap::{CommandFactory, Parser};

use avfs_hostfs::{mask, size_limit};
use avfs_terminal::LOG_VARIABLE;
use avfs_types::exit_code;

use crate::{renames, sys};

pub use meant::option_meant;
pub use run::manual_page;

/// The exit code of a helper process of a run, if these arguments start one.
#[must_use]
pub fn as_helper(words: &[OsString]) -> Option<u8> {
    match words {
        [_, word, rest @ ..] if word == renames::WORD => Some(renames::help(rest)),
        _ => None,
    }
}

/// The options of `avfs-run`, for completion scripts.
#[must_use]
pub fn command_line() -> clap::Command {
    Args::command()
}

/// Runs the command line `words`, the first of which is the program's name. Returns the exit code.
#[must_use]
pub fn main(words: Vec<OsString>) -> u8 {
    if let Some(code) = as_helper(&words) {
        return code;
    }
    // Scripts often ask for the version first; building the option parser takes longer than the answer.
    if let [_, word] = words.as_slice()
        && (word == "--version" || word == "-V")
    {
        return match render::print_version() {
            Ok(()) => exit_code::OK,
            Err(_) => exit_code::RUN_OWN,
        };
    }
    avfs_terminal::start_log(std::env::var(LOG_VARIABLE).ok().as_deref());
    size_limit::handle_sigxfsz();
    mask::set_umask();
    match Args::try_parse_from(&words) {
        Ok(args) => {
            let code = run::run(args);
            if code == exit_code::INTERRUPTED {
                sys::end_as_interrupted();
            }
            code
        }
        // Help and version output are not failures.
        Err(error) if !error.use_stderr() => match render::print_clap(&error) {
            Ok(()) => exit_code::OK,
            Err(_) => exit_code::RUN_OWN,
        },
        Err(error) => run::print_usage_error(&error, &words),
    }
}
