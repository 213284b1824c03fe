//! Glob patterns of paths, in which only `**` matches a slash.
//!
//! Character classes (`[a-z]`, `[!x]`, `[[:digit:]]`) are parsed like git does, and rewritten for globset, which
//! supports neither names nor escapes in them and lets them match a slash.

use globset::{Glob, GlobBuilder};

/// Compiles a pattern of paths, with alternatives in braces: `*` and character classes do not match a slash.
pub fn of_path(text: &str) -> Result<Glob, globset::Error> {
    let mut read = String::with_capacity(text.len());
    for token in tokens(text) {
        match token {
            Token::Class(class) => read.push_str(&class.text()),
            // globset rejects it, or interprets it in its own way.
            Token::BadClass(_) => read.push('['),
            Token::Escaped(escaped) => {
                read.push('\\');
                read.extend(escaped);
            }
            Token::Stars(count) => read.extend(std::iter::repeat_n('*', count)),
            Token::Char(char) => read.push(char),
        }
    }
    GlobBuilder::new(&read).literal_separator(true).build()
}

/// One part of a glob pattern.
#[derive(Debug, PartialEq, Eq)]
pub enum Token {
    /// A character class, such as `[a-z]`.
    Class(Class),
    /// The opening bracket of a malformed class, and the error; the rest follows as other tokens.
    BadClass(&'static str),
    /// The character after a backslash; `None` at the end of the pattern.
    Escaped(Option<char>),
    /// This many `*` in a row.
    Stars(usize),
    /// Any other character, including `?`, `{` and `/`.
    Char(char),
}

/// Splits a pattern into tokens. Never fails: a malformed class becomes [`Token::BadClass`].
pub fn tokens(text: &str) -> impl Iterator<Item = Token> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let next = rest.chars().next()?;
        let behind = &rest[next.len_utf8()..];
        let (token, left) = match next {
            '[' => match Class::read(behind) {
                Ok((class, left)) => (Token::Class(class), left),
                Err(why) => (Token::BadClass(why), behind),
            },
            '\\' => {
                let mut chars = behind.chars();
                (Token::Escaped(chars.next()), chars.as_str())
            }
            '*' => {
                let left = rest.trim_start_matches('*');
                (Token::Stars(rest.len() - left.len()), left)
            }
            char => (Token::Char(char), behind),
        };
        rest = left;
        Some(token)
    })
}

/// Named classes, as ranges.
const NAMED: [(&str, &[(char, char)]); 12] = [
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("blank", &[(' ', ' '), ('\t', '\t')]),
    ("cntrl", &[('\u{1}', '\u{1f}'), ('\u{7f}', '\u{7f}')]),
    ("digit", &[('0', '9')]),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    ("punct", &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

const UNCLOSED: &str = "unclosed character class";

/// A character class; no class ever matches a slash.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    /// Parses the text after the opening bracket, and returns the text after the closing one.
    fn read(text: &str) -> Result<(Self, &str), &'static str> {
        let inner = text.strip_prefix(['!', '^']);
        let (negated, mut rest) = (inner.is_some(), inner.unwrap_or(text));
        let mut ranges: Vec<(char, char)> = Vec::new();
        // The start of a range, if a dash follows.
        let mut before = None;
        let mut is_first = true;
        loop {
            // The first character always belongs to the class, even a closing bracket.
            if !is_first && let Some(left) = rest.strip_prefix(']') {
                return Ok((Self { negated, ranges }, left));
            }
            is_first = false;
            if let (Some(from), Some(left)) = (before, rest.strip_prefix('-'))
                && !left.starts_with(']')
            {
                let (to, left) = member(left)?;
                if to < from {
                    return Err("a character range ends before it starts");
                }
                ranges.push((from, to));
                (before, rest) = (None, left);
            } else if let Some((name, left)) = named(rest)? {
                let known = NAMED.iter().find(|(known, _)| *known == name);
                ranges.extend(known.ok_or("unknown name of a character class")?.1);
                (before, rest) = (None, left);
            } else {
                let (char, left) = member(rest)?;
                ranges.push((char, char));
                (before, rest) = (Some(char), left);
            }
        }
    }

    /// The class in the syntax of globset.
    pub fn text(&self) -> String {
        /// Characters that are special in a class depending on their position; in the order of their codes.
        const MARKS: [char; 5] = ['!', '-', '/', ']', '^'];
        let holds = |char: char| self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&char));
        let mut text = String::from(if self.negated { "[!" } else { "[" });
        if holds(']') {
            text.push(']');
        }
        for (from, to) in &self.ranges {
            let mut from = *from;
            for mark in MARKS {
                if (from..=*to).contains(&mark) {
                    push_range(&mut text, from, char::from(mark as u8 - 1));
                    from = char::from(mark as u8 + 1);
                }
            }
            push_range(&mut text, from, *to);
        }
        if self.negated {
            text.push('/');
        } else if text == "[" {
            // No name contains NUL: it keeps the following characters from being first, or the class from being empty.
            text.push('\0');
        }
        text.extend(['!', '^', '-'].into_iter().filter(|char| holds(*char)));
        text.push(']');
        text
    }
}

