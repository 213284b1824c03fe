//! Words: removes quotes, and determines whether the value is known.

use super::lexer::is_meta;
use super::{Dialect, Parser, Read, braces, unread};
use crate::reading::Word;

/// A word under construction.
#[derive(Default)]
pub(super) struct Built {
    pub(super) text: String,
    /// The value is known only to the shell.
    pub(super) unknown: bool,
    /// The positions of unquoted `{`, `,` and `}` in `text`.
    pub(super) braces: Vec<usize>,
    /// Whether there was an unquoted `[`; a `]` after it makes a glob.
    bracket: bool,
}

/// True for a character that is always literal; most are.
const fn is_ordinary(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'=' | b':' | b'+' | b'%' | b'@')
}

impl Parser<'_> {
    /// The words at this position; several if braces expand.
    pub(super) fn word(&mut self) -> Read<Vec<Word>> {
        let start = self.at;
        let built = self.built()?;
        let written = self.text.get(start..self.at).unwrap_or("");
        if built.unknown {
            return Ok(vec![Word::Unknown(written.to_owned())]);
        }
        if built.braces.is_empty() {
            return Ok(vec![Word::Known(built.text)]);
        }
        Ok(match braces::expand(&built.text, &built.braces) {
            Some(words) => words.into_iter().map(Word::Known).collect(),
            None => vec![Word::Unknown(written.to_owned())],
        })
    }

    /// A word where the shell expects exactly one.
    pub(super) fn one_word(&mut self) -> Read<Word> {
        let start = self.at;
        let mut words = self.word()?;
        match words.pop() {
            Some(word) if words.is_empty() => Ok(word),
            _ => Ok(Word::Unknown(self.text.get(start..self.at).unwrap_or("").to_owned())),
        }
    }

    fn built(&mut self) -> Read<Built> {
        let mut built = Built::default();
        let start = self.at;
        if self.peek() == Some(b'~') {
            self.tilde(&mut built);
        }
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' => {
                    self.at += 1;
                    let Some(length) = self.rest().find('\'') else { return unread("missing `'`") };
                    built.text.push_str(&self.rest()[..length]);
                    self.at += length + 1;
                }
                b'"' => {
                    self.at += 1;
                    self.double_quoted(&mut built)?;
                }
                b'\\' => {
                    self.at += 1;
                    match self.next_char() {
                        Some('\n') => {}
                        Some(escaped) => built.text.push(escaped),
                        None => return unread("the text ends with `\\`"),
                    }
                }
                b'$' => self.dollar(&mut built, Quoted::No)?,
                b'`' => self.backquoted(&mut built, Quoted::No)?,
                _ if is_meta(byte) => break,
                _ if is_ordinary(byte) => {
                    let rest = self.rest();
                    let length = rest.bytes().take_while(|byte| is_ordinary(*byte)).count();
                    built.text.push_str(rest.get(..length).unwrap_or(""));
                    self.at += length;
                }
                _ => self.plain(byte, &mut built),
            }
        }
        if self.at == start { unread(self.unexpected()) } else { Ok(built) }
    }

    /// An unquoted character.
    fn plain(&mut self, byte: u8, built: &mut Built) {
        match byte {
            b'*' | b'?' => built.unknown = true,
            b'[' => built.bracket = true,
            b']' if built.bracket && built.text.len() > 1 => built.unknown = true,
            b'{' | b',' | b'}' => built.braces.push(built.text.len()),
            _ => {}
        }
        if let Some(character) = self.next_char() {
            built.text.push(character);
        }
    }

    fn tilde(&mut self, built: &mut Built) {
        let ends = self.peek_at(1).is_none_or(|byte| byte == b'/' || is_meta(byte));
        self.at += 1;
        match self.setting.home {
            Some(home) if ends => built.text.push_str(home),
            _ => built.unknown = true,
        }
    }

    /// After `"`, up to the closing one.
    pub(super) fn double_quoted(&mut self, built: &mut Built) -> Read<()> {
        loop {
            match self.peek() {
                None => return unread("missing `\"`"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => self.quoted_piece(built)?,
            }
        }
    }

    /// An expansion in double quotes or in a here-document, or one character.
    fn quoted_piece(&mut self, built: &mut Built) -> Read<()> {
        match self.peek() {
            Some(b'$') => self.dollar(built, Quoted::Double),
            Some(b'`') => self.backquoted(built, Quoted::Double),
            Some(b'\\') => {
                self.at += 1;
                match self.peek() {
                    Some(b'\n') => self.at += 1,
                    Some(byte @ (b'$' | b'`' | b'"' | b'\\')) => {
                        self.at += 1;
                        built.text.push(char::from(byte));
                    }
                    _ => built.text.push('\\'),
                }
                Ok(())
            }
            _ => {
                if let Some(character) = self.next_char() {
                    built.text.push(character);
                }
                Ok(())
            }
        }
    }

    /// The whole text as the body of a here-document.
    pub(super) fn here_body(&mut self) -> Read<Word> {
        let mut built = Built::default();
        while let Some(byte) = self.peek() {
            // A `\"` is two characters here.
            if byte == b'\\' && self.peek_at(1) == Some(b'"') {
                self.at += 2;
                built.text.push_str("\\\"");
            } else {
                self.quoted_piece(&mut built)?;
            }
        }
        Ok(if built.unknown { Word::Unknown(self.text.to_owned()) } else { Word::Known(built.text) })
    }

    /// `$'…'`, starting at its quote.
    pub(super) fn ansi_quoted(&mut self, built: &mut Built) -> Read<()> {
        self.at += 1;
        loop {
            match self.next_char() {
                None => return unread("missing `'`"),
                Some('\'') => return Ok(()),
                Some('\\') => {
                    if self.peek() == Some(b'\'') && self.setting.dialect == Dialect::Sh {
                        self.doubt("`$'…'` with a quote in it ends elsewhere in shells other than bash");
                    }
                    self.ansi_escape(built)?;
                }
                Some(other) => built.text.push(other),
            }
        }
    }

    fn ansi_escape(&mut self, built: &mut Built) -> Read<()> {
        let Some(letter) = self.next_char() else { return unread("missing `'`") };
        let decoded = match letter {
            'a' => Some('\x07'),
            'b' => Some('\x08'),
            'e' | 'E' => Some('\x1b'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            '\\' | '\'' | '"' | '?' => Some(letter),
            'x' => self.coded(16, 2),
            'u' => self.coded(16, 4),
            'U' => self.coded(16, 8),
            '0'..='7' => {
                self.at -= 1;
                self.coded(8, 3)
            }
            'c' => {
                self.next_char();
                None
            }
            other => {
                built.text.push('\\');
                Some(other)
            }
        };
        match decoded {
            // Bytes above ASCII may be part of a character, and a zero ends the string.
            Some('\0') | None => built.unknown = true,
            Some(character) if matches!(letter, 'x' | '0'..='7') && !character.is_ascii() => {
                built.unknown = true
            }
            Some(character) => built.text.push(character),
        }
        Ok(())
    }

    fn coded(&mut self, radix: u32, digits_max: usize) -> Option<char> {
        let digits: String = self.rest().chars().take(digits_max).take_while(|c| c.is_digit(radix)).collect();
        self.at += digits.len();
        u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoted {
    No,
    Double,
}
