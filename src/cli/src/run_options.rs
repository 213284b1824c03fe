//! What verbs that give work to `avfs-run` take of its options, and the command they give.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use clap::{ArgGroup, Args};
use serde_json::{Value, json};

use avfs_request::choices::PolicyProfile;
use avfs_request::request_file::RequestFile;
use avfs_request::{
    BackendChoice, CpuLimit, ExecutionTimeout, FixedClock, LandlockMode, NetMode, Profile, ScratchChoice,
    SeccompProfile,
};
use avfs_types::base64::base64;
use avfs_types::{CommandLine, Limit, Size};

/// Options of avfs-run, as they were typed. What they mean is avfs-run's business; that they mean something is looked at
/// here, before anything is begun.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of avfs-run (see: avfs-run --help)")]
pub struct RunOptions {
    /// How long each command may run: 90s, 10m, 2h, or none
    #[arg(long, value_name = "TIME", value_parser = checked::<ExecutionTimeout>)]
    timeout: Option<String>,
    /// How long it has to end after SIGTERM
    #[arg(long, value_name = "TIME", value_parser = checked::<ExecutionTimeout>)]
    grace: Option<String>,
    /// The network: none, host, or allow=PLACE,...
    #[arg(long, value_name = "NET", value_parser = checked::<NetMode>)]
    net: Option<String>,
    /// Pass a variable on, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Set the variables of a file
    #[arg(long, value_name = "FILE")]
    env_file: Vec<OsString>,
    /// Give a secret
    #[arg(long, value_name = "NAME[=file|=PATH]")]
    secret: Vec<OsString>,
    /// Show a path of the host, read-only
    #[arg(long, value_name = "PATH")]
    ro: Vec<OsString>,
    /// Show a path of the host, for reading and writing
    #[arg(long, value_name = "PATH")]
    rw: Vec<OsString>,
    /// Put an empty directory in memory there
    #[arg(long, value_name = "PATH")]
    tmpfs: Vec<OsString>,
    /// Hide a path
    #[arg(long, value_name = "PATH")]
    hide: Vec<OsString>,
    /// The working directory, from the workspace's root
    #[arg(long, value_name = "DIR")]
    cwd: Option<OsString>,
    /// Where the workspace is seen inside
    #[arg(long, value_name = "DIR")]
    at: Option<OsString>,
    /// How much of the host is seen: strict or host
    #[arg(long, value_name = "PROFILE", value_parser = checked::<Profile>)]
    profile: Option<String>,
    /// Hold to this policy profile too: agent or ci
    #[arg(long, value_name = "PROFILE", value_parser = checked::<PolicyProfile>)]
    policy: Vec<String>,
    /// How much memory each command may use
    #[arg(long, value_name = "SIZE", value_parser = checked::<Limit>)]
    memory: Option<String>,
    /// How many processors each may use
    #[arg(long, value_name = "N", value_parser = checked::<CpuLimit>)]
    cpus: Option<String>,
    /// How many processes each may have
    #[arg(long, value_name = "N", value_parser = checked::<Limit>)]
    pids: Option<String>,
    /// How much each may write
    #[arg(long, value_name = "SIZE", value_parser = checked::<Limit>)]
    disk: Option<String>,
    /// How many files each may make or delete
    #[arg(long, value_name = "N", value_parser = checked::<Limit>)]
    files: Option<String>,
    /// How large one file may become
    #[arg(long, value_name = "SIZE", value_parser = checked::<Limit>)]
    file_size: Option<String>,
    /// How much of each stream is kept
    #[arg(long, value_name = "SIZE", value_parser = checked::<Size>)]
    output_max: Option<String>,
    /// Where what a command writes goes first: auto, memory or disk
    #[arg(long, value_name = "SCRATCH", value_parser = checked::<ScratchChoice>)]
    scratch: Option<String>,
    /// How the workspace is made writable: auto, overlay or copy
    #[arg(long, value_name = "BACKEND", value_parser = checked::<BackendChoice>)]
    backend: Option<String>,
    /// Which system calls are refused: default, strict or off
    #[arg(long, value_name = "PROFILE", value_parser = checked::<SeccompProfile>)]
    seccomp: Option<String>,
    /// Whether Landlock enforces what is seen a second time: auto, required or off
    #[arg(long, value_name = "MODE", value_parser = checked::<LandlockMode>)]
    landlock: Option<String>,
    /// A file or directory of the host that results depend on (avfs cache)
    #[arg(long, value_name = "PATH")]
    input: Vec<OsString>,
    /// The time that is the present for each command: with =TIME, else 1980-01-01T00:00:00Z
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "@315532800")]
    #[arg(value_parser = checked::<FixedClock>)]
    clock_fixed: Option<String>,
    /// Make each command come out the same again: a fixed clock, host name, mask and environment
    #[arg(long)]
    reproducible: bool,
    /// Results may be remembered although commands use the network or paths of the host
    #[arg(long)]
    pure: bool,
    /// Let commands make user namespaces of their own
    #[arg(long)]
    allow_userns: bool,
    /// Keep files in which the value of a secret is found
    #[arg(long)]
    allow_secret_files: bool,
    /// Run with less isolation where the host refuses a piece, and say so
    #[arg(long)]
    allow_degraded: bool,
}

