//! The stable code of every error, for scripts; and quoting of words for a shell.

use std::ffi::OsStr;

/// A stable code, part of the `--json` contract. Hints for people are in `avfs_present::Hint`.
pub trait Diagnose: std::error::Error {
    /// The stable code of the error, such as `ref.invalid`. A code is never renamed.
    fn code(&self) -> &'static str;
    /// The code of the cause, if it is more specific.
    fn cause(&self) -> Option<&'static str> {
        None
    }
}

/// An error and its causes, separated by colons.
pub fn with_causes(error: &(dyn std::error::Error + '_)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        text.push_str(": ");
        text.push_str(&found.to_string());
        cause = found.source();
    }
    text
}

/// Quotes a word for a shell.
#[must_use]
pub fn shell_word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
