//! Coloured text, and lines that keep its escape codes while everything else is escaped.

use std::fmt;
use std::fmt::Write as _;

use avfs_types::printable;

/// The role of a piece of text, for coloured output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Added,
    Deleted,
    Changed,
    Id,
    Name,
    Dim,
    Strong,
    Failure,
    Hint,
}

/// The escape codes of the tones, in their order, then the code that resets the colour.
static CODES: [&str; 10] = [
    "\x1b[32m",
    "\x1b[31m",
    "\x1b[33m",
    "\x1b[33m",
    "\x1b[36m",
    "\x1b[2m",
    "\x1b[1m",
    "\x1b[31;1m",
    "\x1b[36;1m",
    "\x1b[0m",
];

/// Pieces of text, each with its tone if colours are enabled. Only [`line`] prints the escape codes.
#[derive(Default)]
pub struct Painted(Vec<(Option<Tone>, String)>);

impl Painted {
    pub fn of(tone: Option<Tone>, text: impl fmt::Display) -> Self {
        Self(vec![(tone, text.to_string())])
    }

    pub fn plain(text: impl fmt::Display) -> Self {
        Self::of(None, text)
    }

    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        self.0.extend(next.0);
        self
    }
}

impl fmt::Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (tone, text) in &self.0 {
            f.write_str(tone.map_or("", |tone| CODES[tone as usize]))?;
            f.write_str(text)?;
            f.write_str(tone.map_or("", |_| CODES[CODES.len() - 1]))?;
        }
        Ok(())
    }
}

/// A line to print. Escape codes are recognized by their address, which text from outside cannot have; the
/// same characters from any other source are escaped.
#[derive(Default)]
struct Line(String);

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if CODES.iter().any(|code| std::ptr::eq(*code, text)) {
            self.0.push_str(text);
        } else {
            self.0.push_str(&printable::line(text));
        }
        Ok(())
    }
}

/// Exactly one line, with its line end, regardless of the values in it.
pub(crate) fn line(text: fmt::Arguments<'_>) -> String {
    let mut line = Line::default();
    // Writing to a String does not fail; a value whose `Display` fails would only end the line early.
    let _ = line.write_fmt(text);
    line.0 + "\n"
}