/// A word that an option of avfs-run takes.
fn checked<T: FromStr>(text: &str) -> Result<String, T::Err> {
    text.parse::<T>().map(|_| text.to_owned())
}

impl RunOptions {
    /// As avfs-run takes them.
    pub fn words(&self) -> Vec<OsString> {
        let text = |option: &'static str, value: &Option<String>| {
            value.iter().map(|value| pair(option, OsStr::new(value))).collect::<Vec<_>>()
        };
        let all = |option: &'static str, values: &[OsString]| {
            values.iter().map(|value| pair(option, value)).collect::<Vec<_>>()
        };
        let switch = |option: &str, on: bool| on.then(|| OsString::from(option));
        let mut words: Vec<OsString> = [
            text("--timeout", &self.timeout),
            text("--grace", &self.grace),
            text("--net", &self.net),
            all("--env", &self.env),
            all("--env-file", &self.env_file),
            all("--secret", &self.secret),
            all("--ro", &self.ro),
            all("--rw", &self.rw),
            all("--tmpfs", &self.tmpfs),
            all("--hide", &self.hide),
            all("--cwd", self.cwd.as_slice()),
            all("--at", self.at.as_slice()),
            text("--profile", &self.profile),
            self.policy.iter().map(|profile| pair("--policy", OsStr::new(profile))).collect(),
            text("--memory", &self.memory),
            text("--cpus", &self.cpus),
            text("--pids", &self.pids),
            text("--disk", &self.disk),
            text("--files", &self.files),
            text("--file-size", &self.file_size),
            text("--output-max", &self.output_max),
            text("--scratch", &self.scratch),
            text("--backend", &self.backend),
            text("--seccomp", &self.seccomp),
            text("--landlock", &self.landlock),
            all("--input", &self.input),
            text("--clock-fixed", &self.clock_fixed),
        ]
        .concat();
        words.extend(switch("--reproducible", self.reproducible));
        words.extend(switch("--pure", self.pure));
        words.extend(switch("--allow-userns", self.allow_userns));
        words.extend(switch("--allow-secret-files", self.allow_secret_files));
        words.extend(switch("--allow-degraded", self.allow_degraded));
        words
    }
}

/// One word, so that a value that looks like an option is none.
fn pair(option: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(option);
    word.push("=");
    word.push(value);
    word
}

/// A command, or a line for a shell.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("what").args(["command", "shell"]))]
pub struct CommandWords {
    /// A line for /bin/sh -c, in place of a command
    #[arg(long, value_name = "LINE")]
    shell: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl CommandWords {
    /// Nothing if there is neither a command nor a line.
    pub fn line(&self) -> Option<CommandLine> {
        match &self.shell {
            Some(line) => Some(CommandLine::Shell(line.clone())),
            None => (!self.command.is_empty()).then(|| CommandLine::Argv(self.command.clone())),
        }
    }
}

/// A request for a command, and nothing else.
pub fn command_request(command: &CommandLine) -> RequestFile {
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
    RequestFile { command, command_base64, command_mode: Some(mode.to_owned()), ..RequestFile::default() }
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
    fn a_command_is_the_same_as_a_request() {
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
    fn options_are_passed_on_as_they_are() {
        let typed = ["x", "--timeout", "9s", "--env", "--json", "--env=A=b", "--allow-userns", "--", "--net"];
        let parsed = Both::try_parse_from(typed);
        // A value that looks like an option needs its equals sign, here as everywhere.
        assert!(parsed.is_err());
        let typed = ["x", "--timeout", "9s", "--env=--json", "--env=A=b", "--allow-userns", "--", "--net"];
        let parsed = Both::try_parse_from(typed).unwrap();
        assert_eq!(parsed.options.words(), ["--timeout=9s", "--env=--json", "--env=A=b", "--allow-userns"]);
        assert_eq!(parsed.what.line(), Some(CommandLine::Argv(vec!["--net".into()])));
    }

    #[test]
    fn bad_values_are_refused_before_anything_is_begun() {
        for bad in ["--timeout=soon", "--net=some", "--memory=much", "--cpus=-1", "--profile=x", "--policy=x"]
        {
            assert!(Both::try_parse_from(["x", bad, "--", "true"]).is_err(), "{bad}");
        }
        assert!(Both::try_parse_from(["x", "--shell", "a", "--", "b"]).is_err());
    }
}
