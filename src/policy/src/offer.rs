//! The rules that would allow a denied request, for users to paste into their own `policy.toml`.
//!
//! Offered only if they work: the request is decided again with them.

use std::path::Path;

use avfs_types::printable;

use crate::decision::Action;
use crate::defaults::HOST_ESCAPE;
use crate::engine::Policy;
use crate::explanation::Explanation;
use crate::layer::Layer;
use crate::reading::{Asked, Judged};
use crate::verdict::Tier;

/// Nobody reads more than this before pasting it.
const RULES_BYTES_MAX: usize = 4096;

/// Rules about exactly the commands that the defaults deny.
pub fn rules_for(policy: &Policy, asked: &Asked<'_>, explanation: &Explanation) -> Option<String> {
    if explanation.decision.action != Action::Deny {
        return None;
    }
    let denied = explanation.commands.iter().filter(|one| one.verdict.rule == HOST_ESCAPE);
    let mut rules: Vec<String> = Vec::new();
    for explained in denied {
        let rule = rule_for(&explained.command)?;
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let text = rules.join("\n");
    if text.is_empty() || text.len() > RULES_BYTES_MAX {
        return None;
    }
    let new = Layer::parse_unchecked(Tier::User, Path::new("policy.toml"), &text).ok()?;
    let users = policy.layers().iter().find(|layer| layer.tier == Tier::User);
    let mut with = users.cloned().unwrap_or_else(|| Layer::new(Tier::User));
    with.rules.extend(new.rules);
    let after = policy.clone().with(with).judge(asked, crate::read(asked)).decision;
    (after.action < Action::Deny).then_some(text)
}

/// A rule about exactly these words.
fn rule_for(command: &Judged) -> Option<String> {
    let words: Option<Vec<String>> = command.words.iter().map(|word| word.known().map(quoted)).collect();
    // A rule cannot be sure of an unknown word; without arguments it would match all of them.
    let words = words.filter(|words| !words.is_empty())?;
    Some(format!(
        "[[rule]]\nprefix = [{}]\nargs = [\"!*\"]\naction = \"{}\"\n",
        words.join(", "),
        Action::AllowWithCheckpoint
    ))
}

/// A TOML basic string, on one line and without characters that a terminal would hide.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if printable::is_hidden(c) => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_for_toml() {
        for text in ["plain", "a \"b\" \\c", "line\nbreak \u{1}", "\u{202e}\u{e0001}"] {
            let parsed: toml::Table = format!("x = {}", quoted(text)).parse().unwrap();
            assert_eq!(parsed["x"].as_str(), Some(text));
            assert!(!quoted(text).chars().any(printable::is_hidden), "{text:?}");
        }
    }
}
