//! Expansions that begin with `$` or a backquote: the commands in them are parsed in place.

use super::word::{Built, Quoted};
use super::{Item, Parser, Read, unread};
use crate::read::arithmetic::identifier;
use crate::reading::Word;

impl Parser<'_> {
    /// Parses an expansion, starting at `$`.
    pub(super) fn dollar(&mut self, built: &mut Built, quoted: Quoted) -> Read<()> {
        self.deeper(|parser| parser.dollar_here(built, quoted))
    }

    fn dollar_here(&mut self, built: &mut Built, quoted: Quoted) -> Read<()> {
        self.at += 1;
        match self.peek() {
            Some(b'(') => {
                self.at += 1;
                built.unknown = true;
                if self.peek() == Some(b'(') && self.double_paren()? {
                    return Ok(());
                }
                self.emit(Item::Enter)?;
                self.parenthesized()?;
                self.emit(Item::Leave)
            }
            Some(b'{') => self.parameter(built, quoted),
            Some(b'[') => unread("`$[` is arithmetic only in some shells"),
            Some(b'\'') if quoted == Quoted::No => self.ansi_quoted(built),
            Some(b'"') if quoted == Quoted::No => {
                self.at += 1;
                self.double_quoted(built)
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let name = self.variable_name();
                self.variable(&name, built, quoted);
                Ok(())
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.at += 1;
                built.unknown = true;
                Ok(())
            }
            _ => {
                built.text.push('$');
                Ok(())
            }
        }
    }

    fn variable_name(&mut self) -> String {
        let length =
            self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let name = self.rest().get(..length).unwrap_or("").to_owned();
        self.at += length;
        name
    }

    fn variable(&mut self, name: &str, built: &mut Built, quoted: Quoted) {
        let splits = |home: &str| quoted == Quoted::No && home.contains([' ', '\t', '\n', '*', '?', '[']);
        match self.setting.home {
            Some(home) if name == "HOME" && !splits(home) => built.text.push_str(home),
            _ => built.unknown = true,
        }
    }

    /// `${…}`, from its brace on.
    fn parameter(&mut self, built: &mut Built, quoted: Quoted) -> Read<()> {
        self.at += 1;
        if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|')) {
            return unread("`${ …}` runs commands in some shells");
        }
        if self.rest().starts_with("HOME}") {
            self.at += "HOME}".len();
            self.variable("HOME", built, quoted);
            return Ok(());
        }
        if self.peek() == Some(b'(') {
            self.doubt("`${(…)…}` can run commands in the value in zsh");
        }
        built.unknown = true;
        let start = self.at;
        let name = self.variable_name();
        if matches!(self.rest().as_bytes(), [b'=', ..] | [b':', b'=', ..]) {
            self.emit(Item::Assigned(name, Word::Unknown("$…".to_owned())))?;
        }
        let mut ignored = Built::default();
        loop {
            match self.peek() {
                None => return unread("missing `}`"),
                Some(b'}') => {
                    let inside = self.text.get(start..self.at).unwrap_or("");
                    if inside.ends_with("@P") {
                        self.doubt("`${…@P}` runs commands in the value");
                    }
                    evaluated_parts(inside).into_iter().for_each(|text| self.evaluate(text));
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\'') if quoted == Quoted::Double => {
                    return unread("shells disagree on a `'` within `\"${…}\"`");
                }
                Some(b'\'') => {
                    self.at += 1;
                    let Some(length) = self.rest().find('\'') else { return unread("missing `'`") };
                    self.at += length + 1;
                }
                Some(b'"') => {
                    self.at += 1;
                    self.double_quoted(&mut ignored)?;
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.next_char();
                }
                Some(b'$') => self.dollar(&mut ignored, quoted)?,
                Some(b'`') => self.backquoted(&mut ignored, quoted)?,
                Some(_) => drop(self.next_char()),
            }
        }
    }

    /// An arithmetic expression and the `)` that closes it; in `for` three expressions.
    pub(super) fn arithmetic(&mut self) -> Read<()> {
        let mut ignored = Built::default();
        let start = self.at;
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None => return unread("unterminated arithmetic expression"),
                Some(b'$') => self.dollar(&mut ignored, Quoted::Double)?,
                Some(b'`') => self.backquoted(&mut ignored, Quoted::Double)?,
                Some(b'\'' | b'"' | b'\\') => return unread("an arithmetic expression contains quotes"),
                Some(b'(') => {
                    self.at += 1;
                    open += 1;
                }
                Some(b')') => {
                    self.at += 1;
                    if open == 0 {
                        let inside = self.text.get(start..self.at - 1).unwrap_or("");
                        inside.split(';').for_each(|text| self.evaluate(text));
                        return Ok(());
                    }
                    open -= 1;
                }
                Some(_) => drop(self.next_char()),
            }
        }
    }

    /// Parses from a backquote on. Its content has one additional level of backslashes.
    pub(super) fn backquoted(&mut self, built: &mut Built, quoted: Quoted) -> Read<()> {
        self.at += 1;
        built.unknown = true;
        let mut inside = String::new();
        loop {
            match self.next_char() {
                None => return unread("missing backquote"),
                Some('`') => break,
                Some('\\') => match self.next_char() {
                    Some(escaped @ ('`' | '\\' | '$')) => inside.push(escaped),
                    Some('"') if quoted == Quoted::Double => inside.push('"'),
                    Some(other) => {
                        inside.push('\\');
                        inside.push(other);
                    }
                    None => return unread("missing backquote"),
                },
                Some(other) => inside.push(other),
            }
        }
        self.emit(Item::Enter)?;
        self.nested(&inside, |inner| inner.program())?;
        self.emit(Item::Leave)
    }

    /// `<(…)` or `>(…)`.
    pub(super) fn process_substitution(&mut self) -> Read<Word> {
        let start = self.at;
        self.at += 2;
        self.emit(Item::Enter)?;
        self.deeper(Self::parenthesized)?;
        self.emit(Item::Leave)?;
        Ok(Word::Unknown(self.text.get(start..self.at).unwrap_or("").to_owned()))
    }
}

/// The parts of `${…}` that the shell evaluates as arithmetic: an index, an offset with a length, and the name in
/// `${!x}`.
fn evaluated_parts(inside: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let unmarked = inside.strip_prefix(['#', '!']).filter(|rest| !identifier(rest).0.is_empty());
    let (name, mut rest) = identifier(unmarked.unwrap_or(inside));
    if name.is_empty() {
        // `${1:i}`, `${@:i}`.
        rest = rest.strip_prefix(['@', '*', '#', '?', '-', '$', '!']).unwrap_or(rest);
        rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    } else if inside.starts_with('!') && !["@", "*", "[@]", "[*]"].contains(&rest) {
        parts.push(name);
    }
    if let Some(after) = rest.strip_prefix('[') {
        let (index, after) = after.split_at(end_of_index(after));
        if !["@", "*"].contains(&index) {
            parts.push(index);
        }
        rest = after.strip_prefix(']').unwrap_or(after);
    }
    // `${x:-y}` has no offset; `${x: -1}` has one.
    parts.extend(rest.strip_prefix(':').filter(|rest| !rest.starts_with(['-', '=', '?', '+'])));
    parts
}

/// The position of the `]` that closes an index.
fn end_of_index(text: &str) -> usize {
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => open += 1,
            b']' if open == 0 => return at,
            b']' => open -= 1,
            _ => {}
        }
    }
    text.len()
}
