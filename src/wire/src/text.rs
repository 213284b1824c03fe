//! Bytes and texts in JSON.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use avfs_types::base64::base64;
use avfs_types::path::{Shown, TreePath};

/// A path: verbatim if it is UTF-8; otherwise escaped, with its bytes in Base64.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathText {
    /// The path relative to the root, without a leading slash; `.` for the root.
    pub path: String,
    /// The path in Base64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

impl PathText {
    /// The JSON form of a path.
    #[must_use]
    pub fn of(path: &TreePath) -> Self {
        if path.is_root() {
            return Self { path: ".".to_owned(), path_base64: None };
        }
        match std::str::from_utf8(path.as_bytes()) {
            Ok(text) => Self { path: text.to_owned(), path_base64: None },
            Err(_) => Self { path: path.to_string(), path_base64: Some(base64(path.as_bytes())) },
        }
    }
}

/// The path for people, like that of a [`TreePath`].
impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path that is not UTF-8 is escaped already.
        match self.path_base64 {
            Some(_) => f.write_str(&self.path),
            None => Shown(self.path.as_bytes()).fmt(f),
        }
    }
}

impl From<&TreePath> for PathText {
    fn from(path: &TreePath) -> Self {
        Self::of(path)
    }
}

/// Bytes that are usually text: a string if they are UTF-8, otherwise a string with replaced characters, and Base64.
#[must_use]
pub(crate) fn text_or_base64(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(base64(bytes))),
    }
}

/// Passes on a text in pieces.
type Pieces = dyn Fn(&mut dyn FnMut(&str) -> std::fmt::Result) -> std::fmt::Result + Send + Sync;

/// A text that may be large: it is written in pieces, and never held in memory as a whole.
#[derive(Clone)]
pub struct LongText(Arc<Pieces>);

impl LongText {
    /// A text that `pieces` passes on.
    pub fn new(
        pieces: impl Fn(&mut dyn FnMut(&str) -> std::fmt::Result) -> std::fmt::Result + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(pieces))
    }

    /// The last `bytes` bytes of the text, at most.
    #[must_use]
    pub fn tail(&self, bytes: usize) -> Self {
        let mut end = String::new();
        // The closure never fails.
        let _ = (self.0)(&mut |piece| {
            end.push_str(piece);
            if end.len() > bytes.saturating_mul(2) {
                end = tail(&end, bytes).to_owned();
            }
            Ok(())
        });
        Self::from(tail(&end, bytes).to_owned())
    }
}

impl From<String> for LongText {
    fn from(text: String) -> Self {
        Self::new(move |each| each(&text))
    }
}

impl std::fmt::Display for LongText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (self.0)(&mut |piece| f.write_str(piece))
    }
}

impl std::fmt::Debug for LongText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LongText")
    }
}

impl Serialize for LongText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LongText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

type Rows<T> = dyn Fn(&mut dyn FnMut(T) -> fmt::Result) -> std::result::Result<(), RowError> + Send + Sync;

/// A list that may be long: its elements are made one by one while it is written, and never held together.
#[derive(Clone)]
pub struct LongList<T>(Arc<Rows<T>>);

/// Why a list cannot be written completely.
#[derive(Debug)]
pub enum RowError {
    /// The element could not be written.
    Write(fmt::Error),
    /// The element could not be made, for this reason.
    Make(String),
}

impl From<fmt::Error> for RowError {
    fn from(error: fmt::Error) -> Self {
        Self::Write(error)
    }
}

impl<T> LongList<T> {
    /// A list whose elements `rows` passes on.
    pub fn new(
        rows: impl Fn(&mut dyn FnMut(T) -> fmt::Result) -> std::result::Result<(), RowError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(rows))
    }
}

impl<T> Default for LongList<T> {
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl<T> fmt::Debug for LongList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LongList")
    }
}

impl<T: Serialize> Serialize for LongList<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error as _, SerializeSeq as _};
        let mut list = serializer.serialize_seq(None)?;
        let mut failed = None;
        let made = (self.0)(&mut |row| {
            list.serialize_element(&row).map_err(|error| {
                failed = Some(error);
                fmt::Error
            })
        });
        match (failed, made) {
            (Some(error), _) => Err(error),
            (None, Err(RowError::Make(message))) => Err(S::Error::custom(message)),
            (None, Err(RowError::Write(error))) => Err(S::Error::custom(error)),
            (None, Ok(())) => list.end(),
        }
    }
}

impl<'de, T: Deserialize<'de> + Clone + Send + Sync + 'static> Deserialize<'de> for LongList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<T>::deserialize(deserializer)?;
        Ok(Self::new(move |each| Ok(rows.iter().cloned().try_for_each(&mut *each)?)))
    }
}

/// The last `bytes` bytes of a text, at most; never splits a character.
fn tail(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_and_a_long_text_are_read_back() {
        let list: LongList<u32> = serde_json::from_str("[1,2]").unwrap();
        // A list can be written more than once.
        for _ in 0..2 {
            assert_eq!(serde_json::to_string(&list).unwrap(), "[1,2]");
        }
        let text: LongText = serde_json::from_str("\"a\\nb\"").unwrap();
        assert_eq!(text.to_string(), "a\nb");
    }

    #[test]
    fn paths_that_are_not_utf8_keep_their_bytes() {
        let odd = PathText::of(&TreePath::parse(b"a\xff").unwrap());
        assert_eq!((odd.path.as_str(), odd.path_base64.as_deref()), ("a\\xff", Some("Yf8=")));
        assert_eq!(PathText::of(&TreePath::parse(b"a\nb").unwrap()).path, "a\nb");
    }

    #[test]
    fn path_is_shown_like_the_path_of_a_tree() {
        for path in [&b"a\xff\\"[..], b"a\n\\b\t", b"", b"src/main.rs"] {
            let path = TreePath::parse(path).unwrap();
            assert_eq!(PathText::of(&path).to_string(), path.to_string());
        }
    }
}
