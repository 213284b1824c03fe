//! What a shell evaluates a second time: a value in arithmetic, an index or the name of a variable can run a command.
//!
//! After `read x < f`, `((x))` runs the command in a value such as `a[$(rm f)]`; so do `[[ $x -eq 1 ]]`, `${b[x]}` and
//! `printf -v "$x"`. A name is safe there only if the command assigns it, and only numbers. The order of the
//! assignments does not count: a loop or a function may run them in any.
//!
//! Closed-world: an expression that contains more than names, numbers and operators is a doubt.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::shown;
use crate::reading::Word;

/// Variables that are always numbers; bash evaluates a text that is assigned to them.
const INTEGERS: [&str; 11] = [
    "RANDOM",
    "SRANDOM",
    "SECONDS",
    "LINENO",
    "UID",
    "EUID",
    "PPID",
    "BASHPID",
    "EPOCHSECONDS",
    "OPTIND",
    "HISTCMD",
];

/// Variables that a shell sets to other text than the command assigns them.
const SET_BY_SHELL: [&str; 8] =
    ["REPLY", "MAPFILE", "OPTARG", "BASH_REMATCH", "PWD", "OLDPWD", "DIRSTACK", "_"];

/// Programs whose output can be a number.
const COUNTERS: [&str; 5] = ["seq", "nproc", "id", "date", "wc"];

/// The values that a command gives to a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Numbers,
    Any,
}

/// The names that a command evaluates, and what it assigns to them.
#[derive(Default)]
pub struct Arithmetic {
    evaluated: BTreeSet<String>,
    assigned: BTreeMap<String, Values>,
    arrays: BTreeSet<String>,
    /// Assigned by `declare`, which expands the value of an array once more: `($(rm f))`.
    declared: BTreeSet<String>,
}

impl Arithmetic {
    /// Records an assignment; returns a doubt if the shell evaluates the value at once.
    pub fn assign(&mut self, name: &str, value: &Word) -> Option<String> {
        let values = if holds_numbers(value) { Values::Numbers } else { Values::Any };
        self.give(name, values);
        (values == Values::Any && INTEGERS.contains(&name)).then(|| why(name))
    }

    fn give(&mut self, name: &str, values: Values) {
        let entry = self.assigned.entry(name.to_owned()).or_insert(values);
        if values == Values::Any {
            *entry = values;
        }
    }

    /// Records an expression that the shell evaluates; returns a doubt if it contains more than names and numbers.
    pub fn evaluate(&mut self, text: &str) -> Option<String> {
        let Some(names) = names(text) else { return Some(why(text)) };
        for (name, is_assigned) in names {
            self.evaluated.insert(name.to_owned());
            if is_assigned {
                self.give(name, Values::Numbers);
            }
        }
        None
    }

    /// Records the name of a variable that a builtin expands: `x` or `x[i]`.
    pub fn name(&mut self, written: &str) -> Option<String> {
        let text = unquoted(written);
        let (name, rest) = identifier(text);
        match rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            _ if name.is_empty() => Some(why(written)),
            None if rest.is_empty() => None,
            None => Some(why(written)),
            Some("@" | "*") => None,
            Some(index) => self.evaluate(index),
        }
    }

    pub fn array(&mut self, name: &str) {
        self.arrays.insert(name.to_owned());
    }

    /// Records an assignment by `declare`.
    pub fn declare(&mut self, name: &str, value: &Word) {
        let expands = match value {
            Word::Known(text) => text.starts_with('('),
            // Without quotes, `a=(x)` is expanded only once.
            Word::Unknown(written) => {
                let is_compound = written.starts_with('(') && written.ends_with(')');
                !is_compound && !holds_numbers(value)
            }
        };
        if expands {
            self.declared.insert(name.to_owned());
        }
    }

    /// A doubt if a value that is evaluated may be anything.
    pub fn finish(&self) -> Option<String> {
        let is_safe = |name: &&String| match self.assigned.get(*name) {
            _ if SET_BY_SHELL.contains(&name.as_str()) => false,
            Some(values) => *values == Values::Numbers,
            None => INTEGERS.contains(&name.as_str()),
        };
        let unsafe_name = self.evaluated.iter().find(|name| !is_safe(name));
        unsafe_name.or_else(|| self.declared.intersection(&self.arrays).next()).map(|name| why(name))
    }
}

/// Whether a function of this name would make the output of a counter any text.
pub fn is_counter(name: &str) -> bool {
    COUNTERS.contains(&name)
}

fn why(text: &str) -> String {
    format!("the value of `{}` is known only at run time, and the shell may run a command in it", shown(text))
}

