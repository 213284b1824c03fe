//! Hints: what the user can do about an error. The library returns codes and facts; the sentences and the
//! commands to run next are here, or next to the errors of `avfs` and `avfs-run`.
//!
//! Each error that a command can end with implements [`Hint`] by a match that names every variant, so a
//! variant without a hint does not compile. Commands start with `{avfs}`, an [`Avfs`], which includes the
//! vault that the user named. A word with arbitrary content goes through `shell_word`.

mod changes;
mod engine;
mod lists;
mod policy;
mod request;
mod types;
mod vault;

pub use changes::merge_commits;
pub use vault::DISK_FULL;

use std::ffi::{OsStr, OsString};
use std::fmt;

use avfs_types::diagnose::{Diagnose, shell_word, with_causes};
use avfs_wire::ErrorBody;

/// An error with a hint.
pub trait Hint: Diagnose {
    /// What to do next, with the exact command if there is one.
    fn hint(&self, avfs: &Avfs) -> Option<String>;
}

/// The lines of a usage error as clap renders it, without its last line, which a hint replaces, and without its advice
/// to pass a mistyped option as an argument.
#[must_use]
pub fn usage_lines(rendered: &str) -> Vec<&str> {
    let text = rendered.split("\nFor more information").next().unwrap_or_default().trim_end();
    let advised = text.lines().filter(|line| !line.trim_start().starts_with("tip: to pass '"));
    let mut lines: Vec<&str> = Vec::new();
    for line in advised {
        if !line.is_empty() || lines.last().is_some_and(|last| !last.is_empty()) {
            lines.push(line);
        }
    }
    lines
}

/// Implements [`Hint`] for an error type: `hint!(SomeError, |error, avfs| match error { … })`, with `Self`
/// for the type.
#[macro_export]
macro_rules! hint {
    ($error:ty, $hint:expr) => {
        impl $crate::Hint for $error {
            fn hint(&self, avfs: &$crate::Avfs) -> Option<String> {
                let hint: fn(&$error, &$crate::Avfs) -> Option<String> = $hint;
                hint(self, avfs)
            }
        }
    };
}

/// The `avfs` command in hints: with `--vault` if the user gave it. Prints as `avfs`, or `avfs --vault WORD`.
#[derive(Clone, Debug, Default)]
pub struct Avfs {
    /// The value of `--vault`, as typed.
    pub vault: Option<OsString>,
}

impl Avfs {
    /// For commands that were called with this value of `--vault`.
    #[must_use]
    pub fn on(vault: Option<&OsStr>) -> Self {
        Self { vault: vault.map(OsStr::to_owned) }
    }
}

impl fmt::Display for Avfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("avfs")?;
        self.vault.iter().try_for_each(|vault| write!(f, " --vault {}", shell_word(vault)))
    }
}

/// The printed form of an error: its code, its message with the causes, and its hint.
#[must_use]
pub fn error_body(error: &dyn Hint, avfs: &Avfs) -> ErrorBody {
    ErrorBody { code: error.code().to_owned(), message: with_causes(error), hint: error.hint(avfs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_errors_do_not_advise_to_pass_an_option_as_an_argument() {
        let rendered = "error: unexpected argument '--forse' found\n\n  tip: a similar argument exists: '--force'\n  \
                        tip: to pass '--forse' as a value, use '-- --forse'\n\nUsage: avfs\n\nFor more information, try\n";
        let lines = usage_lines(rendered);
        assert_eq!(lines[1..], ["", "  tip: a similar argument exists: '--force'", "", "Usage: avfs"]);
        let only = "error: x\n\n  tip: to pass '-c' as a value, use '-- -c'\n\nUsage: avfs\n";
        assert_eq!(usage_lines(only), ["error: x", "", "Usage: avfs"]);
    }

    #[test]
    fn hints_repeat_the_vault_option() {
        assert_eq!(Avfs::default().to_string(), "avfs");
        assert_eq!(Avfs::on(Some(OsStr::new("work"))).to_string(), "avfs --vault work");
        assert_eq!(Avfs::on(Some(OsStr::new("it's $x"))).to_string(), r"avfs --vault 'it'\''s $x'");
    }
}
