//! `avfs proxy exec`

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::commands::execute::run_as;
use crate::ui::Outcome;

/// Run a command with avfs-run (an alias for agents)
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs proxy exec -- make test
  avfs proxy exec --fork fix-1 --json -- cargo test")]
pub struct ProxyArgs {
    #[command(subcommand)]
    action: ProxyAction,
}

#[derive(Debug, Subcommand)]
enum ProxyAction {
    Exec(ExecArgs),
}

/// Run one command: pass all arguments to avfs-run unchanged
///
/// Options, output and exit codes are those of avfs-run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs proxy exec -- make test
  avfs proxy exec --request request.json")]
struct ExecArgs {
    /// Arguments of avfs-run (see: avfs-run --help)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "AVFS-RUN ARGUMENTS")]
    words: Vec<OsString>,
}

pub fn run(_: &ProxyArgs) -> Outcome {
    Ok(run_as(&["proxy", "exec"], &[]))
}
