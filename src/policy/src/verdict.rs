//! What is said about a command, by whom and where.

use std::fmt;
use std::path::PathBuf;

use avfs_types::words;

use crate::decision::Action;
use crate::reading::Judged;

/// Words of a command that a sentence about it shows.
const SHOWN_CHARS_MAX: usize = 60;

words!(
    /// Who wrote a policy file, the mightiest first.
    Tier, "layer", {
        System = "system",
        User = "user",
        /// The project's own: it may come from anybody.
        Vault = "vault",
    }
);

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePlace {
    pub file: PathBuf,
    pub line: usize,
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A value and the line that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    pub place: RulePlace,
}

words!(
    /// Whether something is meant; ordered, so that the least of several holds of them together.
    Fit, "fit", {
        No = "no",
        /// A word that only the shell will know decides it.
        May = "may",
        Sure = "sure",
    }
);

/// What may happen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub action: Action,
    /// `builtin.networked`, or the name of a rule.
    pub rule: String,
    /// A sentence for people and agents.
    pub reason: String,
    pub hint: Option<String>,
}

impl Verdict {
    /// The stricter of two, the first of equals.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if other.action > self.action { other } else { self }
    }
}

/// A command in a sentence: cut where it is long.
#[must_use]
pub fn shown(command: &Judged) -> String {
    let mut text = String::new();
    for word in &command.words {
        if text.chars().count() >= SHOWN_CHARS_MAX {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word.shown());
    }
    // A line break would make two sentences of one.
    let text = text.replace(char::is_control, " ");
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}
