//! TOML values with their lines, the input of settings and policies.
//!
//! Reports errors with their position; does not know the meaning of any key.

mod nearest;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use nearest::nearest;

/// The maximum number of characters of an invalid value in a message.
const SHOWN_CHARS_MAX: usize = 80;

/// A file to parse.
#[derive(Debug)]
pub struct Source<'a> {
    /// The path, for error messages only.
    pub file: &'a Path,
    /// The whole content of the file.
    pub text: &'a str,
}

/// A value and its key.
#[derive(Debug)]
pub struct TomlValue<'a> {
    /// The file that the value is in.
    pub source: &'a Source<'a>,
    /// The full name of the key, such as `caps.net`.
    pub key: String,
    /// The value and its position in the file.
    pub value: &'a Spanned<DeValue<'a>>,
}

/// An error in a file, and its position.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}:{line}: {problem}", file.display())]
pub struct Fault {
    /// The file with the error.
    pub file: PathBuf,
    pub(crate) line: usize,
    /// The error.
    pub problem: Problem,
}

/// An error in a TOML file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// The file is not TOML. Holds the parser's message on one line.
    #[error("{0}")]
    Syntax(String),
    /// A table has an unknown key.
    #[error("unknown key {key}{}", meant(.near.as_deref()))]
    UnknownKey {
        /// The full name of the key.
        key: String,
        /// The known key with the most similar spelling; `None` if no key is close.
        near: Option<String>,
        /// The known keys of the table, separated by commas.
        known: String,
    },
    /// A value has the wrong type.
    #[error("{key} takes {wanted}, not {found}")]
    WrongType {
        /// The full name of the key.
        key: String,
        /// The accepted types, such as `a string`.
        wanted: &'static str,
        /// The type of the value.
        found: &'static str,
    },
    /// A string is not one of the accepted values.
    #[error("{key}: invalid value {value:?}: expected {wanted}")]
    BadValue {
        /// The full name of the key.
        key: String,
        /// The first characters of the string.
        value: String,
        /// The accepted values.
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

    /// An error at the byte at offset `at`.
    pub fn error(&self, at: usize, problem: Problem) -> Fault {
        Fault { file: self.file.to_owned(), line: self.line(at), problem }
    }

    /// The values of a table; an unknown key is an error. `above` is the name of the table and a dot.
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

    /// The error for a listed key that no code handles: rejected rather than ignored.
    #[must_use]
    pub fn unread(&self) -> Fault {
        let problem = Problem::UnknownKey { key: self.key.clone(), near: None, known: String::new() };
        self.source.error(self.value.span().start, problem)
    }

    /// The error that `value` does not have the type `wanted`.
    pub fn wrong_type(&self, value: &Spanned<DeValue<'_>>, wanted: &'static str) -> Fault {
        let found = value.get_ref().type_str();
        self.source.error(value.span().start, Problem::WrongType { key: self.key.clone(), wanted, found })
    }

    /// The error that `text`, from `value`, is not one of the values `wanted`.
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

    /// The items of a list, each with the key of the list.
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
