//! `avfs run`

use std::ffi::OsString;

use clap::Args;

use crate::ui::Outcome;

/// Run a command over a fork of the workspace (the same as avfs-run)
///
/// Options, output and exit codes are those of avfs-run (see: avfs run --help).
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  avfs run -- make test
  avfs run --fork fix-1 --json -- cargo test")]
pub struct RunArgs {
    /// Arguments of avfs-run (see: avfs run --help)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "AVFS-RUN ARGUMENTS")]
    words: Vec<OsString>,
}

pub fn run(_: &RunArgs) -> Outcome {
    Ok(run_as(&["run"], &[]))
}

/// Runs `avfs-run` with these options and the arguments of this process, without the words of the verb.
/// Returns the exit code. The arguments are passed unchanged: only avfs-run parses them.
pub fn run_as(verb: &[&str], options: &[&str]) -> u8 {
    let mut words = vec![OsString::from("avfs-run")];
    words.extend(options.iter().map(OsString::from));
    words.extend(without_verb(verb, std::env::args_os().collect()));
    avfs_hostfs::mask::restore();
    avfs_run::main(words)
}

/// All arguments except the program and the words of the verb. Global options may be before or between those
/// words.
fn without_verb(verb: &[&str], words: Vec<OsString>) -> Vec<OsString> {
    let mut verb = verb.iter().peekable();
    words.into_iter().skip(1).filter(|word| verb.next_if(|next| word == **next).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_verb_is_removed() {
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
