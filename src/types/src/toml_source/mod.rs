//! TOML that knows its lines: what settings and policies are both read from.
//!
//! Tells what is wrong and where; never what a key means.

mod nearest;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use nearest::nearest;

/// Characters of a bad value that are shown.
const SHOWN_CHARS_MAX: usize = 80;

/// A file that is read.
#[derive(Debug)]
pub struct Source<'a> {
    /// The path, for error messages only.
    pub file: &'a Path,
    /// The whole content of the file.
    pub text: &'a str,
}

/// A value and the name it has.
#[derive(Debug)]
pub struct TomlValue<'a> {
    /// The file that the value is in.
    pub source: &'a Source<'a>,
    /// The full name of the key, such as `caps.net`.
    pub key: String,
    /// The value and its position in the file.
    pub value: &'a Spanned<DeValue<'a>>,
}

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}:{line}: {problem}", file.display())]
pub struct Fault {
    /// The file with the mistake.
    pub file: PathBuf,
    pub(crate) line: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// A mistake in a TOML file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// The file is not TOML. Holds the parser's message on one line.
    #[error("{0}")]
    Syntax(String),
    /// A table has a key that is not known.
    #[error("there is no key {key}{}", meant(.near.as_deref()))]
    UnknownKey {
        /// The full name of the key.
        key: String,
        /// The known key that is spelled most like it; `None` if no key is close.
        near: Option<String>,
        /// The keys that the table may have, separated by commas.
        known: String,
    },
    /// A value has the wrong type.
    #[error("{key} takes {wanted}, not {found}")]
    WrongType {
        /// The full name of the key.
        key: String,
        /// The types that are accepted, such as `a string`.
        wanted: &'static str,
        /// The type of the value.
        found: &'static str,
    },
    /// A string is not one of the accepted values.
    #[error("{key}: {value:?} is not {wanted}")]
    BadValue {
        /// The full name of the key.
        key: String,
        /// The first characters of the string.
        value: String,
        /// The values that are accepted.
        wanted: &'static str,
    },
}

fn meant(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

impl<'a> Source<'a> {
    /// Parses the file. Fails with [`Problem::Syntax`].
    pub fn document(&self) -> Result<Spanned<DeTable<'a>>, Fault> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, Problem::Syntax(error.message().lines().collect::<Vec<_>>().join(", ")))
        })
    }

    /// The line, from 1, of the byte at offset `at`.
    pub fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    /// A mistake at the byte at offset `at`.
    pub fn error(&self, at: usize, problem: Problem) -> Fault {
        Fault { file: self.file.to_owned(), line: self.line(at), problem }
    }

    /// The values of a table whose every key must be known; `above` is the name of the table and a dot.
    pub fn fields<'s>(
        &'s self,
        table: &'s DeTable<'s>,
        above: &str,
        known: &[&str],
    ) -> Result<Vec<TomlValue<'s>>, Fault> {
        let fields = table.iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            let key_name = format!("{above}{name}");
            if known.contains(&name) {
                return Ok(TomlValue { source: self, key: key_name, value });
            }
            let near = nearest(name, known.iter().copied()).map(|near| format!("{above}{near}"));
            let problem = Problem::UnknownKey { key: key_name, near, known: known.join(", ") };
            Err(self.error(key.span().start, problem))
        });
        fields.collect()
    }
}

impl<'a> TomlValue<'a> {
    /// The line of the value, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.source.line(self.value.span().start)
    }

    /// A key that a table of keys has, and nobody reads: refused rather than passed over.
    #[must_use]
    pub fn unread(&self) -> Fault {
        let problem = Problem::UnknownKey { key: self.key.clone(), near: None, known: String::new() };
        self.source.error(self.value.span().start, problem)
    }

    /// The mistake that `value` does not have the type `wanted`.
    pub fn wrong_type(&self, value: &Spanned<DeValue<'_>>, wanted: &'static str) -> Fault {
        let found = value.get_ref().type_str();
        self.source.error(value.span().start, Problem::WrongType { key: self.key.clone(), wanted, found })
    }

    /// The mistake that `text`, read from `value`, is not one of the values `wanted`.
    pub fn bad(&self, value: &Spanned<DeValue<'_>>, text: &str, wanted: &'static str) -> Fault {
        let (key, value_text) = (self.key.clone(), text.chars().take(SHOWN_CHARS_MAX).collect());
        let problem = Problem::BadValue { key, value: value_text, wanted };
        self.source.error(value.span().start, problem)
    }

    /// The value as a table. Fails with [`Problem::WrongType`].
    pub fn table(&self) -> Result<&'a DeTable<'a>, Fault> {
        self.value.get_ref().as_table().ok_or_else(|| self.wrong_type(self.value, "a table"))
    }

    /// A value as a string. Fails with [`Problem::WrongType`], under the name of this key.
    pub fn text(&self, value: &'a Spanned<DeValue<'a>>) -> Result<&'a str, Fault> {
        value.get_ref().as_str().ok_or_else(|| self.wrong_type(value, "a string"))
    }

    /// The items of a list, each under the name of the list.
    pub fn items(&self, wanted: &'static str) -> Result<Vec<Self>, Fault> {
        let items = self.value.get_ref().as_array().ok_or_else(|| self.wrong_type(self.value, wanted))?;
        Ok(items.iter().map(|value| Self { source: self.source, key: self.key.clone(), value }).collect())
    }

    /// Parses the value, which must be a string. Fails with [`Problem::WrongType`] or [`Problem::BadValue`].
    pub fn parse<T: FromStr>(&self, wanted: &'static str) -> Result<T, Fault> {
        let text = self.text(self.value)?;
        text.parse().map_err(|_| self.bad(self.value, text, wanted))
    }
}
