//! A verdict on a command, with its source.

use std::fmt;
use std::path::PathBuf;

use avfs_types::words;

use crate::decision::Action;
use crate::reading::Judged;

/// The maximum length of a command in a message.
const SHOWN_CHARS_MAX: usize = 60;

words!(
    /// The author of a policy file, highest authority first.
    Tier, "layer", {
        System = "system",
        User = "user",
        /// The project's own file, which may be untrusted.
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
    /// Whether a rule matches; ordered, so that the minimum applies to several conditions together.
    Fit, "fit", {
        No = "no",
        /// It depends on an unknown word.
        May = "may",
        Sure = "sure",
    }
);

/// An action, and the reason for it.
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

/// A command for a message, shortened if it is long.
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
    // A line break would split the message.
    let text = text.replace(char::is_control, " ");
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}
