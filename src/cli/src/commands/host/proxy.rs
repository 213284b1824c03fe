//! `avfs proxy exec`

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Failure, Outcome};

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

pub fn run(_ctx: &CommandContext, args: &ProxyArgs) -> Outcome {
    let ProxyAction::Exec(_) = &args.action;
    match become_runner(&["proxy", "exec"], &[])? {}
}

/// Becomes avfs-run, with these options first. The words are taken as they were typed: what is avfs-run's own to understand must not be
/// understood here first.
pub fn become_runner(verb: &[&str], options: &[&str]) -> Result<Infallible, Failure> {
    let runner = crate::context::runner();
    let mut command = Command::new(&runner);
    avfs_hostfs::mask::restore();
    command.args(options).args(without_verb(verb, std::env::args_os().collect()));
    Err(EdgeError::host("start", &runner)(command.exec()).into())
}

/// Everything but the program and the words of the verb; options for every verb stand before or between them.
fn without_verb(verb: &[&str], words: Vec<OsString>) -> Vec<OsString> {
    let mut verb = verb.iter().peekable();
    words.into_iter().skip(1).filter(|word| verb.next_if(|next| word == **next).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_verb_is_taken_out() {
        for (typed, given) in [
            ("avfs proxy exec -- proxy exec", "-- proxy exec"),
            ("avfs --vault v proxy --json exec --fork f -- ls", "--vault v --json --fork f -- ls"),
            ("avfs --vault proxy proxy exec -- exec", "--vault proxy -- exec"),
        ] {
            let words = typed.split(' ').map(OsString::from).collect();
            let given: Vec<OsString> = given.split(' ').map(OsString::from).collect();
            assert_eq!(without_verb(&["proxy", "exec"], words), given, "{typed}");
        }
    }
}
