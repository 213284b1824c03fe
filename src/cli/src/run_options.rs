//! The options of `avfs-run` that other verbs accept too, passed on as they were typed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::parser::ValueSource;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Value, json};

use avfs_request::RunSpec;
use avfs_types::CommandLine;
use avfs_types::base64::base64;

use crate::error::EdgeError;

/// Options that verbs with many commands set themselves.
const OF_THE_VERB: [&str; 13] = [
    "command",
    "shell",
    "vault",
    "fork",
    "from",
    "base",
    "apply",
    "discard",
    "readonly",
    "checkpoint",
    "cache",
    "approval",
    "approved",
];
const HEADING: &str = "Options of each command (see: avfs-run --help)";

/// Options for the commands that a verb gives to workers, as they were typed. The workers parse them; invalid
/// options are reported before anything is started.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    words: Vec<OsString>,
}

impl RunOptions {
    /// The options as arguments of avfs-run.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Fails for options that keep files for a persistent fork, if the commands run without one.
    pub fn check_without_fork(&self) -> Result<(), EdgeError> {
        let keeps = |option: &&str| self.words.iter().any(|word| word == *option);
        match ["--keep-tmp", "--home=persistent"].into_iter().find(keeps) {
            Some(option) => Err(EdgeError::KeepsWithoutFork { option: option.replace('=', " ") }),
            None => Ok(()),
        }
    }
}

/// The options of a run, except the omitted ones.
pub fn run_options(left_out: &[&str]) -> Vec<Arg> {
    let all = RunSpec::augment_args(Command::new(""));
    all.get_arguments().filter(|arg| !left_out.contains(&arg.get_id().as_str())).cloned().collect()
}

/// The arguments that reproduce these options.
pub fn typed(options: &[Arg], matches: &ArgMatches) -> Vec<OsString> {
    let mut words = Vec::new();
    for option in options {
        let (id, Some(long)) = (option.get_id().as_str(), option.get_long()) else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        match option.get_action().takes_values() {
            true => words.extend(matches.get_raw(id).into_iter().flatten().map(|value| pair(long, value))),
            false => words.push(format!("--{long}").into()),
        }
    }
    words
}

impl Args for RunOptions {
    fn augment_args(command: Command) -> Command {
        let options = run_options(&OF_THE_VERB).into_iter().map(|option| {
            let help = option.get_help().map(|help| first_clause(&help.to_string())).unwrap_or_default();
            option.help(help).help_heading(HEADING)
        });
        command.args(options)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RunOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { words: typed(&run_options(&OF_THE_VERB), matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The help of an option up to its first detail.
fn first_clause(help: &str) -> String {
    let end = ["; ", ". ", " ["].iter().filter_map(|mark| help.find(mark)).min();
    help[..end.unwrap_or(help.len())].to_owned()
}

/// Joins option and value into one word, so that a value that looks like an option is not parsed as one.
fn pair(option: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{option}="));
    word.push(value);
    word
}

/// A command, or a line for a shell.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("what").args(["command", "shell"]))]
pub struct CommandWords {
    /// Run this line with /bin/sh -c, instead of a command
    #[arg(long, value_name = "LINE")]
    shell: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl CommandWords {
    /// `None` if there is neither a command nor a line.
    pub fn line(&self) -> Option<CommandLine> {
        match &self.shell {
            Some(line) => Some(CommandLine::Shell(line.clone())),
            None => (!self.command.is_empty()).then(|| CommandLine::Argv(self.command.clone())),
        }
    }
}

/// A request with only a command.
pub fn command_request(command: &CommandLine) -> RunSpec {
    let (mode, words) = match command {
        CommandLine::Argv(words) => ("argv", words.clone()),
        CommandLine::Shell(line) => ("shell", vec!["/bin/sh".into(), "-c".into(), line.clone()]),
    };
    let texts: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let (command, command_base64) = match (texts, command) {
        (Some(texts), CommandLine::Argv(_)) => (json!(texts), None),
        (Some(texts), CommandLine::Shell(_)) => (json!(texts.last()), None),
        (None, _) => (Value::Null, Some(words.iter().map(|word| base64(word.as_bytes())).collect())),
    };
    RunSpec { command, command_base64, command_mode: Some(mode.to_owned()), ..RunSpec::default() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Both {
        #[command(flatten)]
        options: RunOptions,
        #[command(flatten)]
        what: CommandWords,
    }

    #[test]
    fn command_round_trips_through_a_request() {
        let odd = OsString::from_vec(vec![0xff]);
        for command in [
            CommandLine::Argv(vec!["a".into(), "b c".into()]),
            CommandLine::Argv(vec!["a".into(), odd.clone(), "c".into()]),
            CommandLine::Shell("a | b".into()),
            CommandLine::Shell(odd),
        ] {
            assert_eq!(command_request(&command).command_line(), Ok(command));
        }
    }

    #[test]
    fn options_are_passed_on_verbatim() {
        let typed = ["x", "--timeout", "9s", "--env", "--json", "--env=A=b", "--allow-userns", "--", "--net"];
        let parsed = Both::try_parse_from(typed);
        // A value that looks like an option needs an equals sign, as everywhere.
        assert!(parsed.is_err());
        let typed = ["x", "--timeout", "9s", "--env=--json", "--env=A=b", "--allow-userns", "--", "--net"];
        let parsed = Both::try_parse_from(typed).unwrap();
        assert_eq!(parsed.options.words(), ["--env=--json", "--env=A=b", "--allow-userns", "--timeout=9s"]);
        assert_eq!(parsed.what.line(), Some(CommandLine::Argv(vec!["--net".into()])));
    }

    #[test]
    fn bad_values_are_rejected_when_parsed() {
        for bad in ["--timeout=soon", "--net=some", "--memory=much", "--cpus=-1", "--profile=x", "--policy=x"]
        {
            assert!(Both::try_parse_from(["x", bad, "--", "true"]).is_err(), "{bad}");
        }
        assert!(Both::try_parse_from(["x", "--shell", "a", "--", "b"]).is_err());
    }
}