/// The source text of a word without its double quotes.
fn unquoted(written: &str) -> &str {
    written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(written)
}

/// The name at the start of a text, and the rest.
pub fn identifier(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { ("", text) } else { text.split_at(end) }
}

/// The names in an expression, and whether it assigns them; `None` if it contains anything else than names, numbers
/// and operators.
fn names(text: &str) -> Option<Vec<(&str, bool)>> {
    let mut names = Vec::new();
    let mut rest = unquoted(text);
    while let Some(first) = rest.chars().next() {
        if first == '$' {
            let (name, after) = expansion(rest)?;
            names.extend(name.map(|name| (name, false)));
            rest = after;
        } else if first.is_ascii_digit() {
            // `0x1F`, `16#ff`.
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | '@' | '_');
            rest = rest.trim_start_matches(is_part);
        } else if first.is_ascii_alphabetic() || first == '_' {
            let (name, after) = identifier(rest);
            // `a$i` is another name.
            if after.starts_with('$') {
                return None;
            }
            names.push((name, is_assignment(after.trim_start())));
            rest = after;
        } else if " \t\n+-*/%<>=!&|^~?:,()[]".contains(first) {
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(names)
}

/// Whether the operator after a name replaces its value.
fn is_assignment(operator: &str) -> bool {
    operator.starts_with('=') && !operator.starts_with("==")
}

/// An expansion at the start of a text: the name of the variable, if the value is not certainly a number; and the rest.
fn expansion(text: &str) -> Option<(Option<&str>, &str)> {
    let rest = text.strip_prefix('$')?;
    if let Some(after) = rest.strip_prefix(['#', '?', '$', '!']) {
        return Some((None, after));
    }
    if let Some(inside) = rest.strip_prefix("((") {
        return Some((None, after_arithmetic(inside)?));
    }
    if let Some(inside) = rest.strip_prefix('(') {
        let (command, after) = inside.split_once(')')?;
        return counts(command).then_some((None, after));
    }
    let (name, after) = match rest.strip_prefix('{') {
        None => identifier(rest),
        Some(inside) => {
            let (inside, after) = inside.split_once('}')?;
            let is_length = inside.strip_prefix('#').is_some_and(|of| !of.contains(['$', '`', '{']));
            if is_length {
                return Some((None, after));
            }
            let (name, index) = identifier(inside);
            (if matches!(index, "" | "[@]" | "[*]") { name } else { "" }, after)
        }
    };
    (!name.is_empty()).then_some((Some(name), after))
}

/// The text after `$((…))`, from its second parenthesis on. The parser examines the inside as another expression.
fn after_arithmetic(inside: &str) -> Option<&str> {
    let mut open = 0_usize;
    for (at, character) in inside.char_indices() {
        match character {
            '(' => open += 1,
            ')' if open == 0 => return inside[at..].strip_prefix("))"),
            ')' => open -= 1,
            '\'' | '"' | '\\' | '`' => return None,
            _ => {}
        }
    }
    None
}

/// Whether a command prints only numbers.
fn counts(command: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || " ./_+%<-${}\"".contains(c);
    let words: Vec<&str> = command.split(' ').filter(|word| !word.is_empty()).collect();
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    command.chars().all(is_part)
        && match words.as_slice() {
            // Its options come before its operands.
            ["seq", first, ..] => is_number(first) && !command.contains('<'),
            ["nproc"] | ["id", "-u"] | ["date", "+%s"] => true,
            // With the name of a file as an argument it prints that too.
            ["wc", "-l" | "-c" | "-w", "<", _] => true,
            ["wc", "-l" | "-c" | "-w", from] => from.starts_with('<'),
            _ => false,
        }
}

/// Whether the shell can only find numbers in a value, or in each element of `(…)`.
fn holds_numbers(value: &Word) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || " \t\n\"+-.,{}".contains(c);
    let mut rest = match value {
        Word::Known(text) => return text.chars().all(is_digit),
        Word::Unknown(written) => written.as_str(),
    };
    // `a=(1 2)`, with or without the name.
    if let Some((name, elements)) = rest.strip_suffix(')').and_then(|text| text.split_once('('))
        && (name.is_empty() || name.ends_with('=') && !name.contains('$'))
    {
        rest = elements;
    }
    loop {
        rest = rest.trim_start_matches(is_digit);
        if rest.is_empty() {
            return true;
        }
        match expansion(rest) {
            Some((None, after)) => rest = after,
            Some((Some(name), after)) if INTEGERS.contains(&name) => rest = after,
            Some((Some(_), _)) | None => return false,
        }
    }
}
