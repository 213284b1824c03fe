//! A command, as executed and as displayed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::diagnose::shell_word;
use crate::printable::text_of;

/// The command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// A program and its arguments, started without a shell.
    Argv(Vec<OsString>),
    /// A line for `/bin/sh -c`.
    Shell(OsString),
}

impl CommandLine {
    /// The argv to execute.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        match self {
            Self::Argv(words) => words.clone(),
            Self::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        }
    }

    /// The command on one line, quoted for a shell, for people and messages.
    #[must_use]
    pub fn shown(&self) -> String {
        self.shown_with(|word| word)
    }

    /// The same, with `scrub` applied to each word: quotes could hide the value of a secret.
    pub fn shown_with(&self, scrub: impl Fn(String) -> String) -> String {
        match self {
            Self::Argv(words) => {
                let words = words.iter().map(|word| shell_word(OsStr::new(&scrub(shown_word(word)))));
                words.collect::<Vec<_>>().join(" ")
            }
            Self::Shell(line) => scrub(shown_word(line)),
        }
    }
}

/// A word for people and JSON: bytes that are not UTF-8 are escaped.
#[must_use]
pub fn shown_word(word: &OsStr) -> String {
    text_of(word.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_shown_escaped() {
        assert_eq!(shown_word(OsStr::from_bytes(b"a\xff\xfe b\xc3\xa9")), "a\\xff\\xfe b\u{e9}");
        let line = CommandLine::Argv(vec!["ls".into(), OsStr::from_bytes(b"\xff").into()]);
        assert_eq!(line.shown(), "ls '\\xff'");
    }

    #[test]
    fn a_command_is_quoted_after_secrets_are_removed() {
        let line = CommandLine::Argv(vec!["sh".into(), "-c".into(), "echo 'x y' > c".into()]);
        assert_eq!(line.shown(), r"sh -c 'echo '\''x y'\'' > c'");
        assert_eq!(line.shown_with(|word| word.replace("'x y'", "***")), "sh -c 'echo *** > c'");
        assert_eq!(CommandLine::Shell("echo 'x y'".into()).shown(), "echo 'x y'");
    }
}
