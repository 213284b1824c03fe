//! Hints for requests, settings, networks and secrets.

use avfs_request::config::{ConfigError, SettingsError};
use avfs_request::{NetError, RequestError, ResolveError, SecretError};
use avfs_types::Size;
use avfs_types::toml_source::Problem;

use crate::{Avfs, hint};

hint!(ResolveError, |error, avfs| match error {
    Self::Spec(_) | Self::EnvFile { .. } => None,
    Self::NoPath { .. } => Some("check the spelling, or create it first".into()),
    Self::ParentDir { .. } => Some("use a path without ..".into()),
    Self::BadEnv { .. } => {
        Some("pass one on with --env HOME, several with --env 'NPM_*', set one with --env A=b".into())
    }
    Self::EnvLine { .. } => Some(
        "write one NAME=VALUE per line; a name has letters, digits and _, and does not start with a digit"
            .into(),
    ),
    Self::NoFork { .. } => Some("name one with: --fork NAME".into()),
    Self::TouchedBase { option } => Some(format!("omit {option} or --base touched")),
    Self::PureWithoutCache => Some("add --cache read or --cache write, or omit --pure".into()),
    Self::LittleMemory { bytes } => did_you_mean_size(*bytes),
    Self::Secret(error) => error.hint(avfs),
    Self::Name(error) => error.hint(avfs),
});

hint!(RequestError, |error, _| {
    let hint = match error {
        Self::Empty => "give a command: avfs-run -- make test",
        Self::Nul { .. } | Self::NulInVariable { .. } => "remove it",
        Self::WordTooLong { .. } | Self::TooLong { .. } => {
            "put it into a file in the workspace, or pass it on standard input"
        }
    };
    Some(hint.into())
});

/// The hint for a limit on memory that is too small for any program.
fn did_you_mean_size(bytes: u64) -> Option<String> {
    match bytes {
        1..1024 => Some(format!("did you mean {bytes}MiB? A number alone is bytes")),
        bytes if bytes % 1024 == 0 => Some(format!("did you mean {}MiB?", bytes / 1024)),
        _ => Some("the smallest limit is 1MiB".into()),
    }
}

/// The hint for a file of settings or rules; `None` if the key is known but its value is wrong.
pub fn for_toml(problem: &Problem) -> Option<String> {
    match problem {
        Problem::Syntax(_) => Some("the file is TOML: see https://toml.io".into()),
        Problem::UnknownKey { known, .. } => Some(format!("known keys: {known}")),
        Problem::BadValue { key, value, .. } if key == "caps.memory" => {
            did_you_mean_size(value.parse::<Size>().ok()?.0)
        }
        Problem::WrongType { .. } | Problem::BadValue { .. } => None,
    }
}

hint!(ConfigError, |error, avfs| for_setting(&error.0.problem, avfs));

hint!(SettingsError, |error, avfs| match error {
    Self::File(error) => error.hint(avfs),
    Self::Variable { problem, .. } => for_setting(problem, avfs),
});

fn for_setting(problem: &Problem, avfs: &Avfs) -> Option<String> {
    let every = || format!("correct it, then list all keys and values with: {avfs} config show");
    for_toml(problem).or_else(|| Some(every()))
}

hint!(NetError, |_, _| {
    let example = "allow=github.com,*.crates.io:443,10.0.0.0/8:5432";
    Some(format!("for example: {example}; the default ports are 80 and 443"))
});

hint!(SecretError, |error, _| Some(match error {
    Self::BadName => {
        "name a variable: --secret NAME, --secret NAME=file or --secret NAME=PATH".into()
    }
    Self::Unreadable { name, .. } => format!(
        "do not give values on the command line: set the variable {name} and use --secret {name}, or \
                 name a file with --secret {name}=PATH"
    ),
    Self::Unset { name } => {
        format!("set it in the environment of avfs-run, or name a file with: --secret {name}=PATH")
    }
    Self::TooLong { .. } => "use a large file with: --ro PATH".into(),
}));
