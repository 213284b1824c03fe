//! Simple commands: assignments, words and redirections.

use super::compound::Keyword;
use super::lexer::is_meta;
use super::{Assignment, Direction, HereTag, Item, Parser, Read, Redirect, Simple, Stdin, unread};
use crate::reading::Word;

impl Parser<'_> {
    pub(super) fn simple(&mut self) -> Read<()> {
        let mut simple = Simple {
            assignments: Vec::new(),
            words: Vec::new(),
            redirects: Vec::new(),
            stdin: Stdin::Inherited,
        };
        let start = self.at;
        loop {
            self.blanks();
            if self.redirect(&mut simple)? {
                continue;
            }
            let Some(byte) = self.peek() else { break };
            if matches!(byte, b'<' | b'>') {
                // `redirect` did not consume it: a process substitution.
                simple.words.push(self.process_substitution()?);
            } else if byte == b'(' && self.is_function_head(&simple) {
                self.at += 1;
                self.blanks();
                if !self.eat(")") {
                    return unread(self.unexpected());
                }
                let Some(Word::Known(name)) = simple.words.pop() else {
                    return unread("the name of a function contains quotes or expansions");
                };
                return self.function(name, Keyword::None);
            } else if is_meta(byte) {
                break;
            } else {
                let is_descriptor = byte == b'{';
                self.word_or_assignment(&mut simple)?;
                if is_descriptor && matches!(self.peek(), Some(b'<' | b'>')) {
                    self.doubt("`{…}` before a redirection assigns the descriptor to a variable");
                }
            }
        }
        if self.at == start {
            return unread(self.unexpected());
        }
        self.emit(Item::Command(simple))
    }

    fn is_function_head(&self, simple: &Simple) -> bool {
        simple.words.len() == 1 && simple.assignments.is_empty() && simple.redirects.is_empty()
    }

    fn word_or_assignment(&mut self, simple: &mut Simple) -> Read<()> {
        let start = self.at;
        let name = self.assigned_name();
        let is_assignment = name.is_some() && simple.words.is_empty();
        if let Some((name, length)) = &name {
            let sign = self.text.get(start..start + length).unwrap_or("");
            let index = sign.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            // The two tables of bash have text as an index.
            if let Some((index, _)) = index.filter(|_| !name.starts_with("BASH_")) {
                self.evaluate(index);
            }
            if index.is_some() || self.text.get(start + length..).is_some_and(|rest| rest.starts_with('(')) {
                self.script.arrays.push(name.clone());
            }
        }
        let mut words = if is_assignment {
            // Neither braces nor blanks split an assigned value.
            self.at = start + name.as_ref().map_or(0, |(_, length)| *length);
            vec![if self.at_word_end() { Word::Known(String::new()) } else { self.one_word()? }]
        } else {
            self.word()?
        };
        // `a=(x y)` is one word in bash.
        if name.is_some() && self.peek() == Some(b'(') && self.text.as_bytes().get(self.at - 1) == Some(&b'=')
        {
            self.at += 1;
            loop {
                self.blanks_and_newlines()?;
                if self.eat(")") {
                    break;
                }
                let element = self.at;
                self.word()?;
                // `[i]=x`.
                let written = self.text.get(element..self.at).unwrap_or("");
                if let Some((index, _)) = written.strip_prefix('[').and_then(|rest| rest.split_once("]=")) {
                    self.evaluate(index);
                }
            }
            words = vec![Word::Unknown(self.text.get(start..self.at).unwrap_or("").to_owned())];
        }
        match name {
            Some((name, _)) if is_assignment => {
                let value = words.pop().unwrap_or(Word::Known(String::new()));
                simple.assignments.push(Assignment { name, value });
            }
            _ => simple.words.extend(words),
        }
        Ok(())
    }

    fn at_word_end(&self) -> bool {
        self.peek().is_none_or(is_meta)
    }

    /// `NAME=`, `NAME+=` or `NAME[…]=` at this position: the name, and the length including the sign.
    fn assigned_name(&self) -> Option<(String, usize)> {
        let bytes = self.rest().as_bytes();
        let length = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        if length == 0 || bytes[0].is_ascii_digit() {
            return None;
        }
        let mut end = length;
        if bytes.get(end) == Some(&b'[') {
            // An index other than a plain name makes it a word.
            let index = bytes.iter().skip(end + 1).take_while(|byte| byte.is_ascii_alphanumeric()).count();
            end += index + 1;
            if bytes.get(end) != Some(&b']') {
                return None;
            }
            end += 1;
        }
        if bytes.get(end) == Some(&b'+') {
            end += 1;
        }
        (bytes.get(end) == Some(&b'=')).then(|| (self.rest()[..length].to_owned(), end + 1))
    }

    /// Parses a redirection, if there is one.
    pub(super) fn redirect(&mut self, simple: &mut Simple) -> Read<bool> {
        let bytes = self.rest().as_bytes();
        // A number, or `{name}`, directly before the sign is the descriptor.
        let mut digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if bytes.first() == Some(&b'{') {
            let name = bytes
                .iter()
                .skip(1)
                .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
                .count();
            if name > 0 && bytes.get(name + 1) == Some(&b'}') {
                digits = name + 2;
            }
        }
        let sign = self.rest().get(digits..).unwrap_or("");
        let (length, direction) = match sign.as_bytes() {
            [b'<', b'(', ..] | [b'>', b'(', ..] if digits == 0 => return Ok(false),
            [b'<', b'<', b'<', ..] => return self.here_string(digits + 3, simple),
            [b'<', b'<', b'-', ..] => return self.here_tag(digits + 3, simple, true),
            [b'<', b'<', ..] => return self.here_tag(digits + 2, simple, false),
            [b'<', b'>', ..] => (2, Direction::ReadWrite),
            [b'<', b'&', ..] | [b'>', b'&', ..] => (2, Direction::Duplicate),
            [b'<', ..] => (1, Direction::Read),
            [b'>', b'>' | b'|', ..] => (2, Direction::Write),
            [b'>', ..] => (1, Direction::Write),
            [b'&', b'>', b'>', ..] if digits == 0 => (3, Direction::Write),
            [b'&', b'>', ..] if digits == 0 => (2, Direction::Write),
            _ => return Ok(false),
        };
        let reads_stdin = sign.starts_with('<') && (digits == 0 || bytes[0] == b'0');
        self.at += digits + length;
        self.blanks();
        let target = match self.rest().as_bytes() {
            [b'<' | b'>', b'(', ..] => self.process_substitution()?,
            _ => self.one_word()?,
        };
        if reads_stdin && direction != Direction::Write {
            simple.stdin = Stdin::Redirected;
        }
        simple.redirects.push(Redirect { direction, target });
        Ok(true)
    }

    fn here_string(&mut self, length: usize, simple: &mut Simple) -> Read<bool> {
        self.at += length;
        self.blanks();
        let word = self.one_word()?;
        simple.stdin = Stdin::Here(self.script.here.len());
        self.script.here.push(word);
        Ok(true)
    }

    fn here_tag(&mut self, length: usize, simple: &mut Simple, strip_tabs: bool) -> Read<bool> {
        self.at += length;
        self.blanks();
        let start = self.at;
        let Word::Known(tag) = self.one_word()? else {
            return unread("the delimiter of a here-document contains expansions");
        };
        let written = self.text.get(start..self.at).unwrap_or("");
        let quoted = written.contains(['\'', '"', '\\']);
        if written.contains(['$', '`', '\n']) {
            return unread("the delimiter of a here-document contains expansions");
        }
        let number = self.script.here.len();
        self.script.here.push(Word::Unknown(String::new()));
        self.pending.push(HereTag { tag, quoted, strip_tabs, number });
        simple.stdin = Stdin::Here(number);
        Ok(true)
    }
}
