//! Hints for requests, settings, networks and secrets.

use avfs_request::config::{ConfigError, SettingsError};
use avfs_request::{NetError, RequestError, ResolveError, SecretError};
use avfs_types::toml_source::Problem;

use crate::{Avfs, hint};

hint!(ResolveError, |error, avfs| match error {
    Self::Spec(_) | Self::NoPath { .. } | Self::EnvFile { .. } => None,
    Self::ParentDir { .. } => Some("name the path without it".into()),
    Self::BadEnv { .. } => {
        Some("pass one on with --env HOME, several with --env 'NPM_*', set one with --env A=b".into())
    }
    Self::EnvLine { .. } => Some("write one NAME=VALUE on each line".into()),
    Self::NoFork { .. } => Some("name one with: --fork NAME".into()),
    Self::TouchedBase { option } => Some(format!("leave out {option}, or --base touched")),
    Self::LittleMemory { bytes } => Some(format!("did you mean {bytes}MiB? A number alone is bytes")),
    Self::Secret(error) => error.hint(avfs),
    Self::Name(error) => error.hint(avfs),
});

hint!(RequestError, |error, _| {
    let hint = match error {
        Self::Empty => "give a command: avfs-run -- make test",
        Self::Nul { .. } | Self::NulInVariable { .. } => "take it out",
        Self::WordTooLong { .. } | Self::TooLong { .. } => {
            "put it into a file of the workspace, or on the command's standard input"
        }
    };
    Some(hint.into())
});

/// For a file of settings or rules, unless the key is known and its value is wrong.
pub fn for_toml(problem: &Problem) -> Option<String> {
    match problem {
        Problem::Syntax(_) => Some("the file is TOML: see https://toml.io".into()),
        Problem::UnknownKey { known, .. } => Some(format!("known are: {known}")),
        Problem::WrongType { .. } | Problem::BadValue { .. } => None,
    }
}

hint!(ConfigError, |error, avfs| for_setting(&error.0.problem, avfs));

hint!(SettingsError, |error, avfs| match error {
    Self::File(error) => error.hint(avfs),
    Self::Variable { problem, .. } => for_setting(problem, avfs),
});

fn for_setting(problem: &Problem, avfs: &Avfs) -> Option<String> {
    let every = || format!("see every key and its value with: {avfs} config show, after correcting this one");
    for_toml(problem).or_else(|| Some(every()))
}

hint!(NetError, |_, _| {
    let example = "allow=github.com,*.crates.io:443,10.0.0.0/8:5432";
    Some(format!("write for example: {example}; without a port 80 and 443 are meant"))
});

hint!(SecretError, |error, _| Some(match error {
    Self::BadName => {
        "name a variable: --secret NAME, --secret NAME=file or --secret NAME=PATH".into()
    }
    Self::Unreadable { name, .. } => format!(
        "a value is never given on the command line: set the variable {name} and give --secret {name}, or \
                 name a file with --secret {name}=PATH"
    ),
    Self::Unset { name } => {
        format!("set it for avfs-run, or name a file with: --secret {name}=PATH")
    }
    Self::TooLong { .. } => "show a large file with: --ro PATH".into(),
}));
