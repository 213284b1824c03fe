//! Programs whose first word says what they do.

use crate::read::found::{Call, Found, shown};
use crate::reading::Word;

/// What the subcommands of a program do; each list is words separated by blanks. What is in none of them writes.
pub struct Verbs {
    pub looks: &'static str,
    /// They fetch or publish, and write.
    pub networks: &'static str,
    /// They delete.
    pub destroys: &'static str,
    /// Without any.
    pub alone: Alone,
    /// Options with values that may stand before the subcommand.
    pub valued: &'static str,
}

/// What a program does when it is told nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    Helps,
    Installs,
}

/// Options without a value that may stand before any subcommand.
const PLAIN: &[&str] = &[
    "-q",
    "--quiet",
    "-s",
    "--silent",
    "-v",
    "--verbose",
    "--offline",
    "--no-color",
    "--color=never",
    "--color=always",
    "--color=auto",
    "--frozen",
    "--locked",
    "-y",
    "--yes",
    "--no-input",
    "--no-cache",
    "--json",
    "-g",
    "--global",
];

/// The subcommand, what follows it, and whether an option before it may have taken a value.
pub struct Split<'c> {
    pub verb: Option<&'c Word>,
    pub rest: &'c [Word],
    pub is_sure: bool,
}

pub fn split<'c>(args: &'c [Word], valued: &str) -> Split<'c> {
    let mut is_sure = true;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.shown();
        if text.starts_with('+') {
            at += 1;
        } else if text.starts_with('-') {
            if valued.split(' ').any(|option| option == text) {
                at += 1;
            } else if !text.contains('=') && !PLAIN.contains(&text) {
                is_sure = false;
            }
            at += 1;
        } else {
            return Split { verb: Some(word), rest: args.get(at + 1..).unwrap_or_default(), is_sure };
        }
    }
    Split { verb: None, rest: &[], is_sure }
}

pub fn lists(list: &str, verb: &str) -> bool {
    list.split_whitespace().any(|known| known == verb)
}

/// Judges by the subcommand; what follows it, for more.
pub fn judge<'c>(verbs: &Verbs, call: &Call<'c>, found: &mut Found) -> Option<(&'c str, &'c [Word])> {
    let name = call.name;
    let Split { verb, rest, is_sure } = split(call.args, verbs.valued);
    let Some(verb) = verb else {
        let asks = call
            .args
            .iter()
            .any(|word| matches!(word.shown(), "-V" | "-v" | "-h" | "--version" | "--help" | "--list"));
        if verbs.alone == Alone::Installs && !asks {
            found.mutates(format!("`{name}` installs packages"));
            found.networks(format!("`{name}` fetches packages"));
        } else if !asks && !call.args.is_empty() {
            found.mutates(format!("it is not known what `{name}` is told to do"));
        }
        return None;
    };
    let Word::Known(verb) = verb else {
        found.mutates(format!("it is not known what `{name}` is told to do"));
        return None;
    };
    let is_known = [verbs.looks, verbs.networks, verbs.destroys].iter().any(|list| lists(list, verb));
    if is_known && is_sure && matches!(rest, [Word::Known(only)] if only == "--help") {
        return None;
    }
    if lists(verbs.looks, verb) {
        let asks = |word: &Word| matches!(word.shown(), "--outdated" | "--latest" | "--remote");
        if rest.iter().any(asks) {
            found.networks(format!("`{name} {verb}` asks a registry for what is newest"));
        }
        if !is_sure {
            found.mutates(format!("`{name}` may be told something else than `{}`", shown(verb)));
        }
    } else if lists(verbs.networks, verb) {
        found.networks(format!("`{name} {verb}` works over the network"));
        found.mutates(format!("`{name} {verb}` writes what it gets"));
    } else if lists(verbs.destroys, verb) {
        found.destroys(format!("`{name} {verb}` deletes files"));
    } else {
        found.mutates(format!("`{name} {}` can write", shown(verb)));
    }
    if !is_sure && !verbs.networks.is_empty() {
        // The real subcommand may be behind an option's value.
        for word in rest.iter().filter(|word| lists(verbs.networks, word.shown())) {
            found.networks(format!("`{name}` may be told to `{}`", word.shown()));
        }
    }
    Some((verb, rest))
}
