//! The option that was meant by one that does not exist, or by a value that belongs to another option.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use avfs_request::choices::PolicyProfile;
use avfs_request::{AllowList, NetMode, Profile};

/// The hint for a usage error; `None` if nothing is known. `has` is true for the long options of the command.
pub fn option_meant(error: &clap::Error, words: &[OsString], has: impl Fn(&str) -> bool) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let arg = text(ContextKind::InvalidArg)?;
    let meant = if error.kind() == ErrorKind::UnknownArgument {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg, after(words, arg)),
        };
        match name {
            "--network" if has("net") => Some(format!("--net {}", network(value))),
            "-c" if has("shell") => Some("--shell LINE".to_owned()),
            _ => None,
        }
    } else if error.kind() == ErrorKind::ValueValidation {
        let value = text(ContextKind::InvalidValue)?;
        match arg.split(' ').next()? {
            "--net" if is_place(value) => Some(format!("--net allow={value}")),
            "--profile" if value.parse::<PolicyProfile>().is_ok() => Some(format!("--policy {value}")),
            "--policy" if value.parse::<Profile>().is_ok() => Some(format!("--profile {value}")),
            _ => None,
        }
    } else {
        None
    };
    meant.map(|option| format!("did you mean: {option}"))
}

/// The word after an option, or its value in the same word.
fn after<'w>(words: &'w [OsString], option: &str) -> Option<&'w str> {
    let mut words = words.iter().filter_map(|word| word.to_str());
    let found = words.find_map(|word| match word.strip_prefix(option) {
        Some("") => Some(None),
        Some(rest) => rest.strip_prefix('=').map(Some),
        None => None,
    })?;
    found.or_else(|| words.next())
}

fn network(value: Option<&str>) -> String {
    match value {
        Some(value) if value.parse::<NetMode>().is_ok() => value.to_owned(),
        Some(value) if is_place(value) => format!("allow={value}"),
        Some(_) | None => "none|host|allow=DOMAIN,…".to_owned(),
    }
}

/// True for a domain, an address or a list of them, but not for a single word.
fn is_place(value: &str) -> bool {
    value.contains(['.', ':']) && AllowList::parse(value).is_ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::command::args::Args;

    #[test]
    fn options_of_other_tools_are_answered_with_the_option_that_was_meant() {
        let meant = |words: &[&str]| {
            let words: Vec<OsString> =
                ["avfs-run"].iter().chain(words).chain(&["--", "true"]).map(OsString::from).collect();
            let error = Args::try_parse_from(&words).unwrap_err();
            option_meant(&error, &words, |_| true).unwrap_or_default()
        };
        for (words, option) in [
            (&["--net", "github.com"][..], "--net allow=github.com"),
            (&["--net=github.com,10.0.0.0/8:5432"], "--net allow=github.com,10.0.0.0/8:5432"),
            (&["--network", "host"], "--net host"),
            (&["--network=github.com"], "--net allow=github.com"),
            (&["--network", "bridge"], "--net none|host|allow=DOMAIN,…"),
            (&["-c", "ls | wc"], "--shell LINE"),
            (&["--profile", "agent"], "--policy agent"),
            (&["--policy", "strict"], "--profile strict"),
        ] {
            assert_eq!(meant(words), format!("did you mean: {option}"), "{words:?}");
        }
        for words in [&["--net", "on"][..], &["--profile", "x"], &["--policy", "x"], &["--nothing"], &["-x"]]
        {
            assert_eq!(meant(words), "", "{words:?}");
        }
    }
}
