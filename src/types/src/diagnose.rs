//! What every error of the library can tell a person and a script: a stable code and what to do next.

use std::ffi::OsStr;

/// A stable code (part of the `--json` contract: never renamed) and a hint with the next command to run.
pub trait Diagnose: std::error::Error {
    /// The stable code of the error, such as `ref.invalid`. A code is never renamed.
    fn code(&self) -> &'static str;
    /// What the user can do about it, with the exact command where there is one.
    fn hint(&self) -> Option<String>;
    /// The code of what it came from, where that says more.
    fn cause(&self) -> Option<&'static str> {
        None
    }
}

/// An error and its causes, after colons.
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

/// The option that names a vault, with a blank before it, as a shell has to be given it; nothing for none.
#[must_use]
pub fn vault_words(option: Option<&OsStr>) -> String {
    option.map(|vault| format!(" --vault {}", shell_word(vault))).unwrap_or_default()
}

/// The same text with [`vault_words`] in the commands it tells to call; those that name a vault, or make one, stay.
#[must_use]
pub fn naming_vault(text: &str, words: &str) -> String {
    if words.is_empty() || text.contains("--vault") {
        return text.to_owned();
    }
    let mut named = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("avfs ") {
        let (before, after) = rest.split_at(at + "avfs".len());
        named.push_str(before);
        let told = named.strip_suffix("avfs").unwrap_or_default();
        let begins = told.is_empty() || [": ", ", ", "&& "].iter().any(|end| told.ends_with(end));
        let verb = after.trim_start().split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        if begins && !["", "init"].contains(&verb) {
            named.push_str(words);
        }
        rest = after;
    }
    named.push_str(rest);
    named
}

/// A word as a shell has to be given it.
#[must_use]
pub fn shell_word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
