//! The command line of `avfs-run`, as far as it is settled.

use std::ffi::OsString;

use clap::Parser;

/// Run one command over a fork of the workspace, in a sandbox.
///
/// The sandbox is not part of this version: every run ends with exit code 121 and nothing is executed.
#[derive(Parser, Debug)]
#[command(
    name = "avfs-run",
    version,
    after_help = "Examples:\n  avfs-run -- make test\n  avfs-run --json -- cargo build"
)]
pub struct Args {
    /// The vault: a path, or the name of one of the user's vaults
    #[arg(long, value_name = "PATH|NAME")]
    pub vault: Option<OsString>,
    /// Run on this fork instead of an ephemeral one
    #[arg(long, value_name = "NAME")]
    pub fork: Option<String>,
    /// Print one JSON envelope to stdout
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_after_two_dashes_is_never_an_option() {
        let args = Args::try_parse_from(["avfs-run", "--json", "--", "ls", "--json", "--fork"]).unwrap();
        assert_eq!(args.command, ["ls", "--json", "--fork"]);
        assert!(args.fork.is_none());
    }

    #[test]
    fn a_command_is_required() {
        assert!(Args::try_parse_from(["avfs-run"]).is_err());
    }
}
