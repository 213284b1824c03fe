//! `avfs proxy exec`

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::commands::execute::run_as;
use crate::ui::Outcome;

/// Run a command as avfs-run does, under the name agents may know
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

/// Run one command: what follows is given to avfs-run as it is
///
/// Options, output and exit codes are those of avfs-run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs proxy exec -- make test
  avfs proxy exec --request request.json")]
struct ExecArgs {
    /// What avfs-run takes (see: avfs-run --help)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "AVFS-RUN ARGUMENTS")]
    words: Vec<OsString>,
}

pub fn run(_: &ProxyArgs) -> Outcome {
    Ok(run_as(&["proxy", "exec"], &[]))
}
