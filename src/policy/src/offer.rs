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
use crate::read::shown;
use crate::reading::{Asked, Judged, Word};
use crate::verdict::Tier;

/// Nobody reads more than this before pasting it.
const RULES_BYTES_MAX: usize = 4096;

/// What a user can paste to allow a denied request.
pub enum Offer {
    Rules(String),
    /// Why no rules can be given, as a hint.
    Nothing(String),
}

/// Rules about exactly the commands that the defaults deny; `None` if they deny no command of the request.
pub fn rules_for(policy: &Policy, asked: &Asked<'_>, explanation: &Explanation) -> Option<Offer> {
    if explanation.decision.action != Action::Deny {
        return None;
    }
    let denied = explanation.commands.iter().filter(|one| one.verdict.rule == HOST_ESCAPE);
    let mut rules: Vec<String> = Vec::new();
    for explained in denied {
        match rule_for(&explained.command) {
            Ok(rule) if rules.contains(&rule) => {}
            Ok(rule) => rules.push(rule),
            Err(unknown) => {
                let unknown = shown(unknown.shown());
                return Some(Offer::Nothing(format!(
                    "a rule cannot allow it while `{unknown}` is known only at run time; write the word out"
                )));
            }
        }
    }
    if rules.is_empty() {
        return None;
    }
    let text = rules.join("\n");
    if text.len() > RULES_BYTES_MAX {
        return Some(Offer::Nothing("it is too long for a rule; run its commands one by one".to_owned()));
    }
    let new = Layer::parse_unchecked(Tier::User, Path::new("policy.toml"), &text).ok()?;
    let users = policy.layers().iter().find(|layer| layer.tier == Tier::User);
    let mut with = users.cloned().unwrap_or_else(|| Layer::new(Tier::User));
    with.rules.extend(new.rules);
    let after = policy.clone().with(with).judge(asked, crate::read(asked)).decision;
    Some(match after.action {
        Action::Allow | Action::AllowWithCheckpoint | Action::RequireApproval => Offer::Rules(text),
        Action::Deny => Offer::Nothing(format!(
            "a rule that allows it would not be enough: {}",
            [Some(after.reason), after.hint].into_iter().flatten().collect::<Vec<_>>().join("; ")
        )),
    })
}

/// A rule about exactly these words, or the word that prevents it: a rule cannot be sure of an unknown word, and
/// without arguments it would match all of them.
fn rule_for(command: &Judged) -> Result<String, &Word> {
    let known = command.words.iter().map(|word| word.known().map(quoted).ok_or(word));
    let words = known.collect::<Result<Vec<String>, &Word>>()?;
    Ok(format!(
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
