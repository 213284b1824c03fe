//! Characters, blanks, comments, newlines and the here-document bodies after them.

use super::{HereTag, Parser, Read, unread};
use crate::reading::Word;

/// Reserved words at the start of a command.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case",
    "esac", "function", "select", "coproc", "time", "in",
];

/// True for an unquoted character that ends a word.
pub(super) const fn is_meta(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')')
}

impl<'t> Parser<'t> {
    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Consumes and returns the next character.
    pub(super) fn next_char(&mut self) -> Option<char> {
        let found = self.rest().chars().next()?;
        self.at += found.len_utf8();
        Some(found)
    }

    /// Skips blanks, line continuations and comments; not newlines.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.at += 2,
                Some(b'#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    pub(super) fn blanks_and_newlines(&mut self) -> Read<()> {
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// A newline, and the here-documents that begin after it.
    pub(super) fn newline(&mut self) -> Read<()> {
        self.at += 1;
        for tag in std::mem::take(&mut self.pending) {
            self.here_document(&tag)?;
        }
        Ok(())
    }

    fn here_document(&mut self, tag: &HereTag) -> Read<()> {
        let mut body = String::new();
        loop {
            if self.at >= self.text.len() {
                return unread("unterminated here-document");
            }
            let rest = self.rest();
            let line = rest.split('\n').next().unwrap_or(rest);
            self.at = (self.at + line.len() + 1).min(self.text.len());
            let line = if tag.strip_tabs { line.trim_start_matches('\t') } else { line };
            if line == tag.tag {
                break;
            }
            body.push_str(line);
            body.push('\n');
        }
        let body =
            if tag.quoted { Word::Known(body) } else { self.nested(&body, |inner| inner.here_body())? };
        if let Some(place) = self.script.here.get_mut(tag.number) {
            *place = body;
        }
        Ok(())
    }

    /// The reserved word at this position, if any, and its end.
    pub(super) fn reserved(&self) -> Option<(&'static str, usize)> {
        let bytes = self.text.as_bytes();
        let mut end = self.at;
        let mut joined = String::new();
        // A line may be continued in the middle of the word.
        while let Some(byte) = bytes.get(end) {
            if *byte == b'\\' && bytes.get(end + 1) == Some(&b'\n') {
                end += 2;
            } else if is_meta(*byte) || joined.len() > 8 {
                break;
            } else if byte.is_ascii_lowercase() || b"!{}[]".contains(byte) {
                joined.push(char::from(*byte));
                end += 1;
            } else {
                return None;
            }
        }
        RESERVED.iter().find(|word| **word == joined).map(|word| (*word, end))
    }

    /// Consumes a reserved word that is required here.
    pub(super) fn expect_reserved(&mut self, word: &str) -> Read<()> {
        self.blanks_and_newlines()?;
        match self.reserved() {
            Some((found, end)) if found == word => {
                self.at = end;
                Ok(())
            }
            _ => unread(format!("missing `{word}`")),
        }
    }
}