fn push_range(text: &mut String, from: char, to: char) {
    if from > to {
        return;
    }
    text.push(from);
    if from < to {
        text.extend(['-', to]);
    }
}

/// Parses a character of a class, which may be escaped.
fn member(text: &str) -> Result<(char, &str), &'static str> {
    let mut chars = text.strip_prefix('\\').unwrap_or(text).chars();
    Ok((chars.next().ok_or(UNCLOSED)?, chars.as_str()))
}

/// Parses the name of a class within a class.
fn named(text: &str) -> Result<Option<(&str, &str)>, &'static str> {
    let Some(inner) = text.strip_prefix("[:") else { return Ok(None) };
    let (name, left) = inner.split_once(']').ok_or(UNCLOSED)?;
    // Without the second colon the bracket is an ordinary character.
    Ok(name.strip_suffix(':').map(|name| (name, left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        of_path(pattern).unwrap().compile_matcher().is_match(text)
    }

    #[test]
    fn no_class_matches_a_slash() {
        for pattern in ["x[!a]y", "x[^a]y", "x[a/b]y", "x[+-9]y", "x[[:punct:]]y", "x[!-~]y", "x[!a-c]y"] {
            assert!(!matches(pattern, "x/y"), "{pattern}");
        }
        assert!(matches("x[!a]y", "xby") && !matches("x[!a]y", "xay"));
        assert!(matches("x[a/b]y", "xay") && matches("x[+-9]y", "x.y") && matches("x[+-9]y", "x0y"));
        assert!(matches("{a,x[!b]}/*", "xc/d") && !matches("{a,x[!b]}/*", "x/c/d"));
    }

    #[test]
    fn a_class_has_the_characters_that_git_reads() {
        for (pattern, members, others) in [
            ("[]x]", "]x", "[\\-"),
            ("[!]x]", "ab[", "]x"),
            ("[\\]]", "]", "\\["),
            ("[\\a-b]", "ab", "\\-c"),
            ("[\\*]", "*", "\\a"),
            ("[a-\\c]", "abc", "\\-d"),
            ("[-a]", "-a", "b"),
            ("[a-]", "-a", "b"),
            ("[!-]", "ab!", "-"),
            ("[a^!]", "a^!", "b"),
            ("[\\^]", "^", "a\\"),
            ("[\\!^]", "!^", "a\\"),
            ("[--0]", "-.0", "1,"),
            ("[a-c-e]", "abc-e", "d"),
            ("[[:digit:]a]", "0a", "b:["),
            ("[[:digit]", "[:dt", "0]"),
            ("[![:alpha:]]", "0-", "aZ"),
            ("[[-a]", "[]^_`a", "Zb"),
        ] {
            for (text, expected) in [(members, true), (others, false)] {
                for char in text.chars() {
                    assert_eq!(matches(pattern, &char.to_string()), expected, "{pattern} {char}");
                }
            }
        }
    }

    #[test]
    fn malformed_classes_are_rejected() {
        for text in ["a", "a\\]", "z-a]", "[:nothing:]]", "[:digit:", ""] {
            assert!(Class::read(text).is_err(), "[{text}");
        }
        assert!(of_path("a[").is_err() && of_path("[z-a]").is_err() && of_path("a\\").is_err());
    }
}
